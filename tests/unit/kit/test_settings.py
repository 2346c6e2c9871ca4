"""Settings that are wrong are told in one line each."""

import os

import pytest

from lineside.kit.settings import BusSettings, read


def test_a_wrong_setting_is_named_as_it_was_given(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LINESIDE_PARTITIONS", "many")
    monkeypatch.setenv("LINESIDE_REPLICATION", "0")
    monkeypatch.setenv("LINESIDE_LOG_LEVEL", "loud")
    with pytest.raises(SystemExit) as ended:
        read(BusSettings)
    assert ended.value.code == os.EX_CONFIG
    first, second, third = capsys.readouterr().err.splitlines()
    assert first.startswith("LINESIDE_PARTITIONS: ")
    assert second.startswith("LINESIDE_REPLICATION: ")
    assert third.startswith("LINESIDE_LOG_LEVEL: ")

"""One rank seen from its probe file, whatever is wrong with that file."""

from pathlib import Path

import pytest

from lineside.agent.view import RankView
from lineside.contracts import Phase
from lineside.probe import Probe
from lineside.probe.file import ProbeFile


@pytest.fixture
def view(tmp_path: Path) -> RankView:
    return RankView(tmp_path, 4, generation=2)


def test_before_there_is_a_file_nothing_is_known(view: RankView) -> None:
    view.refresh()
    assert view.live is None and view.phase == "" and view.declared is None
    assert len(view.steps()[0]) == 0 and len(view.groups()) == 0


def test_phases_as_detectors_read_them(view: RankView, tmp_path: Path) -> None:
    probe = Probe.create(tmp_path, 4, 2)
    seen = []

    def look() -> None:
        view.refresh()
        seen.append(view.phase)

    look()
    with probe.step(0):
        look()
        with probe.phase("comm"):
            look()
    look()
    with probe.step(1, phase=Phase.EVAL), probe.phase("compute"):
        look()
    look()
    assert seen == ["startup", "step", "comm", "idle", "eval", "idle"]
    view.close()


def test_a_file_of_another_rank_or_generation_is_not_used(
    view: RankView, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Probe.create(tmp_path, 4, 1)
    for _ in range(3):
        view.refresh()
    assert view.live is None
    assert len(caplog.records) == 1, "said once"


def test_a_new_file_takes_the_old_ones_place(view: RankView, tmp_path: Path) -> None:
    first = Probe.create(tmp_path, 4, 2)
    with first.step(7):
        pass
    view.refresh()
    assert list(view.steps()[0]["step"]) == [7]
    second = Probe.create(tmp_path, 4, 2)
    with second.step(9):
        pass
    view.refresh()
    assert list(view.steps()[0]["step"]) == [9]
    view.close()


def test_hostile_files_cost_only_this_ranks_rows(
    view: RankView, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "probe.4"
    path.symlink_to("/etc/passwd")
    view.refresh()
    path.unlink()
    path.mkdir()
    view.refresh()
    path.rmdir()
    path.write_bytes(b"LSPROBE\n" + bytes(5000))
    view.refresh()
    assert view.live is None
    assert len(caplog.records) == 3


def test_what_the_probe_itself_lost_is_counted(view: RankView, tmp_path: Path) -> None:
    file = ProbeFile(tmp_path, 4, 2)
    view.refresh()
    file.count_lost()
    file.count_lost()
    assert view.steps()[1] == 2
    assert view.steps()[1] == 0
    view.close()
    file.close()

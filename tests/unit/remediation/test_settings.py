"""The settings and what they refuse."""

import pytest
from pydantic import ValidationError

from lineside.remediation.settings import RemediationSettings


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "::1"])
def test_loopback_is_served(host):
    assert RemediationSettings(api_host=host).api_host == host


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "example.org"])
def test_anything_else_is_refused_with_the_reason(host):
    with pytest.raises(ValidationError, match="no access control yet"):
        RemediationSettings(api_host=host)


def test_the_environment_is_read(monkeypatch):
    for name, value in {"MODE": "auto", "UNDO_HOLD_S": "5", "REBALANCE_COST_S": "2.5"}.items():
        monkeypatch.setenv(f"LINESIDE_{name}", value)
    policy = RemediationSettings().policy()
    assert (policy.mode, policy.undo_hold_ns, policy.costs.rebalance_s) == ("auto", 5 * 10**9, 2.5)


def test_production_holds_are_long_and_nothing_is_done_unasked():
    policy = RemediationSettings().policy()
    assert policy.mode == "observe"
    assert policy.undo_hold_ns >= 600 * 10**9

import json
import urllib.error
import urllib.request
from typing import Any

import pytest

from lineside.kit import metrics


def test_every_name_has_a_meaning_and_every_meaning_a_name() -> None:
    assert set(metrics.names()) == set(metrics._SPECS)


@pytest.mark.parametrize("name", metrics.names())
def test_names_follow_the_convention(name: Any) -> None:
    assert name.startswith("lineside_")
    counter = metrics._SPECS[name].kind.__name__ == "Counter"
    assert name.endswith("_total") == counter


def test_counters_add_up_by_label() -> None:
    before = metrics.value("lineside_dead_letters_total", "steps.v1")
    metrics.increment("lineside_dead_letters_total", "steps.v1")
    metrics.increment("lineside_dead_letters_total", "steps.v1", by=2)
    metrics.increment("lineside_dead_letters_total", "jobs.v1")
    assert metrics.value("lineside_dead_letters_total", "steps.v1") == before + 3


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_the_server_shows_metrics_health_and_readiness() -> None:
    state: list[tuple[bool, dict[str, Any]]] = [(False, {"reasons": ["starting"]})]
    port = metrics.serve(0, lambda: state[-1])
    metrics.gauge("lineside_jobs_tracked", 3)
    status, text = _get(port, "/metrics")
    assert status == 200 and "lineside_jobs_tracked 3.0" in text
    assert _get(port, "/healthz")[0] == 200
    status, text = _get(port, "/readyz")
    assert (status, json.loads(text)) == (503, {"ready": False, "reasons": ["starting"]})
    state.append((True, {"lag_records": 0}))
    status, text = _get(port, "/readyz?verbose")
    assert (status, json.loads(text)) == (200, {"ready": True, "lag_records": 0})
    assert _get(port, "/")[0] == 404


def test_a_taken_port_is_an_error() -> None:
    port = metrics.serve(0, lambda: (True, {}))
    with pytest.raises(OSError, match="in use"):
        metrics.serve(port, lambda: (True, {}))

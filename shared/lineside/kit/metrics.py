"""Prometheus metrics of a process, and the small HTTP server that shows them with health and readiness.

Every metric name is a member of one ``Literal``, so that mypy finds a misspelt one and people find all of
them in one place. Values live in one registry of the process.
"""

import functools
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal, NamedTuple, cast, get_args

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

MetricName = Literal[
    # stream: how far and how well
    "lineside_records_applied_total",
    "lineside_records_skipped_total",
    "lineside_records_replayed_total",
    "lineside_records_lost_total",
    "lineside_findings_total",
    "lineside_dead_letters_total",
    "lineside_detector_errors_total",
    "lineside_snapshots_total",
    "lineside_snapshot_failures_total",
    "lineside_snapshot_bytes",
    "lineside_record_seconds",
    "lineside_lag_records",
    "lineside_last_event_age_seconds",
    "lineside_partitions_assigned",
    "lineside_jobs_tracked",
]


class _Spec(NamedTuple):
    kind: type[Counter] | type[Gauge] | type[Histogram]
    meaning: str
    labels: tuple[str, ...] = ()


_SPECS: dict[MetricName, _Spec] = {
    "lineside_records_applied_total": _Spec(Counter, "records given to a detector", ("topic",)),
    "lineside_records_skipped_total": _Spec(
        Counter, "records delivered again and passed over", ("topic",)
    ),
    "lineside_records_replayed_total": _Spec(
        Counter, "records read from the log after a start or a gap", ("topic",)
    ),
    "lineside_records_lost_total": _Spec(
        Counter, "records that left the log before they were read", ("topic",)
    ),
    "lineside_findings_total": _Spec(Counter, "faults and job healths sent", ("topic",)),
    "lineside_dead_letters_total": _Spec(Counter, "records that could not be used", ("topic",)),
    "lineside_detector_errors_total": _Spec(Counter, "records that made a detector fail"),
    "lineside_snapshots_total": _Spec(Counter, "partition snapshots acknowledged"),
    "lineside_snapshot_failures_total": _Spec(Counter, "partition snapshots not saved"),
    "lineside_snapshot_bytes": _Spec(
        Gauge, "size of the newest snapshot of a partition", ("partition",)
    ),
    "lineside_record_seconds": _Spec(
        Histogram, "time to decode one record and take it in", ("topic",)
    ),
    "lineside_lag_records": _Spec(
        Gauge, "records in the log that are not applied yet", ("partition",)
    ),
    "lineside_last_event_age_seconds": _Spec(Gauge, "age of the newest record applied"),
    "lineside_partitions_assigned": _Spec(Gauge, "partitions this worker serves"),
    "lineside_jobs_tracked": _Spec(Gauge, "jobs with a detector in memory"),
}
_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0)
"""Seconds: a record takes tens of microseconds to decode, a detector up to a second."""

registry = CollectorRegistry()

Readiness = Callable[[], tuple[bool, dict[str, Any]]]
"""Whether the process does its work, and the numbers behind that answer."""


@functools.cache
def _metric(name: MetricName) -> Any:
    kind, meaning, labels = _SPECS[name]
    if kind is Histogram:
        return Histogram(name, meaning, labels, registry=registry, buckets=_BUCKETS)
    return kind(name, meaning, labels, registry=registry)


@functools.lru_cache(maxsize=4096)
def _child(name: MetricName, *labels: str) -> Any:
    return _metric(name).labels(*labels) if labels else _metric(name)


def increment(name: MetricName, *labels: str, by: float = 1.0) -> None:
    """Add ``by`` to a counter; ``labels`` in the order of the table above."""
    _child(name, *labels).inc(by)


def gauge(name: MetricName, value: float, *labels: str) -> None:
    _child(name, *labels).set(value)


def timing(name: MetricName, seconds: float, *labels: str) -> None:
    _child(name, *labels).observe(seconds)


def names() -> tuple[str, ...]:
    """All metric names there are."""
    return get_args(MetricName)


def value(name: MetricName, *labels: str) -> float:
    """A counter's or gauge's value now."""
    found = registry.get_sample_value(name, dict(zip(_SPECS[name].labels, labels, strict=True)))
    return found or 0.0


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    ready: Readiness


class _Handler(BaseHTTPRequestHandler):
    """``/metrics`` for Prometheus; ``/healthz``: the process answers; ``/readyz``: it does its work."""

    def do_GET(self) -> None:
        match self.path.split("?")[0]:
            case "/metrics":
                self._answer(200, generate_latest(registry), CONTENT_TYPE_LATEST)
            case "/healthz":
                self._answer(200, b'{"alive": true}')
            case "/readyz":
                ready, detail = cast(_Server, self.server).ready()
                body = msgspec.json.encode({"ready": ready, **detail})
                self._answer(200 if ready else 503, body)
            case _:
                self._answer(404, b'{"error": "there are /metrics, /healthz and /readyz"}')

    def _answer(self, status: int, body: bytes, kind: str = "application/json") -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Probes come every few seconds; they are no news."""


def serve(port: int, ready: Readiness, host: str = "127.0.0.1") -> int:
    """Answer on ``host``:``port`` (0: any free one) until the process ends; returns the port.

    ``ready`` is called from the server's threads. Raises OSError where the port is taken.
    """
    server = _Server((host, port), _Handler)
    server.ready = ready
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return int(server.server_address[1])

"""The service's numbers for Prometheus: counted where they happen, or read from SQL when asked."""

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from sqlalchemy import func, select
from sqlalchemy.exc import SQLAlchemyError

from lineside.remediation.store import IncidentRow, OutboxRow, Store


class Metrics:
    """One registry per service object, so that tests may make many."""

    def __init__(self, store: Store) -> None:
        self.registry = CollectorRegistry()
        self.records = Counter(
            "lineside_remediation_records",
            "Records taken in, by topic",
            ["topic"],
            registry=self.registry,
        )
        self.dead_letters = Counter(
            "lineside_remediation_dead_letters",
            "Records that could not be used, by topic",
            ["topic"],
            registry=self.registry,
        )
        self.lag = Gauge(
            "lineside_remediation_lag_records",
            "Records not yet committed; -1 while unknown",
            registry=self.registry,
        )
        self.lag.set(-1)
        self.registry.register(_FromSql(store))


class _FromSql(Collector):
    """Incidents by state and records that wait to be sent."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Nothing yet: registering must not ask the database."""
        return []

    def collect(self) -> Iterable[GaugeMetricFamily]:
        incidents = GaugeMetricFamily("lineside_incidents", "Incidents by state", labels=["state"])
        waiting = GaugeMetricFamily("lineside_outbox_records", "Records that wait to be sent")
        try:
            with self._store.reading() as session:
                by_state = session.execute(
                    select(IncidentRow.state, func.count()).group_by(IncidentRow.state)
                ).all()
                unsent = session.scalar(
                    select(func.count()).where(
                        OutboxRow.sent_ns.is_(None), OutboxRow.error.is_(None)
                    )
                )
        except SQLAlchemyError:
            return []  # absent is how Prometheus says unknown
        for state, count in by_state:
            incidents.add_metric([state], count)
        waiting.add_metric([], unsent or 0)
        return [incidents, waiting]

"""The map of all topics: what each carries, how long it is kept, who writes and reads it."""

from enum import StrEnum
from typing import Any

import msgspec

from lineside.contracts.alerts import IncidentView
from lineside.contracts.collectives import CollectiveBatch
from lineside.contracts.detector_state import DetectorState
from lineside.contracts.faults import CloudEvent, Fault
from lineside.contracts.health import JobHealth
from lineside.contracts.jobs import Job
from lineside.contracts.machine_events import MachineEvent
from lineside.contracts.machine_metrics import MetricBatch
from lineside.contracts.members import Member
from lineside.contracts.plan_status import PlanStatus
from lineside.contracts.plans import Plan
from lineside.contracts.requests import Reply, Request
from lineside.contracts.steps import StepBatch

MSGPACK = "application/msgpack"
JSON = "application/json"
CLOUDEVENTS = "application/cloudevents+json"
_DAY_MS = 24 * 3600 * 1000
_MB = 1024 * 1024


class TopicName(StrEnum):
    """Topic names without their prefix (``lineside.`` unless configured, one per tenant)."""

    JOBS = "jobs.v1"
    MEMBERS = "members.v1"
    STEPS = "steps.v1"
    MACHINE_METRICS = "machine-metrics.v1"
    MACHINE_EVENTS = "machine-events.v1"
    COLLECTIVES = "collectives.v1"
    HEALTH = "health.v1"
    FAULTS = "faults.v1"
    PLANS = "plans.v1"
    PLAN_STATUS = "plan-status.v1"
    REQUESTS = "requests.v1"
    REPLIES = "replies.v1"
    ALERTS = "alerts.v1"
    DETECTOR_STATE = "detector-state.v1"
    DEAD_LETTERS = "dead-letters.v1"


class Topic(msgspec.Struct, frozen=True, kw_only=True):
    """One topic. ``retention_ms`` None means compacted: the newest record of each key is kept."""

    name: TopicName
    type: Any
    schema: str
    content_type: str = JSON
    retention_ms: int | None = None
    max_bytes: int = 4 * _MB
    written_by: str
    read_by: str
    key: str = "job_id"

    @property
    def kafka_config(self) -> dict[str, str]:
        """Settings for topic creation. Append time everywhere: one clock for all machines."""
        config = {
            "message.timestamp.type": "LogAppendTime",
            "max.message.bytes": str(self.max_bytes),
        }
        if self.retention_ms is None:
            # Kafka never compacts the segment being written (1 GB by default), and a reader that wants
            # the newest value of each key reads all of it: small segments keep that short.
            return config | {
                "cleanup.policy": "compact",
                "min.cleanable.dirty.ratio": "0.1",
                "segment.bytes": str(64 * _MB),
                "segment.ms": str(600_000),
            }
        return config | {"cleanup.policy": "delete", "retention.ms": str(self.retention_ms)}


_ALL = (
    Topic(
        name=TopicName.JOBS,
        type=Job,
        schema="jobs.1",
        written_by="the launcher",
        read_by="all",
    ),
    Topic(
        name=TopicName.MEMBERS,
        type=Member,
        schema="members.1",
        key="job_id/machine_id",
        written_by="agents",
        read_by="all",
    ),
    Topic(
        name=TopicName.STEPS,
        type=StepBatch,
        schema="steps.1",
        content_type=MSGPACK,
        retention_ms=_DAY_MS,
        written_by="agents",
        read_by="falcon",
    ),
    Topic(
        name=TopicName.MACHINE_METRICS,
        type=MetricBatch,
        schema="machine-metrics.1",
        content_type=MSGPACK,
        retention_ms=_DAY_MS,
        written_by="agents, exporters",
        read_by="minder",
    ),
    Topic(
        name=TopicName.MACHINE_EVENTS,
        type=MachineEvent,
        schema="machine-events.1",
        retention_ms=30 * _DAY_MS,
        written_by="agents",
        read_by="minder, mycroft, remediation",
    ),
    Topic(
        name=TopicName.COLLECTIVES,
        type=CollectiveBatch,
        schema="collectives.1",
        content_type=MSGPACK,
        retention_ms=_DAY_MS,
        written_by="agents",
        read_by="mycroft, falcon",
    ),
    Topic(
        name=TopicName.HEALTH,
        type=JobHealth,
        schema="health.1",
        written_by="falcon",
        read_by="remediation",
    ),
    Topic(
        name=TopicName.FAULTS,
        type=CloudEvent[Fault],
        schema="faults.1",
        content_type=CLOUDEVENTS,
        retention_ms=30 * _DAY_MS,
        written_by="minder, mycroft, falcon",
        read_by="remediation",
    ),
    Topic(
        name=TopicName.PLANS,
        type=Plan,
        schema="plans.1",
        written_by="remediation",
        read_by="agents, the launcher",
    ),
    Topic(
        name=TopicName.PLAN_STATUS,
        type=PlanStatus,
        schema="plan-status.1",
        retention_ms=30 * _DAY_MS,
        written_by="agents",
        read_by="remediation",
    ),
    Topic(
        name=TopicName.REQUESTS,
        type=Request,
        schema="requests.1",
        retention_ms=_DAY_MS,
        written_by="remediation",
        read_by="agents",
    ),
    Topic(
        name=TopicName.REPLIES,
        type=Reply,
        schema="replies.1",
        retention_ms=_DAY_MS,
        written_by="agents",
        read_by="remediation",
    ),
    Topic(
        name=TopicName.ALERTS,
        type=CloudEvent[IncidentView],
        schema="alerts.1",
        content_type=CLOUDEVENTS,
        retention_ms=30 * _DAY_MS,
        written_by="remediation",
        read_by="anyone",
    ),
    Topic(
        name=TopicName.DETECTOR_STATE,
        type=DetectorState,
        schema="detector-state.1",
        content_type=MSGPACK,
        key="detector/job_id or detector/cursor/partition",
        written_by="minder, mycroft, falcon",
        read_by="themselves",
    ),
    Topic(
        name=TopicName.DEAD_LETTERS,
        type=bytes,
        schema="",
        content_type="application/octet-stream",
        retention_ms=7 * _DAY_MS,
        key="as received",
        written_by="all services",
        read_by="operators",
    ),
)

SIGNED = frozenset({TopicName.PLANS, TopicName.REQUESTS})
"""What agents act on: outside local mode each record carries headers ``signature`` and ``key-id``."""

TOPICS: dict[TopicName, Topic] = {topic.name: topic for topic in _ALL}


def topic_named(name: str) -> Topic:
    """The topic ``name`` (without prefix). Raises KeyError with the known names."""
    try:
        return TOPICS[TopicName(name)]
    except ValueError:
        known = ", ".join(TOPICS)
        raise KeyError(f"no topic {name!r}; there are {known}") from None

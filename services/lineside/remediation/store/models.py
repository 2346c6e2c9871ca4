"""The tables. Times are integer nanoseconds, NULL where something has not happened; wire records are kept
whole as JSON beside the columns that queries need, so nothing of the evidence is lost.

Everything that the policy must remember stands here: a service that dies and comes back reads it and goes on.
Natural keys make every replayed record harmless.
"""

from typing import Any

from sqlalchemy import JSON, BigInteger, ForeignKey, Index, MetaData, String, Text, UniqueConstraint
from sqlalchemy.dialects import sqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

Json = JSON(none_as_null=True)
Serial = BigInteger().with_variant(sqlite.INTEGER(), "sqlite")
"""SQLite counts rows up only in a column of exactly this type."""


class Base(DeclarativeBase):
    """Constraints have names, so that every database can migrate them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(column_0_N_label)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(column_0_N_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {int: BigInteger, dict[str, Any]: Json, list[Any]: Json}  # noqa: RUF012


class JobRow(Base):
    """One run of a job: the newest Job record of it. A job id that is used again has a row per run."""

    __tablename__ = "jobs"

    run_id: Mapped[str] = mapped_column(String(255), primary_key=True)
    job_id: Mapped[str] = mapped_column(String(255), index=True)
    name: Mapped[str] = mapped_column(Text)
    generation: Mapped[int]
    state: Mapped[str] = mapped_column(String(32))
    started_ns: Mapped[int | None]
    first_seen_ns: Mapped[int]
    updated_ns: Mapped[int]
    newest_revision: Mapped[int]
    """The largest plan revision that anything said of this run, allocated here or not."""
    body: Mapped[dict[str, Any]]


class HealthRow(Base):
    """Recent health of a run, for the measured effect; older samples are deleted."""

    __tablename__ = "health_samples"

    run_id: Mapped[str] = mapped_column(String(255), primary_key=True)
    at_ns: Mapped[int] = mapped_column(primary_key=True)
    generation: Mapped[int]
    step: Mapped[int]
    step_s: Mapped[float | None]
    slowdown: Mapped[float | None]
    state: Mapped[str] = mapped_column(String(32))
    received_ns: Mapped[int] = mapped_column(index=True)
    body: Mapped[dict[str, Any]]


class IncidentRow(Base):
    """One trouble of one run, from its first fault to its end."""

    __tablename__ = "incidents"
    __table_args__ = (Index("ix_incidents_opened_ns_incident_id", "opened_ns", "incident_id"),)

    incident_id: Mapped[str] = mapped_column(String(36), primary_key=True)
    job_id: Mapped[str] = mapped_column(String(255), index=True)
    run_id: Mapped[str] = mapped_column(String(255), index=True)
    kind: Mapped[str] = mapped_column(String(32))
    severity: Mapped[str] = mapped_column(String(16))
    state: Mapped[str] = mapped_column(String(16), index=True)
    summary: Mapped[str] = mapped_column(Text)
    confidence: Mapped[float]
    suspects: Mapped[list[Any]]
    onset_ns: Mapped[int]
    """When the trouble began; after a reopening, when it began again."""
    detected_ns: Mapped[int]
    opened_ns: Mapped[int]
    since_ns: Mapped[int]
    reopened_ns: Mapped[int | None]
    relieved_ns: Mapped[int | None]
    mitigated_ns: Mapped[int | None]
    resolved_ns: Mapped[int | None]
    note: Mapped[str | None] = mapped_column(String(32))
    failures: Mapped[int]
    impact_s: Mapped[float]
    impact_from_ns: Mapped[int]
    impact_step: Mapped[int]
    healthy_step_s: Mapped[float | None]
    faulty_step_s: Mapped[float | None]
    effect: Mapped[dict[str, Any]]


class TransitionRow(Base):
    """Every step of an incident: when, from which state to which, by whom, why. Remarks keep the state."""

    __tablename__ = "incident_transitions"

    incident_id: Mapped[str] = mapped_column(ForeignKey("incidents.incident_id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    at_ns: Mapped[int]
    from_state: Mapped[str | None] = mapped_column(String(16))
    to_state: Mapped[str] = mapped_column(String(16))
    actor: Mapped[str] = mapped_column(String(255))
    reason: Mapped[str] = mapped_column(Text)


class FaultRow(Base):
    """A detector's finding in its newest phase; ``incident_id`` is NULL while it waits to open or join."""

    __tablename__ = "faults"

    fault_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    job_id: Mapped[str] = mapped_column(String(255), index=True)
    run_id: Mapped[str] = mapped_column(String(255), index=True)
    incident_id: Mapped[str | None] = mapped_column(ForeignKey("incidents.incident_id"), index=True)
    generation: Mapped[int]
    detector: Mapped[str] = mapped_column(String(64))
    kind: Mapped[str] = mapped_column(String(32))
    phase: Mapped[str] = mapped_column(String(16))
    sequence: Mapped[int]
    onset_ns: Mapped[int]
    detected_ns: Mapped[int]
    relieved_ns: Mapped[int | None]
    received_ns: Mapped[int]
    """Append time of its first record; ``updated_ns`` of its newest phase."""
    updated_ns: Mapped[int]
    confidence: Mapped[float]
    body: Mapped[dict[str, Any]]


class FaultEventRow(Base):
    """Every phase of every fault as it was announced."""

    __tablename__ = "fault_events"

    fault_id: Mapped[str] = mapped_column(ForeignKey("faults.fault_id"), primary_key=True)
    sequence: Mapped[int] = mapped_column(primary_key=True)
    phase: Mapped[str] = mapped_column(String(16))
    received_ns: Mapped[int]
    body: Mapped[dict[str, Any]]


class PlanRow(Base):
    """A plan and its fate. A proposed one has no revision; a revision exists once its row is committed."""

    __tablename__ = "plans"
    __table_args__ = (UniqueConstraint("run_id", "revision"),)

    plan_id: Mapped[str] = mapped_column(String(36), primary_key=True)
    job_id: Mapped[str] = mapped_column(String(255), index=True)
    run_id: Mapped[str] = mapped_column(String(255))
    revision: Mapped[int | None]
    incident_id: Mapped[str | None] = mapped_column(ForeignKey("incidents.incident_id"), index=True)
    generation: Mapped[int]
    kind: Mapped[str] = mapped_column(String(16))
    progress: Mapped[str] = mapped_column(String(16), index=True)
    actor: Mapped[str] = mapped_column(String(255))
    reason: Mapped[str] = mapped_column(Text)
    detail: Mapped[str] = mapped_column(Text)
    micro_batch_plan: Mapped[list[Any]]
    predicted_step_s: Mapped[float | None]
    created_ns: Mapped[int]
    valid_until_ns: Mapped[int | None]
    settled_ns: Mapped[int | None]
    applied_step: Mapped[int | None]
    body: Mapped[dict[str, Any] | None] = mapped_column(Json)


class PlanStatusRow(Base):
    """What an agent (rank -1) or a rank did with a revision."""

    __tablename__ = "plan_statuses"

    run_id: Mapped[str] = mapped_column(String(255), primary_key=True)
    revision: Mapped[int] = mapped_column(primary_key=True)
    machine_id: Mapped[str] = mapped_column(String(255), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    state: Mapped[str] = mapped_column(String(16), primary_key=True)
    at_ns: Mapped[int]
    body: Mapped[dict[str, Any]]


class RequestRow(Base):
    """Evidence that was asked of agents. ``ranks`` empty: all; ``refusal``: why it was not sent after all."""

    __tablename__ = "requests"

    request_id: Mapped[str] = mapped_column(String(36), primary_key=True)
    job_id: Mapped[str] = mapped_column(String(255), index=True)
    run_id: Mapped[str] = mapped_column(String(255), index=True)
    generation: Mapped[int]
    fault_id: Mapped[str | None] = mapped_column(String(64), index=True)
    kind: Mapped[str] = mapped_column(String(64))
    ranks: Mapped[list[Any]]
    parameters: Mapped[dict[str, Any]]
    max_pause_s: Mapped[float | None]
    actor: Mapped[str] = mapped_column(String(255))
    reason: Mapped[str] = mapped_column(Text)
    refusal: Mapped[str | None] = mapped_column(Text)
    created_ns: Mapped[int]
    expires_ns: Mapped[int]


class ReplyRow(Base):
    """A rank's answer to a request, or an agent's (rank -1) for all its ranks."""

    __tablename__ = "replies"

    request_id: Mapped[str] = mapped_column(String(36), primary_key=True)
    machine_id: Mapped[str] = mapped_column(String(255), primary_key=True)
    rank: Mapped[int] = mapped_column(primary_key=True)
    at_ns: Mapped[int]
    ok: Mapped[bool]
    detail: Mapped[str] = mapped_column(Text)
    result: Mapped[dict[str, Any]]
    received_ns: Mapped[int] = mapped_column(index=True)


class OutboxRow(Base):
    """What is to be published: written with the change it tells of, sent afterwards at least once, in order.

    The id only grows and is never used again; it numbers the alerts for readers who resume.
    """

    __tablename__ = "outbox"
    __table_args__ = (
        Index("ix_outbox_topic_outbox_id", "topic", "outbox_id"),
        {"sqlite_autoincrement": True},
    )

    outbox_id: Mapped[int] = mapped_column(Serial, primary_key=True, autoincrement=True)
    topic: Mapped[str] = mapped_column(String(64))
    partition: Mapped[int]
    key: Mapped[bytes]
    value: Mapped[bytes]
    headers: Mapped[list[Any]]
    created_ns: Mapped[int]
    sent_ns: Mapped[int | None] = mapped_column(index=True)
    error: Mapped[str | None] = mapped_column(Text)
    """Why it can never be sent (too large, no such topic): it is passed over."""

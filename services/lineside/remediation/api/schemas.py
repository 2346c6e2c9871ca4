"""What the API answers: times in RFC 3339 (UTC), null for what is not known or has not happened."""

from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from lineside.contracts import RequestKind

T = TypeVar("T")


def moment(ns: int | datetime | None) -> datetime | None:
    """Nanoseconds as a time, to the microsecond; None for None and for -1."""
    if not isinstance(ns, int):
        return ns
    if ns < 0:
        return None
    return datetime.fromtimestamp(ns // 10**9, UTC).replace(microsecond=ns % 10**9 // 1000)


Time = Annotated[datetime, BeforeValidator(moment)]
MaybeTime = Annotated[datetime | None, BeforeValidator(moment)]


class Answer(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class Health(Answer):
    """How a job does. ``step_s`` is the recent median, ``slowdown`` is step_s over baseline_s."""

    at: Time
    state: str = Field(examples=["slow"])
    step: int
    step_s: float | None
    baseline_s: float | None
    slowdown: float | None
    throughput: float | None = Field(description="tokens per second")
    revision: int = Field(description="the plan revision that was in force")
    generation: int
    ranks_reporting: int
    ranks_expected: int


class JobHealth(Answer):
    job_id: str
    run_id: str
    newest: Health | None
    samples: list[Health] = Field(description="oldest first")


class Job(Answer):
    """One run of a job."""

    job_id: str = Field(examples=["gpt-7b"])
    run_id: str
    name: str
    state: str = Field(examples=["running"])
    generation: int
    started_at: MaybeTime
    world_size: int = Field(description="number of ranks; 0 while it is not known")
    mesh: dict[str, int] = Field(examples=[{"dp": 4, "pp": 2}])
    micro_batches: int | None = Field(description="per step, over all replicas")
    micro_batch_plan: list[int] = Field(
        description="per replica, as it is in force; empty while it is not known"
    )
    revision: int = Field(description="of the plan in force; 0: what the job says")
    capabilities: list[str] = Field(examples=[["rebalance"]])
    machines: list[str]
    open_incidents: int
    health: Health | None


class Transition(Answer):
    at: Time
    from_state: str | None
    to_state: str
    actor: str = Field(description="policy, a detector, or a person")
    reason: str


class FaultPhase(Answer):
    """A fault in its newest phase, with the numbers behind it."""

    fault_id: str
    detector: str
    kind: str
    phase: str
    onset_at: Time
    detected_at: Time
    confidence: float
    slowdown: float | None
    summary: str
    suspects: list[dict[str, Any]]
    victims: list[dict[str, Any]]
    evidence: dict[str, Any]


class Plan(Answer):
    """A plan and its fate. A proposed one has no revision."""

    plan_id: str
    job_id: str
    run_id: str
    revision: int | None
    incident_id: str | None
    generation: int
    kind: str = Field(examples=["rebalance"])
    state: str = Field(
        examples=["applied"],
        description="proposed, issued, applied, rejected, stale, failed or expired",
    )
    actor: str
    reason: str
    detail: str
    micro_batch_plan: list[int] = Field(examples=[[2, 6, 6, 6]])
    predicted_step_s: float | None
    created_at: Time
    valid_until: MaybeTime
    settled_at: MaybeTime
    applied_step: int | None


class IncidentSummary(Answer):
    incident_id: str
    job_id: str
    run_id: str
    kind: str = Field(examples=["slow_compute"])
    severity: str = Field(examples=["warning"])
    state: str = Field(examples=["mitigated"])
    summary: str = Field(examples=["rank 0 computes 2.5 times slower than its peers"])
    confidence: float
    suspects: list[dict[str, Any]]
    onset_at: Time
    detected_at: Time
    opened_at: Time
    mitigated_at: MaybeTime
    resolved_at: MaybeTime
    impact_s: float = Field(
        description="seconds lost to slow steps since the onset or the last remedy"
    )
    effect: dict[str, float | None] = Field(description="the measured effect of the remedy")


class Evidence(Answer):
    """What a fault of the incident wanted to know; `GET /v1/jobs/{id}/requests` has the answers."""

    request_id: str
    fault_id: str
    kind: str = Field(examples=["dump_stacks"])
    asked_at: Time
    refusal: str | None = Field(description="why it was not asked for; null: it was")
    answered: int = Field(description="ranks that answered with a result")


class Incident(IncidentSummary):
    """An incident with its whole history."""

    timeline: list[Transition]
    faults: list[FaultPhase]
    plans: list[Plan]
    evidence: list[Evidence]


class EvidenceReply(Answer):
    """`rank` is null where an agent answered for all its ranks."""

    machine_id: str
    rank: int | None
    at: Time
    ok: bool
    detail: str = Field(description="where not ok: the reason")
    result: dict[str, Any]


class StackGroup(Answer):
    """Ranks whose main threads stand at the same place, innermost frame first."""

    ranks: list[int]
    frames: list[str]


class EvidenceRequest(Answer):
    """A request for evidence and what came of it."""

    request_id: str
    fault_id: str | None
    job_id: str
    run_id: str
    generation: int
    kind: str = Field(examples=["dump_stacks"])
    state: str = Field(examples=["answered"], description="sent, answered, expired or refused")
    refusal: str | None
    ranks: list[int] = Field(description="empty: all")
    parameters: dict[str, Any]
    max_pause_s: float | None
    actor: str
    reason: str
    created_at: Time
    expires_at: Time
    waiting_for: list[int] = Field(description="ranks that have not answered")
    replies: list[EvidenceReply]
    stacks: list[StackGroup] = Field(description="of dump_stacks: the rarest place first")


class Page(Answer, Generic[T]):
    """``next_cursor`` is null on the last page."""

    items: list[T]
    next_cursor: str | None = None


class PlanRequest(BaseModel):
    """A plan by hand: micro-batches per replica."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"micro_batch_plan": [2, 6, 6, 6], "reason": "host-0 is throttled"}]
        },
    )

    micro_batch_plan: list[Annotated[int, Field(ge=0)]] = Field(min_length=1)
    reason: str = Field("", max_length=1000)
    actor: str = Field("operator", min_length=1, max_length=200, description="who asks")
    valid_s: float = Field(
        60.0, gt=0, le=3600, description="seconds in which all ranks must have applied it"
    )


class WantedEvidence(BaseModel):
    """What is asked of a run's agents."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"kind": "dump_stacks", "ranks": [3]}]},
    )

    kind: RequestKind
    ranks: list[Annotated[int, Field(ge=0)]] = Field([], description="empty: all")
    parameters: dict[str, Any] = Field({}, description="by kind, e.g. `seconds`")
    max_pause_s: float | None = Field(
        None, gt=0, le=60, description="for how long the run may be held up or slowed"
    )
    valid_s: float = Field(60.0, gt=0, le=600, description="seconds in which it may be begun")
    reason: str = Field("", max_length=1000)
    actor: str = Field("operator", min_length=1, max_length=200, description="who asks")


class Ready(Answer):
    """Why the service is ready or not."""

    ready: bool
    database: bool
    lag: int = Field(description="records not yet committed; -1 while unknown")
    last_record_at: MaybeTime
    last_turn_age_s: float = Field(description="seconds since the service last came round")

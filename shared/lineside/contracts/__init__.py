"""What crosses a wire: one module per topic, and the codec that moves it.

Rooms import the names below; the modules are the room's own furniture. Change a type only additively
(new fields at the end, with defaults): golden bytes in ``tests/contract`` hold every type to that.
"""

from lineside.contracts.alerts import Alert, AlertType, IncidentView
from lineside.contracts.codec import (
    Decoded,
    WireMessage,
    decode,
    encode,
    from_plain,
    job_of,
    to_plain,
)
from lineside.contracts.collectives import CollectiveBatch, FlowRow, Op, RankStateRow
from lineside.contracts.columns import columns, invalid_reason, pack
from lineside.contracts.dead_letters import dead_letter
from lineside.contracts.detector_state import DetectorState
from lineside.contracts.errors import ContractError, InvalidRecord, UndecodableRecord
from lineside.contracts.faults import (
    CloudEvent,
    Fault,
    FaultKind,
    FaultPhase,
    Suspect,
    SuspectKind,
    fault_event,
    fault_id,
)
from lineside.contracts.health import HealthState, JobHealth
from lineside.contracts.identity import (
    JobId,
    MachineId,
    Rank,
    RunId,
    group_id,
    p2p_group_id,
    partition_of,
)
from lineside.contracts.jobs import (
    ENDED,
    Capabilities,
    Checkpoint,
    Device,
    Group,
    Job,
    JobState,
    Machine,
    Mesh,
    MicroBatchLimits,
    RestartOwner,
)
from lineside.contracts.machine_events import EventSeverity, EventSource, MachineEvent
from lineside.contracts.machine_metrics import MetricBatch, Series
from lineside.contracts.members import Declaration, Member, MemberState, SavedCheckpoint
from lineside.contracts.plan_status import PlanState, PlanStatus
from lineside.contracts.plans import Plan, PlanKind
from lineside.contracts.requests import NOT_DISRUPTIVE, Reply, Request, RequestKind
from lineside.contracts.steps import Phase, StepBatch, Timing
from lineside.contracts.topics import SIGNED, TOPICS, Topic, TopicName, topic_named

__all__ = [
    "ENDED",
    "NOT_DISRUPTIVE",
    "SIGNED",
    "TOPICS",
    "Alert",
    "AlertType",
    "Capabilities",
    "Checkpoint",
    "CloudEvent",
    "CollectiveBatch",
    "ContractError",
    "Declaration",
    "Decoded",
    "DetectorState",
    "Device",
    "EventSeverity",
    "EventSource",
    "Fault",
    "FaultKind",
    "FaultPhase",
    "FlowRow",
    "Group",
    "HealthState",
    "IncidentView",
    "InvalidRecord",
    "Job",
    "JobHealth",
    "JobId",
    "JobState",
    "Machine",
    "MachineEvent",
    "MachineId",
    "Member",
    "MemberState",
    "Mesh",
    "MetricBatch",
    "MicroBatchLimits",
    "Op",
    "Phase",
    "Plan",
    "PlanKind",
    "PlanState",
    "PlanStatus",
    "Rank",
    "RankStateRow",
    "Reply",
    "Request",
    "RequestKind",
    "RestartOwner",
    "RunId",
    "SavedCheckpoint",
    "Series",
    "StepBatch",
    "Suspect",
    "SuspectKind",
    "Timing",
    "Topic",
    "TopicName",
    "UndecodableRecord",
    "WireMessage",
    "columns",
    "dead_letter",
    "decode",
    "encode",
    "fault_event",
    "fault_id",
    "from_plain",
    "group_id",
    "invalid_reason",
    "job_of",
    "p2p_group_id",
    "pack",
    "partition_of",
    "to_plain",
    "topic_named",
]

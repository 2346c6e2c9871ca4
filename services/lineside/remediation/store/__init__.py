"""The incident history in SQL: typed tables, migrations, and sessions that read or write."""

from lineside.remediation.store.engine import Store, StoreError
from lineside.remediation.store.models import (
    FaultEventRow,
    FaultRow,
    HealthRow,
    IncidentRow,
    JobRow,
    OutboxRow,
    PlanRow,
    PlanStatusRow,
    ReplyRow,
    RequestRow,
    TransitionRow,
)

__all__ = [
    "FaultEventRow",
    "FaultRow",
    "HealthRow",
    "IncidentRow",
    "JobRow",
    "OutboxRow",
    "PlanRow",
    "PlanStatusRow",
    "ReplyRow",
    "RequestRow",
    "Store",
    "StoreError",
    "TransitionRow",
]

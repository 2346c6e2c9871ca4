"""``alerts.v1``: what people are told about an incident, as CloudEvents."""

from enum import StrEnum
from typing import Any

import msgspec

from lineside.contracts.faults import CloudEvent, Fault


class AlertType(StrEnum):
    OPENED = "io.lineside.incident.opened.v1"
    UPDATED = "io.lineside.incident.updated.v1"
    MITIGATING = "io.lineside.incident.mitigating.v1"
    MITIGATED = "io.lineside.incident.mitigated.v1"
    RESOLVED = "io.lineside.incident.resolved.v1"
    ESCALATED = "io.lineside.incident.escalated.v1"


class IncidentView(msgspec.Struct, frozen=True, kw_only=True):
    """An incident as the API returns it. Times in ns; -1: has not happened."""

    incident_id: str
    job_id: str
    run_id: str
    kind: str
    severity: str
    state: str
    summary: str
    opened_ns: int
    detected_ns: int
    onset_ns: int
    mitigated_ns: int = -1
    resolved_ns: int = -1
    suspects: list[dict[str, Any]] = []
    effect: dict[str, float | None] = {}
    faults: list[Fault] = []
    plans: list[dict[str, Any]] = []
    transitions: list[dict[str, Any]] = []


Alert = CloudEvent[IncidentView]

"""How jobs and incidents look in a terminal."""

from typing import Any

from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

_COLOURS = {
    "open": "yellow",
    "mitigating": "cyan",
    "verifying": "cyan",
    "mitigated": "green",
    "resolved": "dim",
    "escalated": "bold red",
    "running": "green",
    "failed": "red",
    "slow": "yellow",
    "stalled": "bold red",
}


def coloured(state: str) -> Text:
    return Text(state, style=_COLOURS.get(state, ""))


def print_jobs(jobs: list[dict[str, Any]]) -> None:
    table = Table("job", "state", "ranks", "step", "step time", "slowdown", "plan", "incidents")
    for job in jobs:
        health = job["health"] or {}
        table.add_row(
            job["job_id"],
            coloured(job["state"]),
            str(job["world_size"]),
            str(health.get("step", "")),
            _seconds(health.get("step_s")),
            _ratio(health.get("slowdown")),
            f"{job['micro_batch_plan']} (rev {job['revision']})",
            str(job["open_incidents"]) if job["open_incidents"] else "",
        )
    Console().print(table if jobs else "no job is being watched yet")


def print_incidents(incidents: list[dict[str, Any]]) -> None:
    table = Table("incident", "opened", "job", "kind", "state", "suspects", "summary")
    for incident in incidents:
        table.add_row(
            incident["incident_id"],
            _clock(incident["opened_at"]),
            incident["job_id"],
            incident["kind"],
            coloured(incident["state"]),
            suspects(incident),
            incident["summary"],
        )
    Console().print(table if incidents else "no incidents")


def suspects(incident: dict[str, Any]) -> str:
    """``rank 3 (machine-1)``, ``link 0→1``, ..."""
    return ", ".join(
        f"{s['kind']} {s['id']}"
        + (f"→{s['peer']}" if s.get("peer") else "")
        + (f" ({s['machine_id']})" if s.get("machine_id") and s["kind"] != "machine" else "")
        for s in incident["suspects"]
    )


def print_incident(incident: dict[str, Any]) -> None:
    head = Table.grid(padding=(0, 2))
    for name, value in (
        ("job", f"{incident['job_id']} (run {incident['run_id']})"),
        ("state", coloured(incident["state"])),
        ("kind", f"{incident['kind']}, {incident['severity']}"),
        ("suspects", suspects(incident) or "none"),
        ("confidence", f"{incident['confidence']:.2f}"),
        ("onset", _clock(incident["onset_at"])),
        ("detected", _clock(incident["detected_at"])),
        ("cost so far", f"{incident['impact_s']:.1f} s of training"),
    ):
        head.add_row(Text(name, style="dim"), value)
    timeline = Table("time", "state", "by", "what")
    for step in incident["timeline"]:
        timeline.add_row(
            _clock(step["at"]), coloured(step["to_state"]), step["actor"], Text(step["reason"])
        )
    parts: list[Any] = [Text(incident["summary"], style="bold"), head, timeline]
    if incident["plans"]:
        parts.append(_plans(incident["plans"]))
    if incident["effect"]:
        parts.append(_effect(incident["effect"]))
    Console().print(Panel(Group(*parts), title=f"incident {incident['incident_id']}"))


def print_plans(plans: list[dict[str, Any]]) -> None:
    Console().print(_plans(plans) if plans else "no plans")


def _plans(plans: list[dict[str, Any]]) -> Table:
    table = Table("job", "revision", "kind", "state", "micro-batches", "predicted step", "detail")
    for plan in plans:
        table.add_row(
            plan["job_id"],
            "-" if plan["revision"] is None else str(plan["revision"]),
            plan["kind"],
            plan["state"],
            str(plan["micro_batch_plan"]),
            _seconds(plan["predicted_step_s"]),
            Text(plan["detail"]),
        )
    return table


def _effect(effect: dict[str, float | None]) -> Table:
    table = Table("healthy", "faulty", "healed", "predicted", "slowdown removed", "saved")
    removed = effect.get("slowdown_removed")
    saved = effect.get("seconds_saved")
    table.add_row(
        *(_seconds(effect.get(f"{name}_step_s")) for name in ("healthy", "faulty", "healed")),
        _seconds(effect.get("predicted_step_s")),
        "" if removed is None else f"{removed:.0%}",
        "" if saved is None else f"{saved:.0f} s",
    )
    return table


def _clock(time: str | None) -> str:
    """``2030-01-01 12:00:00`` of an RFC 3339 time."""
    return "" if time is None else time[:19].replace("T", " ")


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g} s"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"

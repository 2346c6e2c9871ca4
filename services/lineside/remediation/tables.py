"""How jobs and incidents look in a terminal. Ids and names are folded, never cut, so that they can be copied;
narrow terminals get fewer columns."""

from datetime import UTC, datetime
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from lineside.remediation.stacks import spans

_WIDE = 110
"""From this many characters on there is room for every column."""
_SHORT_ID = 8
"""Of an incident's 36 characters; ``incidents show`` takes the beginning of an id."""
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

Row = dict[str, str | Text]


def coloured(state: str) -> Text:
    return Text(state, style=_COLOURS.get(state, ""))


def print_jobs(jobs: list[dict[str, Any]]) -> None:
    console = Console()
    rows = [_job(job) for job in jobs]
    drop = () if console.width >= _WIDE else ("ranks", "step time")
    console.print(_table(rows, drop) if jobs else "no job is being watched yet")


def _job(job: dict[str, Any]) -> Row:
    health = job["health"] or {}
    counts = job["micro_batch_plan"]
    return {
        "job": job["job_id"],
        "state": coloured(job["state"]),
        "ranks": str(job["world_size"] or "-"),
        "step": str(health.get("step", "")),
        "step time": _seconds(health.get("step_s")),
        "slowdown": _ratio(health.get("slowdown")),
        "plan": f"{counts} (rev {job['revision']})" if counts else "-",
        "incidents": str(job["open_incidents"] or ""),
    }


def print_incidents(incidents: list[dict[str, Any]]) -> None:
    console = Console()
    now = datetime.now(UTC).isoformat()
    rows = [_incident(incident, now) for incident in incidents]
    drop = () if console.width >= _WIDE else ("kind", "suspects")
    console.print(_table(rows, drop) if incidents else "no incidents")


def _incident(incident: dict[str, Any], now: str) -> Row:
    return {
        "incident": incident["incident_id"][:_SHORT_ID],
        "opened": _time_or_date(incident["opened_at"], now),
        "job": incident["job_id"],
        "kind": incident["kind"],
        "state": coloured(incident["state"]),
        "suspects": suspects(incident),
        "summary": incident["summary"],
    }


def suspects(incident: dict[str, Any]) -> str:
    """``rank 3 (machine-1)``, ``link 0→1``, ..."""
    return ", ".join(
        f"{s['kind']} {s['id']}"
        + (f"→{s['peer']}" if s.get("peer") else "")
        + (f" ({s['machine_id']})" if s.get("machine_id") and s["kind"] != "machine" else "")
        for s in incident["suspects"]
    )


def print_incident(incident: dict[str, Any]) -> None:
    console = Console()
    head = Table.grid(padding=(0, 2))
    facts: list[tuple[str, str | Text]] = [
        ("job", f"{incident['job_id']} (run {incident['run_id']})"),
        ("state", coloured(incident["state"])),
        ("kind", f"{incident['kind']}, {incident['severity']}"),
        ("suspects", suspects(incident) or "none"),
        ("confidence", f"{incident['confidence']:.2f}"),
        ("onset", _clock(incident["onset_at"])),
        ("detected", _clock(incident["detected_at"])),
        ("cost so far", f"{incident['impact_s']:.1f} s of training"),
        *(("not done", _proposal(p)) for p in incident["plans"] if p["state"] == "proposed"),
    ]
    for name, value in facts:
        head.add_row(Text(name, style="dim"), value if isinstance(value, Text) else Text(value))
    timeline = _table([_step(step, incident["onset_at"]) for step in incident["timeline"]])
    parts: list[Any] = [Text(incident["summary"], style="bold"), head, "", timeline]
    if incident["plans"]:
        parts += ["", _plans(incident["plans"], console.width, ("job",))]
    if incident["evidence"]:
        parts += ["", _evidence(incident["evidence"])]
    if incident["effect"]:
        parts += ["", _effect(incident["effect"])]
    console.print(Panel(Group(*parts), title=f"incident {incident['incident_id']}"))


def _proposal(plan: dict[str, Any]) -> str:
    """What observe mode left undone."""
    step_s = plan["predicted_step_s"]
    hoped = "" if step_s is None else f" for steps of {_seconds(step_s)}"
    return f"mode observe: would have changed micro-batches to {plan['micro_batch_plan']}{hoped}"


def _step(step: dict[str, Any], onset: str) -> Row:
    return {
        "time": _clock(step["at"]).removeprefix(f"{onset[:10]} "),
        "state": coloured(step["to_state"]),
        "by": step["actor"],
        "what": step["reason"],
    }


def print_plans(plans: list[dict[str, Any]]) -> None:
    console = Console()
    console.print(_plans(plans, console.width) if plans else "no plans")


def _plans(plans: list[dict[str, Any]], width: int, drop: tuple[str, ...] = ()) -> Table:
    rows: list[Row] = [
        {
            "job": plan["job_id"],
            "rev": "-" if plan["revision"] is None else str(plan["revision"]),
            "kind": plan["kind"],
            "state": plan["state"],
            "micro-batches": str(plan["micro_batch_plan"]),
            "predicted": _seconds(plan["predicted_step_s"]),
            "detail": plan["detail"] or plan["reason"],
        }
        for plan in plans
    ]
    return _table(rows, drop if width >= _WIDE else (*drop, "kind", "predicted"))


def _evidence(asked: list[dict[str, Any]]) -> Table:
    """What the faults wanted to know: how many ranks have answered, or why nobody was asked."""
    rows: list[Row] = [
        {
            "evidence": one["kind"],
            "detail": one["refusal"] or f"answered by {one['answered']} ranks",
            "request": one["request_id"][:_SHORT_ID],
        }
        for one in asked
    ]
    return _table(rows)


def print_request(asked: dict[str, Any]) -> None:
    """The answers to a request: stacks by place, anything else by rank."""
    parts: list[Any] = []
    for group in asked["stacks"]:
        parts.append(Text(f"ranks {spans(group['ranks'])}", style="bold"))
        parts += [Text(f"    {frame}") for frame in group["frames"] or ["(no Python frame)"]]
    if told := [r for r in asked["replies"] if not (r["ok"] and asked["stacks"])]:
        parts.append(_table([_reply(reply) for reply in told]))
    if asked["waiting_for"]:
        parts.append(Text(f"no answer of ranks {spans(asked['waiting_for'])}", style="red"))
    Console().print(Group(*parts))


def _reply(reply: dict[str, Any]) -> Row:
    found = ", ".join(f"{name} {value}" for name, value in reply["result"].items())
    return {
        "rank": "all" if reply["rank"] is None else str(reply["rank"]),
        "machine": reply["machine_id"],
        "ok": Text("yes", style="green") if reply["ok"] else Text("no", style="red"),
        "detail": found or reply["detail"],
    }


def _effect(effect: dict[str, float | None]) -> Table:
    removed = effect.get("slowdown_removed")
    saved = effect.get("seconds_saved")
    times = ("healthy", "faulty", "healed", "predicted")
    row: Row = {name: _seconds(effect.get(f"{name}_step_s")) for name in times}
    row["slowdown removed"] = "" if removed is None else f"{removed:.0%}"
    row["saved"] = "" if saved is None else f"{saved:.0f} s"
    return _table([row])


_PROSE = frozenset({"suspects", "summary", "by", "what", "plan", "micro-batches", "detail"})
"""Columns that give way first, by taking several lines."""
_WHOLE = 24
"""Cells of so many characters stay on one line in the other columns."""


def _table(rows: list[Row], drop: tuple[str, ...] = ()) -> Table:
    """One line of headings, then ``rows``, which all have the same columns, less those in ``drop``."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, collapse_padding=True)
    names = [name for name in rows[0] if name not in drop] if rows else []
    for name in names:
        whole = name not in _PROSE and all(len(row[name]) <= _WHOLE for row in rows)
        table.add_column(name, overflow="ellipsis" if whole else "fold", no_wrap=whole)
    for row in rows:
        cells = [row[name] for name in names]
        table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in cells))
    return table


def _clock(time: str) -> str:
    """``2030-01-01 12:00:00`` of an RFC 3339 time (UTC)."""
    return time[:19].replace("T", " ")


def _time_or_date(time: str, now: str) -> str:
    """
    >>> _time_or_date("2030-01-01T12:00:00Z", "2030-01-01T13:00:00Z")
    '12:00:00'
    >>> _time_or_date("2030-01-01T12:00:00Z", "2030-01-02T00:00:00Z")
    '2030-01-01'
    """
    return time[11:19] if time[:10] == now[:10] else time[:10]


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.3g} s"


def _ratio(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}x"

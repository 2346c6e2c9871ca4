"""The demo's face: a live timeline on a terminal, plain lines elsewhere, tables at the end."""

import time
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

_BARS = "▁▂▃▄▅▆▇█"


class Screen:
    """Events scroll, one status line moves. Use as a context manager."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._began = time.monotonic()
        self._events: list[tuple[float, str, str]] = []
        self._step_times: list[float] = []
        self._status = "starting"
        self._live = Live(console=console, refresh_per_second=4, transient=True)

    def __enter__(self) -> "Screen":
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()
        if self._console.is_terminal:
            self._console.print(self._timeline())

    def event(self, text: str, style: str = "") -> None:
        """Something happened."""
        at_s = time.monotonic() - self._began
        self._events.append((at_s, text, style))
        if self._console.is_terminal:
            self._refresh()
        else:
            line = f"{at_s:6.1f} s  {text}"
            self._console.print(line, highlight=False, markup=False, soft_wrap=True)

    def status(self, text: str, step_times_s: list[float]) -> None:
        """What is going on now, with the newest step times."""
        self._status, self._step_times = text, step_times_s[-60:]
        self._refresh()

    def _refresh(self) -> None:
        if self._console.is_terminal:
            moving = Text.assemble(
                ("● ", "green"), self._status, "   ", (_sparkline(self._step_times), "cyan")
            )
            self._live.update(
                Panel(Group(self._timeline(), Text(""), moving), title="lineside demo")
            )

    def _timeline(self) -> Table:
        table = Table.grid(padding=(0, 2))
        table.add_column(justify="right", style="dim")
        table.add_column()
        for at_s, text, style in self._events:
            table.add_row(f"{at_s:.1f} s", Text(text, style))
        return table


def _sparkline(values: list[float]) -> str:
    if not values:
        return ""
    top = max(values)
    return "".join(_BARS[min(7, int(7.999 * value / top))] for value in values)


def results_table(summary: dict[str, Any]) -> Table:
    """Step times and what became of the slowdown."""
    table = Table("step time", "median", "steps", title="What it did to the run")
    rows = (
        ("healthy", "healthy"),
        ("with the fault", "faulty"),
        ("healed", "healed"),
        ("ideal split", "ideal"),
    )
    for label, key in rows:
        value = summary.get(f"{key}_step_s")
        if value is not None:
            table.add_row(label, f"{1000 * value:.0f} ms", str(summary["steps"].get(key, "")))
    for label, key in (
        ("slowdown removed", "slowdown_removed"),
        ("of what the ideal split removes", "of_ideal"),
    ):
        value = summary.get(key)
        if value is not None:
            table.add_row(label, f"{100 * value:.0f} %", "")
    return table


def incident_table(incident: dict[str, Any]) -> Table:
    """The incident's timeline as the API reads it from SQL. Times in UTC."""
    title = f"Incident {incident['incident_id']}, as the database holds it"
    table = Table("time (UTC)", "state", "by", "why", title=title)
    for row in incident["timeline"]:
        clock = row["at"].partition("T")[2].partition(".")[0].rstrip("Z")
        table.add_row(clock, row["to_state"], row["actor"], row["reason"])
    return table

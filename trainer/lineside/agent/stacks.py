"""py-spy's answer as evidence: equal stacks once, the main thread's first. Pure."""

from typing import Any

import msgspec

_MOST_FRAMES, _MOST_STACKS = 100, 64


class NotReadable(Exception):
    """Output that is not what was expected."""


class _Frame(msgspec.Struct):
    name: str
    filename: str
    short_filename: str | None = None
    line: int = 0


class _Thread(msgspec.Struct):
    frames: list[_Frame]
    os_thread_id: int | None = None
    thread_name: str | None = None
    active: bool = False
    owns_gil: bool = False


def grouped(out: bytes, pid: int, stopped: bool) -> dict[str, Any]:
    """What ``py-spy dump --json`` printed: ``stacks`` with the threads that share each, innermost frame
    first. Raises ``NotReadable``.

    >>> frame = '{"name": "step", "filename": "/a/train.py", "short_filename": "train.py", "line": 7}'
    >>> thread = '{"os_thread_id": 5, "frames": [%s], "active": true, "owns_gil": true}' % frame
    >>> grouped(f"[{thread}]".encode(), 5, False)["stacks"][0]["frames"]
    ['step (train.py:7)']
    """
    try:
        threads = msgspec.json.decode(out, type=list[_Thread])
    except msgspec.MsgspecError as error:
        raise NotReadable(f"py-spy's answer cannot be read: {error}") from error
    groups: dict[tuple[str, ...], dict[str, Any]] = {}
    for thread in sorted(threads, key=lambda t: t.os_thread_id != pid):
        frames = tuple(_said(frame) for frame in thread.frames[:_MOST_FRAMES])
        group = groups.setdefault(
            frames, {"threads": [], "active": 0, "owns_gil": False, "frames": list(frames)}
        )
        group["threads"].append(_name(thread, pid))
        group["active"] += thread.active
        group["owns_gil"] |= thread.owns_gil
    stacks = list(groups.values())[:_MOST_STACKS]
    return {"pid": pid, "stopped": stopped, "threads": len(threads), "stacks": stacks}


def _said(frame: _Frame) -> str:
    return f"{frame.name} ({frame.short_filename or frame.filename}:{frame.line})"


def _name(thread: _Thread, pid: int) -> str:
    if thread.os_thread_id == pid:
        return "main"
    return thread.thread_name or f"thread {thread.os_thread_id}"


def why_not(stderr: str, code: int) -> str:
    """A failed child's own words in one line, with what helps where we know it."""
    lines = [line.strip() for line in stderr.splitlines()]
    causes = [line.split(":", 1)[1].strip() for line in lines if line[:2] in ("0:", "1:", "2:")]
    first = next((line for line in lines if line), f"exit code {code}")
    backtrace = lines.index("Stack backtrace:") if "Stack backtrace:" in lines else len(lines)
    causes = [cause for cause in causes if cause in "\n".join(lines[:backtrace])]
    text = ": ".join([first.removeprefix("Error: ").removeprefix("error: "), *causes])[:500]
    if "ermission" in text or "EPERM" in text or "not permitted" in text:
        text += "; the agent may not trace its ranks: give it CAP_SYS_PTRACE"
        text += ", or set kernel.yama.ptrace_scope=0"
    return text

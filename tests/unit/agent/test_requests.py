"""Which requests an agent answers, which it refuses and why; the evidence itself is of real processes."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from lineside.agent import gemm
from lineside.agent.ranks import RankProcess, stop
from lineside.agent.requests import Clerk
from lineside.agent.spec import AgentSpec
from lineside.agent.stacks import NotReadable, grouped, why_not
from lineside.contracts import Reply, Request

NOW = time.time_ns()
REQUEST = Request(
    request_id="r-0", fault_id="f", job_id="gpt", run_id="run-1", generation=2, kind="dump_stacks",
    expires_ns=NOW + 10**12,
)  # fmt: skip

PROGRAM = """
import threading, time
def waits_for_its_peer():
    time.sleep(300)
for _ in range(3):
    threading.Thread(target=waits_for_its_peer, daemon=True).start()
print("up", flush=True)
def trains():
    while True:
        sum(range(10000)); time.sleep(0.01)
trains()
"""


def request(number: int = 0, **changes: Any) -> Request:
    return msgspec.structs.replace(REQUEST, request_id=f"r-{number}", **changes)


@pytest.fixture
def clerk(spec: AgentSpec) -> Clerk:
    return Clerk(spec, started_ns=NOW)


@pytest.fixture
def ranks(spec: AgentSpec) -> Iterator[Callable[..., dict[int, RankProcess]]]:
    """Starts the spec's two ranks with a command, and ends them after the test."""
    started: list[RankProcess] = []

    def start(command: list[str]) -> dict[int, RankProcess]:
        own = msgspec.structs.replace(spec, command=command)
        started.extend(RankProcess(own, local, dict(os.environ)) for local in range(2))
        until = time.monotonic() + 30
        while time.monotonic() < until:
            files = [spec.folder / f"rank-{p.rank}.out" for p in started]
            if all("up" in f.read_text() for f in files):
                break
            time.sleep(0.02)
        return {process.rank: process for process in started}

    yield start
    stop(started, 0.1)


def answers(clerk: Clerk, ranks: dict[int, RankProcess], now_ns: int = NOW) -> list[Reply]:
    """All replies until the clerk is idle."""
    replies: list[Reply] = []
    until = time.monotonic() + 60
    while True:
        replies += clerk.work(ranks, now_ns)
        if not clerk.busy:
            return replies
        assert time.monotonic() < until
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("changes", "refusal", "said"),
    [
        ({"kind": "read_minds"}, None, "cannot answer 'read_minds'; it can answer dump_stacks"),
        ({"kind": "trace_flows"}, None, "cannot answer"),
        ({"generation": 1}, None, "generation 2, not 1"),
        ({"expires_ns": NOW + 10**9}, None, "it expired 1.0 s ago"),
        ({}, "it is not signed", "it is not signed"),
    ],
)
def test_what_is_not_answered_is_refused_with_the_reason(
    clerk: Clerk, changes: dict[str, Any], refusal: str | None, said: str
) -> None:
    [reply] = clerk.take(request(**changes), refusal, NOW + 2 * 10**9)
    assert not reply.ok and said in reply.detail
    assert (reply.rank, reply.machine_id, reply.request_id) == (-1, "machine-0", "r-0")
    assert (reply.fault_id, reply.kind) == ("f", changes.get("kind", "dump_stacks"))
    assert not clerk.busy


def test_what_concerns_others_or_the_past_is_passed_over(clerk: Clerk) -> None:
    for other in (request(run_id="run-0"), request(ranks=[0, 9]), request(expires_ns=NOW - 1)):
        assert clerk.take(other, None, NOW) == [] and not clerk.busy


def test_a_request_is_carried_out_once_and_a_forged_one_does_not_block_it(clerk: Clerk) -> None:
    assert clerk.take(request(), "it is not signed", NOW)[0].detail == "it is not signed"
    clerk.take(request(), None, NOW)
    assert clerk.busy
    replies = clerk.work({}, NOW)
    assert [(r.rank, r.ok, r.detail) for r in replies] == [
        (4, False, "rank 4 does not run"),
        (5, False, "rank 5 does not run"),
    ]
    assert clerk.take(request(), None, NOW) == [] and not clerk.busy


def test_too_many_are_refused_and_those_who_wait_at_the_end_are_told(clerk: Clerk) -> None:
    refused = [clerk.take(request(n), None, NOW) for n in range(130)]
    assert sum(len(replies) for replies in refused) == 2
    assert "answers are waited for" in refused[-1][0].detail
    told = clerk.close(NOW)
    assert len(told) == 256 and {reply.detail for reply in told} == {"the agent ends"}


def test_stacks_of_all_ranks_equal_ones_once_also_of_a_stopped_one(
    clerk: Clerk, ranks: Callable[..., dict[int, RankProcess]]
) -> None:
    running = ranks([sys.executable, "-c", PROGRAM])
    os.kill(running[5].pid, signal.SIGSTOP)
    clerk.take(request(), None, NOW)
    replies = {reply.rank: reply for reply in answers(clerk, running)}
    assert set(replies) == {4, 5}
    for rank, reply in replies.items():
        assert reply.ok, reply.detail
        assert (reply.result["pid"], reply.result["threads"]) == (running[rank].pid, 4)
        assert reply.result["stopped"] == (rank == 5)
        main, waiting = reply.result["stacks"]
        assert main["threads"] == ["main"] and any("trains" in f for f in main["frames"])
        assert len(waiting["threads"]) == 3 and any("waits_for" in f for f in waiting["frames"])
    clerk.take(request(1), None, NOW + 10**8)
    again = answers(clerk, running, NOW + 10**8)
    assert {reply.detail for reply in again} == {
        f"rank {rank} was asked for dump_stacks a moment ago" for rank in (4, 5)
    }
    clerk.take(request(2, ranks=[4]), None, NOW + 2 * 10**9)
    [later] = answers(clerk, running, NOW + 2 * 10**9)
    assert later.ok


def test_what_runs_no_python_says_so(
    clerk: Clerk, ranks: Callable[..., dict[int, RankProcess]]
) -> None:
    running = ranks(["sh", "-c", "echo up; exec sleep 300"])
    clerk.take(request(ranks=[4]), None, NOW)
    [reply] = answers(clerk, running)
    assert not reply.ok and "python" in reply.detail and "backtrace" not in reply.detail


def test_a_shell_around_the_program_is_looked_through(
    clerk: Clerk, ranks: Callable[..., dict[int, RankProcess]], tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(PROGRAM)
    running = ranks(["sh", "-c", f"{sys.executable} {script}; exit 0"])
    clerk.take(request(ranks=[4]), None, NOW)
    [reply] = answers(clerk, running)
    assert reply.ok and reply.result["pid"] != running[4].pid, reply.detail
    assert any("train.py" in frame for frame in reply.result["stacks"][0]["frames"])


def test_compute_is_validated_beside_the_rank(
    clerk: Clerk, ranks: Callable[..., dict[int, RankProcess]]
) -> None:
    running = ranks([sys.executable, "-c", PROGRAM])
    ask = {"kind": "validate_compute", "ranks": [4], "max_pause_s": 1.0}
    clerk.take(request(0, parameters={"seconds": 0.05, "device": "cpu"}, **ask), None, NOW)
    [reply] = answers(clerk, running)
    assert reply.ok and reply.result["wrong"] == 0 and reply.result["gflops"] > 0, reply.detail
    for number, (parameters, said) in enumerate(
        [
            ({"seconds": 2.0}, "max_pause_s is 1"),
            ({"seconds": 99}, "at most 5"),
            ({"seconds": "x"}, "at most 5"),
        ],
        start=1,
    ):
        now = NOW + number * 10**10
        clerk.take(request(number, parameters=parameters, **ask), None, now)
        [reply] = answers(clerk, running, now)
        assert not reply.ok and said in reply.detail


def test_a_wrong_product_is_counted() -> None:
    products = iter([9, 9, 7, 9])
    found = gemm.measure(lambda: next(products, 9), lambda product: product != 9, 0.0, 4)
    assert (found["gemms"], found["wrong"]) == (2, 1)


def test_products_by_torch_are_exact_too() -> None:
    found = gemm.on_gpu(
        "cpu", 0.01, size=96
    )  # the code that a GPU runs, on the device that is here
    assert found["wrong"] == 0 and found["gemms"] >= 2


def test_a_refused_trace_says_what_would_help() -> None:
    said = "Permission Denied: Try running again with elevated permissions by going 'sudo env'"
    assert "CAP_SYS_PTRACE" in why_not(said, 1)
    failed = (
        "Error: Failed\n\nCaused by:\n    0: first\n    1: second\n\nStack backtrace:\n   0: x::y\n"
    )
    assert why_not(failed, 1) == "Failed: first: second"
    assert why_not("", 3) == "exit code 3"


def test_an_answer_that_is_none_is_no_result() -> None:
    with pytest.raises(NotReadable):
        grouped(b"<html>", 1, False)

"""Writes what a run's recorders hold as Flight Recorder dumps, in both dialects."""

import json
import pickle
from pathlib import Path
from typing import Any

from tests.unit.mycroft.hangs import Run

NCCL_NAMES = {"all_gather": "_all_gather_base", "reduce_scatter": "_reduce_scatter_base"}


def nccl_dump(run: Run, rank: int, *, active_only: bool = True) -> dict[str, Any]:
    issued, done = run.settle()
    finished = max(0, done[rank] - run.forgets.get(rank, 0))
    keys = sorted({c.key for calls in run.program.values() for c in calls})
    own = [key for key in keys if rank in key[0]]
    world = sorted(run.program)
    names = {key: str(1 + keys.index(key)) for key in own}
    seen: dict[Any, int] = {}
    completed = dict.fromkeys(range(len(own) + 1), 0)
    entries = []
    for record, call in enumerate(run.program[rank][: issued[rank]]):
        seen[call.key] = seen.get(call.key, 0) + 1
        seq = seen[call.key]
        number = own.index(call.key) + 1
        if record < finished:
            completed[number] = seq
        other = call.group[1 - call.group.index(rank)] if call.key[2] else -1
        sends = call.group[0] == rank
        arrow = f"{'send' if sends else 'recv'} {call.group.index(rank)}{'->' if sends else '<-'}"
        name = (
            f"{arrow}{call.group.index(other)}" if call.key[2] else NCCL_NAMES.get(call.op, call.op)
        )
        if active_only and record < finished:
            continue
        entries.append({
            "record_id": record, "pg_id": number, "process_group": (names[call.key], f"pg{names[call.key]}"),
            "collective_seq_id": 0 if call.key[2] else seq, "p2p_seq_id": seq if call.key[2] else 0,
            "op_id": seq, "profiling_name": f"nccl:{name}", "time_created_ns": 10**18 + record,
            "input_sizes": [[call.size]], "input_dtypes": ["Byte"], "output_sizes": [[call.size]],
            "output_dtypes": ["Byte"], "state": "completed" if record < finished else "scheduled",
            "time_discovered_started_ns": None, "time_discovered_completed_ns": None,
            "retired": record < finished, "timeout_ms": 600000, "is_p2p": call.key[2],
        })  # fmt: skip
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(world)}}
    config |= {
        names[k]: {"name": names[k], "desc": f"pg{names[k]}", "ranks": str(list(k[0]))} for k in own
    }
    return {
        "version": "2.10",
        "pg_config": config,
        "pg_status": {
            str(number): {
                "last_enqueued_collective": count, "last_started_collective": -1,
                "last_completed_collective": count,
            }
            for number, count in completed.items()
        },
        "entries": entries,
    }  # fmt: skip


def write(folder: Path, dumps: dict[int, dict[str, Any]], *, as_json: bool = False) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for rank, dump in dumps.items():
        content = json.dumps(dump).encode() if as_json else pickle.dumps(dump)
        (folder / f"nccl_trace_rank_{rank}").write_bytes(content)

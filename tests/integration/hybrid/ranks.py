"""Forks ranks of a scenario from a parent that has imported torch once (that costs seconds per process).

Run as a script with one JSON line per launch on stdin: ``{"scenario", "world", "folder"}``. It answers with
a line of exit codes when all ranks have ended. Each rank writes what its scenario returned to
``folder/result.<rank>``. Its own end (stdin closed, or killed) ends the ranks too.
"""

import ctypes
import json
import os
import signal
import sys
import traceback
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

sys.path.insert(0, str(Path(__file__).parent))
import scenarios

TIMEOUT = timedelta(seconds=90)


def rank_main(rank: int, scenario: str, world: int, folder: Path) -> None:
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=world, timeout=TIMEOUT
    )
    result = getattr(scenarios, scenario)(folder)
    (folder / f"result.{rank}").write_text(json.dumps(result))
    dist.barrier()


def main() -> None:
    zygote = os.getpid()
    print("ready", flush=True)
    for line in sys.stdin:
        wanted = json.loads(line)
        children = []
        for rank in range(wanted["world"]):
            child = os.fork()
            if child == 0:
                ctypes.CDLL(None).prctl(1, signal.SIGKILL)
                if os.getppid() != zygote:
                    os._exit(1)
                try:
                    rank_main(rank, wanted["scenario"], wanted["world"], Path(wanted["folder"]))
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            children.append(child)
        print(
            json.dumps([os.waitstatus_to_exitcode(os.waitpid(c, 0)[1]) for c in children]),
            flush=True,
        )


if __name__ == "__main__":
    main()

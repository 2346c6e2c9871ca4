"""A launcher of ranks that costs one import of torch for the whole folder."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest


class Launcher:
    """One launch at a time: ``start``, then ``wait`` for what each rank's scenario returned."""

    def __init__(self) -> None:
        self._zygote = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("ranks.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._answer() == "ready"

    def start(self, scenario: str, folder: Path, world: int = 4) -> None:
        assert self._zygote.stdin
        wanted = {"scenario": scenario, "world": world, "folder": str(folder)}
        print(json.dumps(wanted), file=self._zygote.stdin, flush=True)

    def wait(self, folder: Path, world: int = 4) -> list[dict[str, Any]]:
        exits = json.loads(self._answer())
        assert exits == [0] * world, "see the ranks' stderr"
        return [json.loads((folder / f"result.{rank}").read_text()) for rank in range(world)]

    def run(self, scenario: str, folder: Path, world: int = 4) -> list[dict[str, Any]]:
        self.start(scenario, folder, world)
        return self.wait(folder, world)

    def close(self) -> None:
        self._zygote.kill()  # its ranks, if any are left, are killed with it
        self._zygote.communicate()

    def _answer(self) -> str:
        assert self._zygote.stdout
        return self._zygote.stdout.readline().strip()


@pytest.fixture(scope="session")
def launcher() -> Iterator[Launcher]:
    launched = Launcher()
    yield launched
    launched.close()

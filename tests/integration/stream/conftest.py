"""Worker processes that never outlive their test."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from lineside.kit import processes

from .harness import Starter


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Starter]:
    """Starts workers; ends those that still run after the test."""
    starter = Starter(tmp_path)
    yield starter
    processes.stop(worker.process for worker in starter.workers)

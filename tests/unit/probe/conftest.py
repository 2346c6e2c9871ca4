"""A probe in a folder of its own, and a reader on its file."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lineside.probe import Probe
from lineside.probe.file import ProbeFile
from lineside.probe.guard import Guard
from lineside.probe.layout import layout
from lineside.probe.reader import ProbeReader

Opened = tuple[Probe, ProbeReader]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Callable[..., Opened]]:
    """Makes (probe, reader) of rank 0; ``ring_slots`` may be small."""
    made: list[tuple[ProbeFile, ProbeReader]] = []

    def make(**shape: int) -> Opened:
        file = ProbeFile(tmp_path, 0, 3, layout(**shape))
        reader = ProbeReader(tmp_path / "probe.0")
        made.append((file, reader))
        return Probe(Guard(file, tmp_path)), reader

    yield make
    for file, reader in made:
        reader.close()
        file.close()

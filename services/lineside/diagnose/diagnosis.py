"""Files that people have -> the root-cause core -> a verdict."""

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lineside.diagnose.dump_evidence import snapshot_of
from lineside.diagnose.dump_ranks import attribute
from lineside.diagnose.flight_recorder import Dump, GroupId, read_dump, read_groups
from lineside.diagnose.safe_load import UnreadableFileError, load
from lineside.mycroft.root_cause import find_root_cause
from lineside.mycroft.verdict import Verdict

GROUPS_FILE = "groups.json"

Table = Mapping[str, GroupId]


class NothingToDiagnoseError(ValueError):
    """No usable dump among the files; ``skipped`` says why for each."""

    def __init__(self, skipped: Mapping[str, str]) -> None:
        super().__init__("no Flight Recorder dump among the files")
        self.skipped = skipped


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """A verdict, and what it rests on: ``dumps`` the file used for each rank, ``skipped`` the reason by
    file."""

    verdict: Verdict
    dumps: Mapping[int, str]
    skipped: Mapping[str, str]

    def as_json(self) -> dict[str, Any]:
        v = self.verdict
        return {
            "kind": v.kind.value,
            "class": v.cause.value if v.cause else None,
            "culprits": list(v.culprits),
            "victims": list(v.victims),
            "groups": list(v.groups),
            "operation": v.operation,
            "confidence": v.confidence,
            "summary": v.summary,
            "evidence": {
                "reasons": list(v.reasons),
                "culprits": [
                    {
                        "rank": b.rank, "class": b.cause.value, "group": b.group,
                        "operation": b.operation, "seq": b.seq,
                    }
                    for b in v.blames
                ],
                **v.details,
                "ranks_reported": len(self.dumps),
                "skipped": dict(self.skipped),
            },
            "missing_ranks": list(v.missing_ranks),
            "skipped_files": list(self.skipped),
        }  # fmt: skip


def diagnose_files(paths: Sequence[Path], groups_file: Path | None = None) -> Diagnosis:
    """The verdict on the dumps in ``paths`` (files, or folders with all that is in them).

    Raises:
        NothingToDiagnoseError: none of the files is a usable dump.
        UnreadableFileError: ``groups_file`` was given and holds no groups.
    """
    given = _groups_in(groups_file) if groups_file else None
    if groups_file and not given:
        raise UnreadableFileError(f"{groups_file} holds no groups")
    skipped: dict[str, str] = {}
    dumps: list[Dump] = []
    for path in _files(paths):
        if path.name == GROUPS_FILE or (groups_file and path.resolve() == groups_file.resolve()):
            continue
        try:
            dumps.append(read_dump(path))
        except UnreadableFileError as error:
            skipped[str(path)] = str(error)
    beside: dict[Path, Table] = {}
    tables = [_table(dump, given, beside) for dump in dumps]
    found = attribute(dumps, tables)
    placed = found.placed
    for dump, rank in found.superseded:
        skipped[str(dump.path)] = f"a second dump of rank {rank}; {placed[rank].path} is used"
    for dump in found.unplaced:
        skipped[str(dump.path)] = "which rank wrote it cannot be told: put the rank in its name"
    if not placed:
        raise NothingToDiagnoseError(skipped)
    by_dump = {id(dump): table for dump, table in zip(dumps, tables, strict=True)}
    snapshot = snapshot_of(
        placed,
        {rank: by_dump[id(dump)] for rank, dump in placed.items()},
        complete=not found.unplaced,
    )
    return Diagnosis(
        find_root_cause(snapshot),
        {rank: str(placed[rank].path) for rank in sorted(placed)},
        dict(sorted(skipped.items())),
    )


def _files(paths: Iterable[Path]) -> list[Path]:
    """All files, each once, in an order that does not depend on how they were named on the command line."""
    found: dict[Path, Path] = {}
    for path in paths:
        inside = (
            [Path(folder) / name for folder, _, names in os.walk(path) for name in names]
            if path.is_dir()
            else [path]
        )
        for file in inside:
            found.setdefault(file.resolve(), file)
    return [found[key] for key in sorted(found)]


def _table(dump: Dump, given: Table | None, beside: dict[Path, Table]) -> Table:
    """The groups that hold for ``dump``: its own, else those given, else those of its folder or the one
    above."""
    folder = dump.path.resolve().parent
    if given is None and folder not in beside:
        places = (folder / GROUPS_FILE, folder.parent / GROUPS_FILE)
        beside[folder] = next((t for t in map(_groups_in, places) if t), {})
    return {**(beside[folder] if given is None else given), **dump.groups}


def _groups_in(path: Path) -> Table:
    """Groups in a file; none where it cannot be read."""
    if not path.is_file():
        return {}
    try:
        content = load(path)
    except UnreadableFileError:
        return {}
    inner = content.get("groups") if isinstance(content, dict) else None
    return read_groups(inner if isinstance(inner, dict) and "ranks" not in inner else content)

"""The walls of the house: which room may know what. import-linter holds the arrows between rooms; here stand
the rules that it cannot express."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOTS = [ROOT / name / "lineside" for name in ("shared", "services", "trainer")]

SHELLS = {
    "falcon": {"__main__", "processor", "settings"},
    "minder": {"__main__", "processor", "settings"},
    "mycroft": {"__main__", "processor", "settings"},
}
"""Rooms whose every other module is pure."""

PURE_PATHS = [
    "services/lineside/remediation/correlation.py",
    "services/lineside/remediation/incident.py",
    "services/lineside/remediation/ladder.py",
    "services/lineside/remediation/policy.py",
    "services/lineside/remediation/verification.py",
    "services/lineside/remediation/plans",
    "services/lineside/stream/detector.py",
    "services/lineside/stream/senders.py",
]

PURE_MAY_IMPORT = {
    "abc", "bisect", "collections", "dataclasses", "enum", "functools", "heapq", "itertools", "math",
    "msgspec", "numpy", "operator", "scipy", "statistics", "struct", "typing", "uuid", "zlib",
}  # fmt: skip
"""No clock, logger, Kafka, SQL, environment or threads."""

PURE_OF_STREAM = ("lineside.stream.detector", "lineside.stream.senders")

ONLY_IN = {"faust": "stream", "aiokafka": "stream", "mode": "stream", "confluent_kafka": "bus"}


def modules() -> Iterator[tuple[Path, str, ast.Module]]:
    """(file, room, syntax tree) of every module of the house."""
    for root in ROOTS:
        for file in sorted(root.rglob("*.py")):
            room = file.relative_to(root).parts[0]
            yield file, room, ast.parse(file.read_text())


def imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.module


def test_the_namespace_has_no_init_and_no_room_stands_twice() -> None:
    rooms: dict[str, Path] = {}
    for root in ROOTS:
        assert not (root / "__init__.py").exists(), "a stray __init__.py hides the other two roots"
        for room in root.iterdir():
            if room.is_dir() and any(room.glob("*.py")):
                assert room.name not in rooms, f"{room} and {rooms.get(room.name)}"
                rooms[room.name] = room
    assert {"contracts", "bus", "kit", "stream", "falcon", "remediation", "probe"} <= set(rooms)


def pure_modules() -> list[Path]:
    found = [
        file for file, room, _ in modules() if room in SHELLS and file.stem not in SHELLS[room]
    ]
    for path in PURE_PATHS:
        place = ROOT / path
        assert place.exists(), f"{path} is gone: change the list"
        found += sorted(place.rglob("*.py")) if place.is_dir() else [place]
    return found


@pytest.mark.parametrize("file", pure_modules(), ids=lambda f: str(f.relative_to(ROOT)))
def test_cores_are_pure(file: Path) -> None:
    own = ".".join(file.relative_to(ROOT / "services").with_suffix("").parts[:2])
    for name in imports(ast.parse(file.read_text())):
        allowed = (
            name.startswith(("lineside.contracts", *PURE_OF_STREAM, own))
            if name.startswith("lineside")
            else name.split(".")[0] in PURE_MAY_IMPORT
        )
        assert allowed, (
            f"{file.relative_to(ROOT)} imports {name}: cores know no clock, Kafka or environment"
        )


def test_faust_and_kafka_clients_stay_in_their_rooms() -> None:
    for file, room, tree in modules():
        for name in imports(tree):
            home = ONLY_IN.get(name.split(".")[0])
            assert home in (None, room), f"{file.relative_to(ROOT)} imports {name}"


def test_every_module_says_what_it_is_for() -> None:
    for file, _, tree in modules():
        assert ast.get_docstring(tree) or not tree.body, file.relative_to(ROOT)


def test_kit_has_four_files_at_most() -> None:
    kit = [file for file in (ROOT / "shared/lineside/kit").glob("*.py") if file.stem != "__init__"]
    assert len(kit) <= 4, sorted(file.name for file in kit)


def test_the_probe_brings_nothing_heavy_into_a_training_process() -> None:
    heavy = [
        "torch",
        "faust",
        "confluent_kafka",
        "sqlalchemy",
        "pydantic",
        "rich",
        "asyncio",
        "psutil",
        "cryptography",
    ]
    program = f"import sys, lineside.probe; print([m for m in {heavy} if m in sys.modules])"
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"


def test_lineside_run_needs_only_the_agents_packages() -> None:
    services_only = ["faust", "sqlalchemy", "fastapi", "alembic", "scipy", "torch"]
    program = (
        "import sys, lineside.cli.main, lineside.agent.commands, lineside.agent.__main__;"
        f"print([m for m in {services_only} if m in sys.modules])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert answer.stdout.strip() == "[]"

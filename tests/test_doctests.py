"""The examples in docstrings run, in every room."""

import doctest
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = [
    ".".join(file.relative_to(ROOT / root).with_suffix("").parts)
    for root in ("shared", "services", "trainer")
    for file in sorted((ROOT / root / "lineside").rglob("*.py"))
    if ">>> " in file.read_text()
]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name: str) -> None:
    failed, _ = doctest.testmod(importlib.import_module(name))
    assert failed == 0

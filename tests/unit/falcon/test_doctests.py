"""The examples in the room's docstrings run."""

import doctest
import importlib
import pkgutil

import pytest

import lineside.falcon

MODULES = [m.name for m in pkgutil.iter_modules(lineside.falcon.__path__) if m.name[:2] != "__"]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    failed, _ = doctest.testmod(importlib.import_module(f"lineside.falcon.{name}"))
    assert failed == 0

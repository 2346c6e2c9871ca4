"""Scenes on fresh databases."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from scene import Scene


@pytest.fixture
def make_scene(tmp_path):
    """``make_scene(mode=..., changes={...})``: the service over a fresh database."""
    made = []

    def make(**options) -> Scene:
        made.append(Scene(tmp_path / f"history-{len(made)}.db", **options))
        return made[-1]

    yield make
    for scene in made:
        scene.close()


@pytest.fixture
def scene(make_scene) -> Scene:
    return make_scene()

"""However a step's micro-batches are split over replicas and stages, it is the same training."""

from typing import Any

import pytest


@pytest.fixture(scope="module")
def ranks(launcher: Any, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = launcher.run("trajectories", tmp_path_factory.mktemp("run"))
    return found


def test_all_ranks_see_the_same_loss_and_it_falls(ranks: list[dict[str, Any]]) -> None:
    assert all(rank["losses"] == ranks[0]["losses"] for rank in ranks)
    losses = ranks[0]["losses"]["even"]
    assert losses[-1] < 0.9 * losses[0]


@pytest.mark.parametrize("split", ["even", "uneven", "changing", "deep", "wide"])
def test_every_split_trains_as_one_process_does(ranks: list[dict[str, Any]], split: str) -> None:
    losses, norms = ranks[0]["losses"], ranks[0]["norms"]
    assert losses[split] == pytest.approx(losses["plain"], rel=1e-11)
    assert norms[split] == pytest.approx(norms["plain"], rel=1e-9)


def test_the_parameters_agree_too_and_a_naive_mean_would_not(ranks: list[dict[str, Any]]) -> None:
    for rank in ranks:
        assert rank["apart"]["uneven"] < 1e-12
        assert rank["apart"]["changing"] < 1e-12
        assert rank["apart"]["naive"] > 1e-3


def test_the_naive_mean_shows_in_the_loss(ranks: list[dict[str, Any]]) -> None:
    losses = ranks[0]["losses"]
    assert abs(losses["naive"][-1] - losses["plain"][-1]) > 1e-3


def test_training_does_not_import_the_compiler(ranks: list[dict[str, Any]]) -> None:
    """torch._dynamo or sympy cost every rank seconds of CPU before its first step."""
    assert not any(rank["compiler_imported"] for rank in ranks)

"""The queries of docs/history.md run, and tell what the page promises."""

import re
from pathlib import Path

import pytest
from scene import BEST_S, HEALTHY_S
from sqlalchemy import inspect, text

from lineside.contracts import PlanState

PAGE = (Path(__file__).parents[3] / "docs" / "history.md").read_text()
QUERIES = dict(re.findall(r"^(\w[^\n]*\?)\n\n```sql\n(.*?)```", PAGE, re.S | re.M))


@pytest.fixture
def ask(scene):
    """Answers of a history with one refused plan and one that helped."""
    scene.begin()
    found = scene.strike()
    scene.train(12)
    scene.answer(1, PlanState.REJECTED, ranks=[2], detail="no such schedule")
    scene.train(24)
    scene.apply(2, BEST_S)
    scene.train(12)
    scene.relieve(found)
    scene.train(22)
    scene.apply(3, HEALTHY_S)

    def ask(beginning: str):
        [query] = [sql for question, sql in QUERIES.items() if question.startswith(beginning)]
        with scene.store.reading() as session:
            return session.execute(text(query)).mappings().all()

    return ask


def test_the_queries_answer_their_questions(ask):
    [times] = ask("How long")
    assert times["seconds_to_detect"] == 4
    assert 4 < times["seconds_to_act"] < times["seconds_to_apply"]
    [machine] = ask("Which machines")
    assert (machine["machine"], machine["incidents"], machine["runs"]) == ("machine-0", 1, 1)
    [effect] = ask("What did")
    assert effect["share_removed"] > 0.8
    assert effect["seconds_saved"] > 0
    steps = [row["to_state"] for row in ask("What happened")]
    assert (steps[0], steps[-1]) == ("open", "resolved")
    [plan] = ask("Which plans")
    assert (plan["revision"], plan["detail"]) == (1, "rank 2: no such schedule")
    assert len(QUERIES) == 5


def test_every_table_stands_on_the_page(scene):
    tables = set(inspect(scene.store.engine).get_table_names()) - {"alembic_version"}
    assert tables == set(re.findall(r"^\| `(\w+)` \|", PAGE, re.M))

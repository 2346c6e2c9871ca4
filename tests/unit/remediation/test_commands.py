"""The commands against the real API."""

import json
import threading

import pytest
import typer
from scene import BEST, BEST_S, JOB
from typer.testing import CliRunner

from lineside.remediation import commands
from lineside.remediation.api import ApiServer, Service, create_app
from lineside.remediation.api.app import Pulse

NOBODY = "http://127.0.0.1:9"


@pytest.fixture
def program():
    app = typer.Typer()
    app.command("jobs")(commands.jobs)
    for name in ("incidents", "plan", "alerts", "db"):
        app.add_typer(getattr(commands, name), name=name)
    return app


@pytest.fixture
def service(scene):
    return Service(
        store=scene.store,
        settings=scene.settings,
        registry=scene.metrics.registry,
        pulse=lambda: Pulse(lag=0, last_record_ns=-1, last_turn_age_s=0.0),
        clock=lambda: scene.now_ns,
        poll_s=0.05,
    )


@pytest.fixture
def run(program, service, monkeypatch):
    """``run("jobs", "--json")`` against the scene's API."""
    server = ApiServer(create_app(service), "127.0.0.1", 0)
    server.start()
    monkeypatch.setenv("LINESIDE_API", f"http://127.0.0.1:{server.port}")
    monkeypatch.setenv("COLUMNS", "200")
    yield lambda *words, **options: CliRunner().invoke(program, [*map(str, words)], **options)
    service.stopping.set()
    server.stop()


@pytest.fixture
def healed(scene):
    scene.begin()
    scene.strike()
    scene.train(12)
    scene.apply(1, BEST_S)
    scene.train(12)
    return scene


def test_tables_and_json_tell_the_same(run, healed):
    [incident] = json.loads(run("incidents", "list", "--json").stdout)
    listed = run("incidents", "list", "--state", "mitigated").stdout
    assert incident["incident_id"] in listed and "rank 0 (machine-0)" in listed
    assert "no incidents" in run("incidents", "list", "--state", "open").stdout
    shown = run("incidents", "show", incident["incident_id"]).stdout
    assert "all ranks" in shown and str(BEST) in shown and "87%" in shown
    full = json.loads(run("incidents", "show", incident["incident_id"], "--json").stdout)
    assert len(full["timeline"]) == 4
    [job] = json.loads(run("jobs", "--json").stdout)
    assert job["job_id"] == JOB and f"{BEST} (rev 1)" in run("jobs").stdout
    assert "applied" in run("plan", "list").stdout


def test_a_plan_from_a_file_or_standard_input(run, scene, tmp_path):
    scene.begin()
    file = tmp_path / "plan.json"
    file.write_text(json.dumps({"job_id": JOB, "micro_batch_plan": BEST}))
    answer = run("plan", "apply", file)
    assert (answer.exit_code, answer.stdout) == (0, f"revision 1 issued: {BEST}\n")
    again = run("plan", "apply", "-", "--job", JOB, input=json.dumps({"micro_batch_plan": BEST}))
    assert again.exit_code == 2 and "revision 1 is on its way" in again.stderr


@pytest.mark.parametrize(
    ("content", "code", "complaint"),
    [
        ('{"micro_batch_plan": [5, 5, 5, 5]}', 2, "--job"),
        ('{"job_id": "other", "micro_batch_plan": [5, 5, 5, 5]}', 1, "no job 'other'"),
        ('{"job_id": "gpt", "micro_batch_plan": [5]}', 2, "the job 4 replicas"),
        ('{"job_id": "gpt", "plan": [5]}', 2, "micro_batch_plan: Field required"),
        ("[5, 5]", 2, "expected an object"),
        ("five", 2, "is no JSON"),
        (None, 2, "No such file"),
    ],
)
def test_a_plan_that_cannot_be_is_one_clear_line(run, scene, tmp_path, content, code, complaint):
    scene.begin()
    file = tmp_path / "plan.json"
    if content is not None:
        file.write_text(content)
    answer = run("plan", "apply", file)
    assert answer.exit_code == code
    assert complaint in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_what_does_not_exist_is_exit_code_1(run, scene):
    answer = run("incidents", "show", "none")
    assert (answer.exit_code, answer.stderr) == (1, "there is no incident 'none'\n")


def test_alerts_are_followed_one_line_each(run, service, healed):
    def follow(*words):
        service.stopping.clear()
        threading.Timer(1.0, service.stopping.set).start()
        return run("alerts", "follow", "--after", "0", *words)

    answer = follow()
    assert answer.exit_code == 0
    kinds = [line.split()[2] for line in answer.stdout.splitlines()]
    assert kinds == ["opened:", "mitigating:", "mitigated:"]
    assert [json.loads(line)["subject"] for line in follow("--json").stdout.splitlines()] == [
        JOB
    ] * 3


@pytest.mark.parametrize("words", [["jobs"], ["incidents", "list"], ["alerts", "follow"]])
def test_without_an_api_it_is_said_what_to_do(run, words):
    answer = run(*words, "--api", NOBODY)
    assert answer.exit_code == 69
    assert "lineside up" in answer.stderr and len(answer.stderr.splitlines()) == 1
    assert run(*words, "--api", "nonsense").exit_code == 2


def test_the_database_is_upgraded_and_checked(run, tmp_path, monkeypatch):
    monkeypatch.setenv("LINESIDE_DATABASE_URL", f"sqlite:///{tmp_path / 'new' / 'history.db'}")
    missing = run("db", "check")
    assert missing.exit_code == 1 and "lineside db upgrade" in missing.stderr
    assert "at version" in run("db", "upgrade").stdout
    assert run("db", "check").exit_code == 0
    monkeypatch.setenv("LINESIDE_DATABASE_URL", "nonsense")
    assert run("db", "upgrade").exit_code == 69

"""The commands against the real API."""

import json
import threading

import pytest
import typer
from scene import BEST, BEST_S, JOB, job
from sqlalchemy import update
from typer.testing import CliRunner

from lineside.contracts import Mesh, TopicName
from lineside.remediation import commands
from lineside.remediation.api import ApiServer, Service, create_app
from lineside.remediation.api.app import Pulse
from lineside.remediation.policy import Mode
from lineside.remediation.store import IncidentRow, JobRow, PlanRow

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
    assert incident["incident_id"][:8] in listed and "rank 0 (machine-0)" in listed
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
        ('{"job_id": "gpt", "plan": [5]}', 2, "micro_batch_plan: Field required\n"),
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
    assert answer.exit_code == 1
    assert answer.stderr.startswith("there is no incident 'none'")


@pytest.mark.parametrize("width", [80, 120])
def test_tables_fit_and_cut_nothing(run, scene, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    name = "pretraining-of-a-gpt-7b"
    scene.begin()
    scene.strike()
    scene.train(12)
    scene.apply(1, BEST_S)
    scene.train(12)
    with scene.store.writing() as session:
        for table in (JobRow, IncidentRow, PlanRow):
            session.execute(update(table).values(job_id=name))
    [incident] = json.loads(run("incidents", "list", "--json").stdout)
    short = incident["incident_id"][:8]

    listed = run("incidents", "list").stdout
    assert {short, name, "mitigated", "2023-11-14"} <= set(listed.split())
    assert len(listed.splitlines()) <= 6, "a summary is more than a word a line"
    assert ("suspects" in listed) == (width == 120)
    jobs = run("jobs").stdout
    assert {name, "running", "1.20x"} <= set(jobs.split()) and str(BEST) in jobs
    shown = run("incidents", "show", short)
    assert shown.exit_code == 0 and incident["incident_id"] in shown.stdout
    plans = run("plan", "list").stdout
    assert "applied" in plans and str(BEST) in plans
    for text in (listed, jobs, shown.stdout, plans):
        assert "…" not in text
        assert max(map(len, text.splitlines())) <= width


def test_what_is_not_known_of_a_job_is_a_dash(run, scene):
    scene.tell(TopicName.JOBS, job(mesh=Mesh(), machines=[], micro_batches=-1))
    scene.work()
    assert run("jobs").stdout.splitlines()[-1].split() == [JOB, "running", "-", "-"]


def test_observe_mode_shows_what_it_left_undone(run, scene):
    scene.settings.mode = Mode.OBSERVE
    scene.restart()
    scene.begin()
    scene.strike()
    scene.train(30)
    [incident] = json.loads(run("incidents", "list", "--json").stdout)
    shown = run("incidents", "show", incident["incident_id"]).stdout
    assert f"mode observe: would have changed micro-batches to {BEST} for steps of 0.6 s" in shown
    assert "proposed" in shown


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--state", "bad"], "--state: Input should be 'open', "),
        (["--kind", "slow"], "--kind: Input should be "),
        (["--since", "yesterday"], "--since: Input should be a valid datetime"),
        (["--since", "2030-01-01T00:00:00"], "--since: Input should have timezone info"),
    ],
)
def test_a_value_that_an_option_cannot_have_is_told_with_an_example(run, words, complaint):
    answer = run("incidents", "list", *words)
    assert answer.exit_code == 64
    assert answer.stderr.startswith(complaint) and f"(for example {words[0]} " in answer.stderr
    assert len(answer.stderr.splitlines()) == 1


def test_help_says_where_the_api_is_looked_for(run):
    text = " ".join(run("jobs", "--help").stdout.split())
    assert "LINESIDE_API, else http://127.0.0.1:8484" in text


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

"""Evidence: asked by people and by faults, within limits, answered by agents, shown to people."""

import base64
import json

import httpx
import msgspec
import pytest
import typer
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from scene import JOB, RUN, S, fault, job
from sqlalchemy import select
from typer.testing import CliRunner

from lineside.contracts import (
    FaultKind,
    FaultPhase,
    JobState,
    PlanKind,
    Reply,
    Request,
    Suspect,
    SuspectKind,
    TopicName,
    fault_event,
)
from lineside.contracts.signatures import BadKey, Signer, Trust, Untrusted, create_key
from lineside.remediation import evidence, tables
from lineside.remediation.api import ApiServer, Service, create_app
from lineside.remediation.api.app import Pulse
from lineside.remediation.request_command import parse_ranks, request
from lineside.remediation.store import ReplyRow, RequestRow

PATH = f"/v1/jobs/{JOB}/requests"


@pytest.fixture
def service(scene):
    return Service(
        store=scene.store,
        settings=scene.settings,
        registry=scene.metrics.registry,
        pulse=lambda: Pulse(lag=0, last_record_ns=scene.now_ns, last_turn_age_s=0.1),
        clock=lambda: scene.now_ns,
    )


@pytest.fixture
def client(service):
    server = ApiServer(create_app(service), "127.0.0.1", 0)
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as client:
        yield client
    service.stopping.set()
    server.stop()


def sent(scene) -> list[Request]:
    """Every request that was published, each id once."""
    scene.work()
    found = {record.request_id: record for record in scene.published(TopicName.REQUESTS)}
    return list(found.values())


def reply(scene, asked: Request, rank: int, **changes) -> None:
    base = Reply(
        request_id=asked.request_id,
        fault_id=asked.fault_id,
        job_id=JOB,
        run_id=RUN,
        generation=0,
        kind=asked.kind,
        machine_id=f"machine-{max(rank, 0)}",
        rank=rank,
        at_ns=scene.now_ns,
        ok=True,
        result={"stacks": [{"threads": ["main"], "frames": ["all_reduce (train.py:9)"]}]},
    )
    scene.tell(TopicName.REPLIES, msgspec.structs.replace(base, **changes))
    scene.now_ns += S
    scene.work()


def test_a_person_asks_and_the_ranks_answer(client, scene):
    scene.begin()
    answer = client.post(PATH, json={"kind": "dump_stacks", "actor": "ann", "valid_s": 30})
    assert answer.status_code == 202, answer.text
    posted = answer.json()
    assert (posted["state"], posted["waiting_for"]) == ("sent", [0, 1, 2, 3])
    [asked] = sent(scene)
    assert (asked.request_id, asked.kind) == (posted["request_id"], "dump_stacks")
    assert (asked.fault_id, asked.ranks, asked.run_id) == (None, [], RUN)
    assert asked.expires_ns == scene.now_ns + 30 * S
    for rank in (0, 1, 3):
        reply(scene, asked, rank)
    reply(scene, asked, 0, result={"late": "and twice"})
    [listed] = client.get(PATH, params={"request_id": asked.request_id}).json()["items"]
    assert (listed["state"], listed["waiting_for"], listed["actor"]) == ("sent", [2], "ann")
    odd = {"stacks": [{"threads": ["main"], "frames": ["sleep (x.py:1)"]}]}
    reply(scene, asked, 2, result=odd)
    [listed] = client.get(PATH).json()["items"]
    assert listed["state"] == "answered"
    assert listed["stacks"] == [
        {"ranks": [2], "frames": ["sleep (x.py:1)"]},
        {"ranks": [0, 1, 3], "frames": ["all_reduce (train.py:9)"]},
    ]
    assert [r["rank"] for r in listed["replies"]] == [0, 1, 2, 3]


def test_an_agents_own_word_stands_for_its_ranks(client, scene):
    scene.begin()
    posted = client.post(PATH, json={"kind": "trace_flows", "ranks": [1]}).json()
    [asked] = sent(scene)
    assert asked.ranks == [1]
    refused = {"machine_id": "machine-1", "ok": False, "result": {}, "detail": "cannot"}
    reply(scene, asked, -1, **refused)
    [listed] = client.get(PATH, params={"request_id": posted["request_id"]}).json()["items"]
    assert listed["state"] == "answered"
    assert [(r["rank"], r["detail"]) for r in listed["replies"]] == [(None, "cannot")]


def test_what_nobody_answers_expires(client, scene):
    scene.begin()
    client.post(PATH, json={"kind": "dump_stacks", "valid_s": 5})
    scene.train(16)
    assert client.get(PATH).json()["items"][0]["state"] == "expired"


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"kind": "read_minds"}, 422, "kind"),
        ({"kind": "dump_stacks", "ranks": [9]}, 422, "no rank 9; it has 4 ranks"),
        ({"kind": "dump_stacks", "ranks": [-1]}, 422, "ranks"),
        ({"kind": "checkpoint_now"}, 409, "does not declare checkpoint_now"),
        ({"kind": "dump_stacks", "colour": "red"}, 422, "colour"),
    ],
)
def test_what_cannot_be_asked_is_refused(client, scene, body, status, said):
    scene.begin()
    answer = client.post(PATH, json=body)
    assert (answer.status_code, said in answer.json()["detail"]) == (status, True), answer.text
    assert sent(scene) == []


def test_a_run_that_is_over_and_a_job_that_is_none_are_not_asked(client, scene):
    assert client.post(PATH, json={"kind": "dump_stacks"}).status_code == 404
    scene.begin(state=JobState.FINISHED)
    answer = client.post(PATH, json={"kind": "dump_stacks"})
    assert answer.status_code == 409 and "is over" in answer.json()["detail"]


def test_limits_are_per_sort_and_pass_with_time(client, scene):
    scene.begin()

    def post(kind: str) -> int:
        return client.post(PATH, json={"kind": kind, "ranks": [0]}).status_code

    assert [post("dump_stacks") for _ in range(7)] == [202] * 6 + [429]
    assert [post("validate_compute") for _ in range(5)] == [202] * 4 + [429]
    scene.train(61)
    assert (post("dump_stacks"), post("validate_compute")) == (202, 429)


WANTED = {
    "kind": FaultKind.HANG,
    "wanted_evidence": ["dump_stacks", "validate_compute", "read_minds"],
}


@pytest.mark.parametrize(
    ("mode", "kinds"),
    [("observe", ["dump_stacks"]), ("auto", ["dump_stacks", "validate_compute"])],
)
def test_a_fault_gets_what_it_wants_as_the_mode_allows(make_scene, mode, kinds):
    scene = make_scene(mode=mode)
    scene.begin()
    found = fault(2, onset_ns=scene.now_ns, **WANTED)
    scene.tell(TopicName.FAULTS, fault_event(found))
    asked = sent(scene)
    assert [one.kind for one in asked] == kinds, "in the very turn in which the fault came"
    assert {one.fault_id for one in asked} == {found.fault_id}
    assert asked[0].ranks == [] and asked[-1].ranks == ([2] if mode == "auto" else [])
    scene.restart()
    scene.train(5)
    assert len(sent(scene)) == len(kinds), "each kind once per fault"
    with scene.store.reading() as session:
        rows = {row.kind: row for row in session.scalars(select(RequestRow))}
    assert "no kind" in rows["read_minds"].refusal
    if mode == "observe":
        assert "the mode is observe" in rows["validate_compute"].refusal


def test_an_incident_shows_its_evidence(client, scene, monkeypatch, capsys):
    scene.begin()
    scene.tell(TopicName.FAULTS, fault_event(fault(2, onset_ns=scene.now_ns, **WANTED)))
    asked = sent(scene)[0]
    reply(scene, asked, 2)
    scene.train(2)
    [incident] = client.get("/v1/incidents").json()["items"]
    full = client.get(f"/v1/incidents/{incident['incident_id']}").json()
    monkeypatch.setenv("COLUMNS", "200")
    tables.print_incident(full)
    assert "'read_minds' is no kind of request" in capsys.readouterr().out
    assert {one["kind"]: one["answered"] for one in full["evidence"]} == {
        "dump_stacks": 1,
        "validate_compute": 0,
        "read_minds": 0,
    }


def test_what_is_over_or_of_another_generation_wants_nothing(scene):
    scene.begin(generation=1)
    for changes in ({"generation": 0}, {"generation": 1, "phase": FaultPhase.RELIEF}):
        scene.tell(
            TopicName.FAULTS, fault_event(fault(2, onset_ns=scene.now_ns, **WANTED, **changes))
        )
        scene.now_ns += S
    assert sent(scene) == []


@pytest.mark.parametrize(
    ("suspects", "ranks"),
    [
        ([], []),
        ([Suspect(kind=SuspectKind.MACHINE, id="machine-3")], [3]),
        ([Suspect(kind=SuspectKind.LINK, id="0", peer="2")], [0, 2]),
        ([Suspect(kind=SuspectKind.GROUP, id="dp:1")], []),
        ([Suspect(kind=SuspectKind.RANK, id="1"), Suspect(kind=SuspectKind.RANK, id="x")], [1]),
    ],
)
def test_suspects_are_asked(suspects, ranks):

    assert evidence.whom(fault(0, suspects=suspects), job(), "validate_compute") == ranks


def test_old_evidence_is_deleted(scene):
    scene.begin()
    scene.tell(TopicName.FAULTS, fault_event(fault(2, onset_ns=scene.now_ns, **WANTED)))
    reply(scene, sent(scene)[0], 2)
    scene.now_ns += 31 * 24 * 3600 * S
    scene.train(1)
    with scene.store.reading() as session:
        assert session.scalars(select(ReplyRow)).all() == []
        assert session.scalars(select(RequestRow)).all() == []


def test_plans_and_requests_leave_the_house_signed(make_scene, tmp_path):
    path = tmp_path / "key.pem"
    trust = Trust(base64.b64encode(create_key(path)).decode())
    scene = make_scene(changes={"signing_key_file": path})
    scene.begin()
    scene.strike()
    scene.tell(TopicName.FAULTS, fault_event(fault(2, onset_ns=scene.now_ns, **WANTED)))
    scene.train(14)
    seen = set()
    for (name, _), log in scene.bus.logs.items():
        for message in log:
            if name in (TopicName.PLANS, TopicName.REQUESTS):
                trust.check(message.value, message.headers)
                seen.add(name)
            else:
                assert "signature" not in message.headers
    assert seen == {TopicName.PLANS, TopicName.REQUESTS}
    assert scene.plans()[0].kind is PlanKind.REBALANCE
    stranger = Trust(
        base64.b64encode(Signer(Ed25519PrivateKey.generate()).public).decode(),
    )
    [message] = [m for (n, _), log in scene.bus.logs.items() if n == TopicName.PLANS for m in log][
        :1
    ]
    with pytest.raises(Untrusted, match="unknown key"):
        stranger.check(message.value, message.headers)


def test_a_signing_key_that_is_none_stops_the_service(make_scene, tmp_path):
    with pytest.raises(BadKey, match="holds no private key"):
        make_scene(changes={"signing_key_file": tmp_path / "none.pem"})


@pytest.fixture
def run(client, monkeypatch):
    app = typer.Typer()
    app.command()(request)
    monkeypatch.setenv("LINESIDE_API", str(client.base_url))
    monkeypatch.setenv("COLUMNS", "200")
    return lambda *words: CliRunner().invoke(app, [*map(str, words)])


def test_the_command_asks_and_waits(run, client, scene, monkeypatch):
    scene.begin()
    asked = run(JOB, "dump_stacks", "--ranks", "0,2-3")
    assert asked.exit_code == 0 and "sent" in asked.stdout
    [first] = sent(scene)
    assert first.ranks == [0, 2, 3]

    def agents_answer(_: float) -> None:
        for one in sent(scene):
            for rank in one.ranks or range(4):
                if one.kind == "dump_stacks":
                    reply(scene, one, rank)
                else:
                    reply(scene, one, rank, ok=rank != 1, result={}, detail="no such device")

    monkeypatch.setattr("time.sleep", agents_answer)
    shown = run(JOB, "dump_stacks", "--wait")
    assert shown.exit_code == 0, shown.output
    assert "ranks 0-3" in shown.stdout and "all_reduce (train.py:9)" in shown.stdout
    failed = run(JOB, "validate_compute", "--wait", "--parameter", "seconds=1", "--json")
    assert failed.exit_code == 3
    assert json.loads(failed.stdout)["parameters"] == {"seconds": 1}
    table = run(JOB, "validate_compute", "--ranks", "1", "--wait")
    assert table.exit_code == 3 and "no such device" in table.stdout


def test_the_command_says_what_is_wrong(run, scene, monkeypatch):
    assert run("other", "dump_stacks").exit_code == 1
    scene.begin()
    assert run(JOB, "checkpoint_now").exit_code == 2
    assert run(JOB, "dump_stacks", "--ranks", "a-b").exit_code == 2
    assert run(JOB, "dump_stacks", "--parameter", "x").exit_code == 2
    monkeypatch.setattr("time.sleep", lambda _: scene.train(30))
    nobody = run(JOB, "dump_stacks", "--wait")
    assert nobody.exit_code == 4 and "no answer of ranks 0-3" in nobody.stdout
    assert parse_ranks(" 3, 0-1") == [0, 1, 3]

"""The API over a history that the real service wrote."""

import base64
import json
import threading
from contextlib import contextmanager

import httpx
import pytest
from scene import BEST, BEST_S, JOB, job
from sqlalchemy import select, text

from lineside.contracts import Capabilities, Device, JobState, Machine, Mesh, TopicName
from lineside.remediation.api import ApiServer, PortTaken, Service, create_app
from lineside.remediation.api.app import Pulse
from lineside.remediation.store import IncidentRow


def service_for(scene, **changes):
    return Service(
        store=scene.store,
        settings=scene.settings,
        registry=scene.metrics.registry,
        pulse=lambda: Pulse(lag=0, last_record_ns=scene.now_ns, last_turn_age_s=0.1),
        clock=lambda: scene.now_ns,
        poll_s=0.01,
        **changes,
    )


@contextmanager
def served(service):
    """A client of the real server on a free port."""
    server = ApiServer(create_app(service), "127.0.0.1", 0)
    server.start()
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", timeout=30) as client:
        yield client
    service.stopping.set()
    server.stop()


@pytest.fixture
def client(scene):
    with served(service_for(scene)) as client:
        yield client


@pytest.fixture
def healed(scene):
    scene.begin()
    scene.strike()
    scene.train(12)
    scene.apply(1, BEST_S)
    scene.train(12)
    return scene


def problem(answer, status):
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    body = answer.json()
    assert body["status"] == status
    return body["detail"]


def test_jobs_say_what_runs_and_how(client, healed):
    [found] = client.get("/v1/jobs").json()["items"]
    assert found == client.get(f"/v1/jobs/{JOB}").json()
    assert (found["state"], found["revision"], found["micro_batch_plan"]) == ("running", 1, BEST)
    assert found["mesh"] == {"dp": 4}
    assert found["capabilities"] == ["rebalance"]
    assert found["health"]["step_s"] == BEST_S
    assert found["started_at"] == "2023-11-14T22:03:20Z"
    assert "no job 'other'" in problem(client.get("/v1/jobs/other"), 404)


def test_without_a_mesh_the_ranks_are_those_of_the_machines(client, scene):
    spare = Machine("machine-9", "host-9", spare=True, devices=[Device(4, 0, "gpu0")])
    scene.tell(TopicName.JOBS, job(mesh=Mesh(), machines=[*job().machines, spare]))
    scene.work()
    assert client.get(f"/v1/jobs/{JOB}").json()["world_size"] == 4


def test_health_is_a_series(client, healed):
    found = client.get(f"/v1/jobs/{JOB}/health", params={"limit": 5}).json()
    assert len(found["samples"]) == 5
    assert found["samples"][-1] == found["newest"]
    assert found["samples"][0]["step"] < found["newest"]["step"]


def test_an_incident_has_timeline_evidence_plans_and_effect(client, healed):
    [listed] = client.get("/v1/incidents").json()["items"]
    found = client.get(f"/v1/incidents/{listed['incident_id']}").json()
    assert {key: found[key] for key in listed} == listed
    moves = [step["to_state"] for step in found["timeline"]]
    assert moves == ["open", "mitigating", "verifying", "mitigated"]
    assert found["timeline"][0]["actor"] == "falcon"
    assert found["faults"][0]["evidence"]["replica_unit_s"] == [0.25, 0.1, 0.1, 0.1]
    assert [(p["revision"], p["state"]) for p in found["plans"]] == [(1, "applied")]
    assert found["effect"]["slowdown_removed"] > 0.8
    assert found["mitigated_at"].endswith("Z")
    assert found["resolved_at"] is None
    assert "no incident" in problem(client.get("/v1/incidents/none"), 404)


def test_incidents_are_filtered_and_come_in_pages(client, scene):
    scene.begin()
    for rank in range(4):
        scene.relieve(scene.strike(rank))
        scene.train(3)
    everything = client.get("/v1/incidents").json()["items"]
    assert len(everything) == 4
    page = client.get("/v1/incidents", params={"limit": 3}).json()
    seen = page["items"]
    while cursor := page["next_cursor"]:
        page = client.get("/v1/incidents", params={"limit": 3, "cursor": cursor}).json()
        seen += page["items"]
    assert seen == everything
    assert [i["opened_at"] for i in seen] == sorted((i["opened_at"] for i in seen), reverse=True)

    def count(**parameters):
        return len(client.get("/v1/incidents", params=parameters).json()["items"])

    assert count(job=JOB) == count(kind="slow_compute") == count(state="resolved") == 4
    assert count(job="other") == count(kind="crash") == count(state=["open", "mitigated"]) == 0
    assert count(since=everything[1]["opened_at"]) == 2
    assert "no cursor" in problem(client.get("/v1/incidents", params={"cursor": "?"}), 400)
    beyond = base64.urlsafe_b64encode(b"99999999999999999999:x").decode()
    assert "no cursor" in problem(client.get("/v1/incidents", params={"cursor": beyond}), 400)
    assert "timezone" in problem(
        client.get("/v1/incidents", params={"since": "2030-01-01T00:00:00"}), 422
    )
    assert "state" in problem(client.get("/v1/incidents", params={"state": "bad"}), 422)


def test_the_beginning_of_an_id_names_an_incident(client, scene):
    scene.begin()
    for rank in range(2):
        scene.relieve(scene.strike(rank))
        scene.train(3)
    ids = [f"36bfc6d6-000{n}-4000-8000-000000000000" for n in range(2)]
    with scene.store.writing() as session:
        session.execute(text("PRAGMA defer_foreign_keys=ON"))
        for new, row in zip(ids, session.scalars(select(IncidentRow)).all(), strict=True):
            for table in ("faults", "incident_transitions", "plans", "incidents"):
                session.execute(
                    text(f"UPDATE {table} SET incident_id = :new WHERE incident_id = :old"),
                    {"new": new, "old": row.incident_id},
                )

    def show(name):
        return client.get(f"/v1/incidents/{name}")

    assert show("36bfc6d6-0001").json()["incident_id"] == ids[1]
    assert ids[0] in problem(show("36bfc6d6"), 409)
    assert "at least 6 characters" in problem(show("36bfc"), 404)
    assert "no incident '36bfc6%'" in problem(show("36bfc6%25"), 404)


def test_a_persons_plan_gets_a_revision_and_is_published(client, scene):
    scene.begin()
    answer = client.post(
        f"/v1/jobs/{JOB}/plans",
        json={"micro_batch_plan": [2, 6, 6, 6], "reason": "host-0 is throttled", "actor": "ann"},
    )
    assert answer.status_code == 202
    assert (answer.json()["revision"], answer.json()["state"]) == (1, "issued")
    scene.work()
    [plan] = scene.plans()
    assert (plan.micro_batch_plan, plan.reason) == ([2, 6, 6, 6], "host-0 is throttled")
    waiting = client.post(f"/v1/jobs/{JOB}/plans", json={"micro_batch_plan": [5, 5, 5, 5]})
    assert "revision 1 is on its way" in problem(waiting, 409)
    scene.apply(1, 0.5)
    [listed] = client.get("/v1/plans", params={"job": JOB, "state": "applied"}).json()["items"]
    assert (listed["actor"], listed["micro_batch_plan"]) == ("ann", [2, 6, 6, 6])
    back = client.post(f"/v1/jobs/{JOB}/plans", json={"micro_batch_plan": [5, 5, 5, 5]})
    assert (back.json()["revision"], back.json()["kind"]) == (2, "baseline")


def test_the_policy_leaves_a_persons_plan_alone(client, scene):
    scene.begin()
    scene.strike()
    scene.train(2)
    client.post(f"/v1/jobs/{JOB}/plans", json={"micro_batch_plan": [4, 6, 5, 5], "actor": "ann"})
    scene.apply(1, 1.0)
    scene.train(40)
    assert [plan.revision for plan in scene.plans()] == [1]
    [incident] = client.get("/v1/incidents").json()["items"]
    assert incident["state"] == "open"


@pytest.mark.parametrize(
    ("counts", "complaint"),
    [
        ([5, 5, 10], "the job 4 replicas"),
        ([5, 5, 5, 4], "add up to 19"),
        ([0, 8, 6, 6], "replica 0 gets 0 micro-batches, at least 1"),
        ([2, 2, 2, 14], "replica 3 gets 14 micro-batches, at most 12"),
        ([2, 4, 7, 7], "no multiple of 2"),
        ([2, 4, 6, 8], "must get equal counts"),
        ([], "micro_batch_plan"),
        ([-1, 7, 7, 7], "micro_batch_plan"),
        ("five", "micro_batch_plan"),
    ],
)
def test_a_plan_that_the_job_cannot_run_is_refused(client, scene, counts, complaint):
    limits = type(job().micro_batch_limits)(
        min=1, max=12, multiple=2 if counts != [5, 5, 5, 4] else 1
    )
    scene.begin(micro_batch_limits=limits, rebalance_units=[[2, 3]])
    answer = client.post(f"/v1/jobs/{JOB}/plans", json={"micro_batch_plan": counts})
    assert complaint in problem(answer, 422)
    assert scene.plans() == []


def test_a_plan_needs_a_running_job_that_can_rebalance(client, scene):
    wanted = {"micro_batch_plan": [5, 5, 5, 5]}
    assert "no job" in problem(client.post(f"/v1/jobs/{JOB}/plans", json=wanted), 404)
    scene.begin(capabilities=Capabilities())
    assert "declare" in problem(client.post(f"/v1/jobs/{JOB}/plans", json=wanted), 409)
    scene.tell(TopicName.JOBS, job(state=JobState.FAILED))
    scene.work()
    assert "is over (failed)" in problem(client.post(f"/v1/jobs/{JOB}/plans", json=wanted), 409)


def events(client, service, **options):
    """All events that the stream has now; it is ended once it falls silent."""
    timer = threading.Timer(0.4, service.stopping.set)
    timer.start()
    found, current = [], {}
    with client.stream("GET", "/v1/alerts/stream", **options) as answer:
        assert answer.status_code == 200
        for line in answer.iter_lines():
            if not line and current:
                found.append(current)
                current = {}
            elif line and not line.startswith(":"):
                name, _, value = line.partition(": ")
                current[name] = value
    service.stopping.clear()
    return found


def test_the_stream_resumes_after_the_last_id(healed):
    service = service_for(healed)
    with served(service) as client:
        everything = events(client, service, headers={"Last-Event-ID": "0"})
        kinds = [event["event"].split(".")[-2] for event in everything]
        assert kinds == ["opened", "mitigating", "mitigated"]
        assert json.loads(everything[0]["data"])["data"]["state"] == "open"
        ids = [int(event["id"]) for event in everything]
        assert ids == sorted(ids)
        later = events(client, service, headers={"Last-Event-ID": str(ids[0])})
        assert later == everything[1:]
        assert events(client, service, params={"after": ids[1]}) == everything[2:]
        assert events(client, service) == [], "without an id only what comes is told"
        assert events(client, service, headers={"Last-Event-ID": "99999"}) == []
        wrong = client.get("/v1/alerts/stream", headers={"Last-Event-ID": "x"})
        assert "no id of ours" in problem(wrong, 400)


def test_readiness_tells_why(scene):
    pulse = Pulse(lag=-1, last_record_ns=-1, last_turn_age_s=0.0)
    service = Service(
        store=scene.store,
        settings=scene.settings,
        registry=scene.metrics.registry,
        pulse=lambda: pulse,
    )
    with served(service) as client:
        answer = client.get("/readyz")
        assert (answer.status_code, answer.json()["lag"]) == (503, -1)
        pulse = Pulse(lag=3, last_record_ns=scene.now_ns, last_turn_age_s=0.0)
        assert client.get("/readyz").json()["ready"] is True
        pulse = Pulse(lag=0, last_record_ns=scene.now_ns, last_turn_age_s=60.0)
        assert client.get("/readyz").status_code == 503
        assert client.get("/healthz").json() == {"status": "ok"}


def test_metrics_count_records_incidents_and_the_outbox(client, healed):
    text = client.get("/metrics").text
    assert 'lineside_incidents{state="mitigated"} 1.0' in text
    assert 'lineside_remediation_records_total{topic="faults.v1"} 1.0' in text
    assert "lineside_outbox_records 0.0" in text


def test_unknown_paths_are_problems_and_the_schema_is_tidy(client):
    assert problem(client.get("/v1/nothing"), 404) == "Not Found"
    schema = client.get("/openapi.json").json()
    for path, methods in schema["paths"].items():
        for method, route in methods.items():
            assert route["summary"] and route["tags"], (method, path)


def test_a_database_that_is_away_is_a_503(scene, client, monkeypatch):
    from sqlalchemy.exc import OperationalError

    def away():
        raise OperationalError("SELECT", {}, Exception("gone"))

    monkeypatch.setattr(scene.store, "reading", away)
    assert "cannot be reached" in problem(client.get("/v1/jobs"), 503)


def test_a_port_that_is_taken_is_said_clearly(scene):
    app = create_app(service_for(scene))
    first = ApiServer(app, "127.0.0.1", 0)
    with pytest.raises(PortTaken, match="LINESIDE_API_PORT"):
        ApiServer(app, "127.0.0.1", first.port)
    first.stop()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8484", "127.0.0.1.evil.example", ""]
)
def test_requests_to_another_host_name_are_refused(client, host):
    for path in ("/v1/jobs", "/healthz"):
        assert client.get(path, headers={"host": host}).status_code == 421
    assert client.get("/healthz", headers={"host": "LOCALHOST:1"}).status_code == 200
    assert client.get("/healthz", headers={"host": "[::1]:8484"}).status_code == 200

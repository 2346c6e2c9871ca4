"""What the demo sees of its run: the same topics and the same API that anybody can read."""

from collections.abc import Sequence
from typing import Any

import httpx

from lineside.bus import Bus
from lineside.cli.demo.measure import Measurement
from lineside.contracts import (
    CloudEvent,
    ContractError,
    Decoded,
    Fault,
    Job,
    JobHealth,
    JobState,
    Member,
    Plan,
    PlanState,
    PlanStatus,
    StepBatch,
    TopicName,
    decode,
)

_TOPICS = (
    TopicName.JOBS,
    TopicName.MEMBERS,
    TopicName.STEPS,
    TopicName.HEALTH,
    TopicName.FAULTS,
    TopicName.PLANS,
    TopicName.PLAN_STATUS,
)


class Watch:
    """The newest state of one run, from its topics. ``run_id`` is taken from the first job record that is
    not older than ``since_ns``; records of other runs of that name are passed over."""

    def __init__(self, bus: Bus, api: str, job_id: str, world_size: int, since_ns: int) -> None:
        self._source = bus.tail(_TOPICS, job_id)
        self._http = httpx.Client(base_url=api, timeout=5, trust_env=False)  # loopback: no proxy
        self._job_id = job_id
        self._since_ns = since_ns
        self._world_size = world_size
        self._waiting: list[Decoded] = []
        self.job: Job | None = None
        self.health: JobHealth | None = None
        self.steps = Measurement(world_size)
        self.faults: list[Fault] = []
        self.plans: dict[int, Plan] = {}
        self.pids: dict[int, int] = {}
        self._applied: dict[int, dict[int, PlanStatus]] = {}

    def close(self) -> None:
        self._source.close()
        self._http.close()

    def poll(self) -> None:
        """Take in what has come; waits at most a tenth of a second."""
        for message in self._source.receive(500, 0.1):
            try:
                record = decode(message.topic, message.value, message.headers)
            except ContractError:
                continue  # the services put it on the dead-letter topic
            record = record.data if isinstance(record, CloudEvent) else record
            if record.job_id != self._job_id:
                continue
            if isinstance(record, Job) and record.started_ns >= self._since_ns:
                self.job = record
            self._waiting.append(record)
        if self.job is not None:
            for record in self._waiting:
                if record.run_id == self.job.run_id:
                    self._take(record)
            self._waiting.clear()

    def _take(self, record: Decoded) -> None:
        match record:
            case StepBatch():
                self.steps.add(record)
            case JobHealth():
                self.health = record
            case Fault():
                if (record.fault_id, record.phase) not in {
                    (f.fault_id, f.phase) for f in self.faults
                }:
                    self.faults.append(record)
            case Plan():
                self.plans[record.revision] = record
            case Member():
                self.pids.update(zip(record.ranks, record.pids, strict=False))
            case PlanStatus() if record.state == PlanState.APPLIED and record.rank >= 0:
                self._applied.setdefault(record.revision, {})[record.rank] = record

    def running(self) -> bool:
        return self.job is not None and self.job.state is JobState.RUNNING

    def applied(self, revision: int) -> list[PlanStatus] | None:
        """Every rank's word that it runs ``revision``; None until all have said so."""
        statuses = self._applied.get(revision, {})
        return list(statuses.values()) if len(statuses) == self._world_size else None

    def incidents(self) -> Sequence[dict[str, Any]]:
        """The run's incidents as the API shows them, the oldest first."""
        if self.job is None:
            return []
        page = self._get("/v1/incidents", job=self._job_id) or {"items": []}
        mine = [row for row in page["items"] if row["run_id"] == self.job.run_id]
        return sorted(mine, key=lambda row: str(row["opened_at"]))

    def incident(self, incident_id: str) -> dict[str, Any] | None:
        """One incident with its timeline and plans; None while the API does not answer."""
        return self._get(f"/v1/incidents/{incident_id}")

    def _get(self, path: str, **params: str) -> dict[str, Any] | None:
        try:
            answer = self._http.get(path, params=params)
            answer.raise_for_status()
        except httpx.HTTPError:
            return None  # remediation may be restarting; the next poll asks again
        found: dict[str, Any] = answer.json()
        return found

"""The application: what its routes share, and how they are put together."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version

from fastapi import APIRouter, FastAPI, Response
from fastapi.responses import JSONResponse
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from lineside.remediation.api import alerts, incidents, jobs, plans, problems, requests
from lineside.remediation.api.hosts import OwnHostOnly
from lineside.remediation.api.schemas import Ready
from lineside.remediation.settings import RemediationSettings
from lineside.remediation.store import Store

STALLED_S = 10.0
"""A main loop that has not come round for this long is not ready (one round takes well under a second)."""


@dataclass(frozen=True, slots=True)
class Pulse:
    """How the main loop gets on; read by the API's threads."""

    lag: int
    last_record_ns: int
    last_turn_age_s: float


@dataclass(frozen=True, kw_only=True, slots=True)
class Service:
    """What the routes need. ``stopping`` ends the open streams."""

    store: Store
    settings: RemediationSettings
    registry: CollectorRegistry
    pulse: Callable[[], Pulse]
    clock: Callable[[], int] = time.time_ns
    stopping: threading.Event = field(default_factory=threading.Event)
    poll_s: float = 0.5
    """How often a stream of alerts looks for new ones."""


_ABOUT = """
Training runs that are watched, what went wrong in them, and what was done about it.

Times are RFC 3339 in UTC. Errors are RFC 9457 problem details. Lists have cursors: pass `next_cursor` as
`cursor` until it is null. `GET /v1/alerts/stream` tells of changes as they happen.
"""


def create_app(service: Service) -> FastAPI:
    app = FastAPI(
        title="Lineside",
        summary="Incidents and plans of training runs",
        description=_ABOUT,
        version=version("lineside"),
        openapi_tags=[
            {"name": "jobs", "description": "Runs that are watched, and how they do."},
            {"name": "incidents", "description": "What went wrong, and what was done about it."},
            {"name": "plans", "description": "What should be running, and what became of it."},
            {"name": "requests", "description": "Evidence that agents are asked for."},
            {"name": "alerts", "description": "Changes of incidents, as they happen."},
            {"name": "service", "description": "The service itself."},
        ],
    )
    app.state.service = service
    app.add_middleware(OwnHostOnly, own=service.settings.api_host)
    problems.install(app)
    for module in (jobs, incidents, plans, requests, alerts):
        app.include_router(module.router, prefix="/v1")
    app.include_router(_own_routes(service))
    return app


def _own_routes(service: Service) -> APIRouter:
    router = APIRouter(tags=["service"])

    @router.get("/healthz", summary="Is the process alive?")
    def healthz() -> dict[str, str]:
        return {"status": "ok"}

    @router.get(
        "/readyz",
        summary="Does it do its work?",
        response_model=Ready,
        responses={503: {"model": Ready, "description": "Not ready"}},
    )
    def readyz() -> JSONResponse:
        pulse, database = service.pulse(), service.store.ping()
        ready = database and pulse.lag >= 0 and pulse.last_turn_age_s < STALLED_S
        answer = Ready(
            ready=ready,
            database=database,
            lag=pulse.lag,
            last_record_at=pulse.last_record_ns,
            last_turn_age_s=round(pulse.last_turn_age_s, 3),
        )
        return JSONResponse(answer.model_dump(mode="json"), status_code=200 if ready else 503)

    @router.get("/metrics", summary="Numbers for Prometheus", response_class=Response)
    def metrics() -> Response:
        return Response(generate_latest(service.registry), media_type=CONTENT_TYPE_LATEST)

    return router

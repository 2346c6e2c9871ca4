"""Errors as RFC 9457 problem details, whatever their origin."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

from fastapi import FastAPI, Request
from fastapi.encoders import jsonable_encoder
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from sqlalchemy.exc import InterfaceError, OperationalError
from starlette.exceptions import HTTPException

MEDIA_TYPE = "application/problem+json"

Handler = Callable[[Request, Exception], Awaitable[JSONResponse]]


class ProblemDetails(BaseModel):
    """RFC 9457."""

    type: str = "about:blank"
    title: str = Field(examples=["Not Found"])
    status: int = Field(examples=[404])
    detail: str = Field(examples=["there is no incident 4f1d..."])
    instance: str | None = None


class Problem(Exception):
    """Ends a request with ``status`` and one sentence for the reader."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


def responses(*statuses: int) -> dict[int | str, dict[str, object]]:
    """For a route's documentation: the problems that it answers with."""
    return {
        status: {
            "model": ProblemDetails,
            "description": HTTPStatus(status).phrase,
            "content": {MEDIA_TYPE: {}},
        }
        for status in statuses
    }


def install(app: FastAPI) -> None:
    """Every error of ``app`` becomes a problem."""
    table: dict[type[Exception], Handler] = {
        Problem: _own,
        HTTPException: _http,
        RequestValidationError: _invalid,
        OperationalError: _away,
        InterfaceError: _away,
    }
    for kind, handler in table.items():
        app.add_exception_handler(kind, handler)


def answer(request: Request, status: int, detail: str, **more: object) -> JSONResponse:
    problem = ProblemDetails(
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        instance=request.url.path,
    )
    content = problem.model_dump() | jsonable_encoder(more)
    return JSONResponse(content, status_code=status, media_type=MEDIA_TYPE)


async def _own(request: Request, error: Exception) -> JSONResponse:
    return answer(request, getattr(error, "status", 500), str(error))


async def _http(request: Request, error: Exception) -> JSONResponse:
    return answer(request, getattr(error, "status_code", 500), str(getattr(error, "detail", error)))


async def _invalid(request: Request, error: Exception) -> JSONResponse:
    found = error.errors() if isinstance(error, RequestValidationError) else []
    errors = [{"where": list(e["loc"]), "what": e["msg"]} for e in found]
    first = errors[0] if errors else {"where": [], "what": str(error)}
    where = ".".join(str(part) for part in first["where"])
    return answer(request, 422, f"{where}: {first['what']}", errors=errors)


async def _away(request: Request, _error: Exception) -> JSONResponse:
    return answer(request, 503, "the incident database cannot be reached now; try again")

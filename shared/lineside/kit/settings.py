"""What every service and command reads from its environment (prefix ``LINESIDE_``), once, at start."""

import os
import sys
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import BeforeValidator, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

API_PORT = 8484

LogLevel = Annotated[Literal["debug", "info", "warning", "error"], BeforeValidator(str.lower)]
S = TypeVar("S", bound=BaseSettings)


def read(kind: type[S]) -> S:
    """The settings ``kind`` from the environment. Where that is wrong, one line per mistake on stderr and
    exit code 78 (EX_CONFIG)."""
    try:
        return kind()
    except ValidationError as error:
        for problem in error.errors():
            where = "".join(f"LINESIDE_{str(name).upper()}: " for name in problem["loc"])
            print(f"{where}{problem['msg'].removeprefix('Value error, ')}", file=sys.stderr)
        sys.exit(os.EX_CONFIG)


def home() -> Path:
    """Where Lineside keeps its own data: ``LINESIDE_HOME``, else the user's state folder."""
    if given := os.environ.get("LINESIDE_HOME"):
        return Path(given)
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "lineside"


def cache() -> Path:
    """Where downloads are kept: ``LINESIDE_CACHE``, else the user's cache folder."""
    if given := os.environ.get("LINESIDE_CACHE"):
        return Path(given)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lineside"


class BusSettings(BaseSettings):
    """How to reach Kafka. Services derive their own settings from this class."""

    model_config = SettingsConfigDict(env_prefix="LINESIDE_", extra="ignore")

    bootstrap: str = Field("127.0.0.1:9092", description="Kafka bootstrap servers, HOST:PORT[,...]")
    topic_prefix: str = Field("lineside.", description="prefix of all topic names, one per tenant")
    partitions: int = Field(12, ge=1, description="partitions of every topic, fixed at creation")
    replication: int = Field(1, ge=1, description="copies of every topic; 3 in production")
    log_level: LogLevel = Field("info", description="debug, info, warning or error")

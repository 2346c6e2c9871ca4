"""What the remediation service reads from its environment (prefix ``LINESIDE_``), once, at start."""

import ipaddress
from pathlib import Path
from typing import Self

from pydantic import Field, model_validator

from lineside.kit.settings import API_PORT, BusSettings, home
from lineside.remediation.ladder import Costs
from lineside.remediation.policy import Mode, PolicyConfig


def default_database_url() -> str:
    """SQLite in Lineside's own folder, which is created with it."""
    return f"sqlite:///{home() / 'lineside.db'}"


class DatabaseSettings(BusSettings):
    """All that the database commands need."""

    database_url: str = Field(
        default_factory=default_database_url,
        description="SQLAlchemy URL of the incident history: sqlite:///FILE (others are not tested yet)",
    )


class RemediationSettings(DatabaseSettings):
    """The service's settings. Production's defaults; the demo shortens the holds."""

    api_host: str = Field("127.0.0.1", description="address of the API; loopback only")
    api_port: int = Field(API_PORT, ge=0, le=65535, description="port of the API; 0: any free one")
    mode: Mode = Field(Mode.OBSERVE, description="observe: record what would be done; auto: do it")
    signing_key_file: Path | None = Field(
        None,
        description="PEM file of the Ed25519 key that signs plans and requests; none: unsigned",
    )
    rebalance_cost_s: float = Field(
        15.0,
        ge=0,
        description="seconds of training that a rebalancing costs; it is due at that impact",
    )
    verify_steps: int = Field(
        50, ge=2, description="steps under a plan before its effect is judged"
    )
    verify_timeout_s: float = Field(
        600.0, gt=0, description="seconds after which a plan's effect counts as not to be told"
    )
    undo_hold_s: float = Field(
        600.0, ge=0, description="seconds a fault must be gone before its remedy is undone"
    )
    flap_window_s: float = Field(
        600.0, ge=0, description="a fault that returns within so many seconds reopens its incident"
    )
    fault_wait_s: float = Field(
        1.0,
        ge=0,
        description="seconds a fault waits for others before it opens or joins an incident",
    )
    plan_valid_s: float = Field(60.0, gt=0, description="seconds in which a plan must be applied")
    max_failures: int = Field(
        3, ge=1, description="plans in a row that come to nothing before a person is asked"
    )
    health_keep_s: float = Field(
        3600.0, ge=60, description="seconds for which health samples are kept per run"
    )

    @model_validator(mode="after")
    def _loopback_only(self) -> Self:
        host = "127.0.0.1" if self.api_host == "localhost" else self.api_host
        try:
            loopback = ipaddress.ip_address(host).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise ValueError(
                f"LINESIDE_API_HOST={self.api_host}: the API has no access control yet and serves loopback "
                "only. Use 127.0.0.1, and a proxy or an SSH tunnel to reach it from elsewhere"
            )
        return self

    def policy(self) -> PolicyConfig:
        return PolicyConfig(
            mode=self.mode,
            costs=Costs(rebalance_s=self.rebalance_cost_s),
            verify_steps=self.verify_steps,
            verify_timeout_ns=_ns(self.verify_timeout_s),
            undo_hold_ns=_ns(self.undo_hold_s),
            max_failures=self.max_failures,
        )

    @property
    def flap_window_ns(self) -> int:
        return _ns(self.flap_window_s)

    @property
    def fault_wait_ns(self) -> int:
        return _ns(self.fault_wait_s)

    @property
    def plan_valid_ns(self) -> int:
        return _ns(self.plan_valid_s)

    @property
    def health_keep_ns(self) -> int:
        return _ns(self.health_keep_s)


def _ns(seconds: float) -> int:
    return round(seconds * 1e9)

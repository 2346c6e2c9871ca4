"""What every stream processor reads from its environment."""

from pydantic import Field

from lineside.kit.settings import BusSettings


class StreamSettings(BusSettings):
    """Each processor derives its own settings from these."""

    snapshot_interval_s: float = Field(
        30.0,
        gt=0,
        description="seconds between snapshots of the detectors' state; a restart replays at most so much",
    )
    session_timeout_s: float = Field(
        10.0,
        ge=1,
        description="seconds after which the partitions of a killed worker go to another",
    )
    lag_interval_s: float = Field(
        5.0, gt=0, description="seconds between looks at how far the log is ahead"
    )
    metrics_port: int = Field(
        0, ge=-1, description="port of /metrics, /healthz and /readyz; 0 any free one, -1 none"
    )

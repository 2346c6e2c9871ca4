"""All of FALCON's numbers in one place; each part's own stand beside it, with their reasons."""

from dataclasses import dataclass, field

from lineside.falcon.assembly import AssemblyConfig
from lineside.falcon.health import HealthConfig
from lineside.falcon.tracking import TrackingConfig


@dataclass(frozen=True, kw_only=True, slots=True)
class FalconConfig:
    """``hold_s``: how long rows wait for their Job; ``hold_bytes`` bounds what waits: 30 s of
    10,240 ranks at one step a second is 25 MB. ``health_s``: at most one JobHealth in so many seconds.
    """

    assembly: AssemblyConfig = field(default_factory=AssemblyConfig)
    tracking: TrackingConfig = field(default_factory=TrackingConfig)
    health: HealthConfig = field(default_factory=HealthConfig)
    hold_s: float = 30.0
    hold_bytes: int = 64 * 1024 * 1024
    health_s: float = 1.0

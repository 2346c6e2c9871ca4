"""What an agent reads from its environment, once, at start."""

from pathlib import Path

from pydantic import Field

from lineside.agent.kernel_log import KMSG
from lineside.kit.settings import BusSettings


class AgentSettings(BusSettings):
    """Prefix ``LINESIDE_``; what the agent is to run comes in the file ``agent_spec``."""

    agent_spec: Path = Field(description="JSON file of an AgentSpec, written by the launcher")
    trusted_keys: str = Field(
        "",
        description="public keys (base64, apart by commas) that must have signed plans and requests; "
        "empty: local mode, unsigned ones are taken",
    )
    spool_bytes: int = Field(
        64 * 1024 * 1024, ge=0, description="what may wait on disk while Kafka is away"
    )
    queue_records: int = Field(
        100, ge=1, description="what may wait in memory before that, and is lost if the agent dies"
    )
    kernel_log: Path | None = Field(
        KMSG, description="where kernel events are read: /dev/kmsg, or a file that is written to"
    )
    silent_after_s: float = Field(
        5.0, gt=0, description="a rank that writes nothing for so long is reported silent"
    )
    failure_grace_s: float = Field(
        5.0, ge=0, description="after a rank failed, how long the others may still be observed"
    )
    stop_grace_s: float = Field(
        5.0, ge=0, description="between SIGTERM and SIGKILL when ranks are stopped"
    )

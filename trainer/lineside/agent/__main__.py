"""``python -m lineside.agent``: run the share of a job that ``LINESIDE_AGENT_SPEC`` describes."""

import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import msgspec

from lineside.agent.agent import Agent
from lineside.agent.inbox import Inbox
from lineside.agent.settings import AgentSettings
from lineside.agent.spec import AgentSpec
from lineside.bus.kafka import KafkaBus
from lineside.contracts.signatures import BadKey, Trust
from lineside.kit.logging import configure
from lineside.kit.settings import read

_log = logging.getLogger("lineside.agent")


def main() -> int:
    settings = read(AgentSettings)
    try:
        spec = msgspec.json.decode(settings.agent_spec.read_bytes(), type=AgentSpec)
    except (OSError, msgspec.MsgspecError) as error:
        print(f"LINESIDE_AGENT_SPEC must name the launcher's file: {error}", file=sys.stderr)
        return os.EX_USAGE
    configure(settings.log_level)
    try:
        trust = Trust(settings.trusted_keys)
    except BadKey as error:
        print(f"LINESIDE_TRUSTED_KEYS: {error}", file=sys.stderr)
        return os.EX_CONFIG
    bus = _bus(settings)
    # Records wait for Kafka as long as there is room: none is given up for its age.
    sending = _bus(settings, {"message.timeout.ms": 0})
    Path(spec.run_dir).mkdir(parents=True, exist_ok=True, mode=0o700)
    inbox = Inbox(spec, bus, trust)
    agent = Agent(spec, settings, sending=sending, inbox=inbox, environment=dict(os.environ))

    def asked(*_: Any) -> None:
        agent.ask_to_stop()

    signal.signal(signal.SIGTERM, asked)
    signal.signal(signal.SIGINT, asked)
    outcome = agent.run()
    _log.info("%s %s", outcome.state, outcome.detail)
    draft = spec.folder / "outcome.new"
    draft.write_bytes(msgspec.json.encode(outcome))
    draft.replace(spec.folder / "outcome.json")
    return outcome.exit_code


def _bus(settings: AgentSettings, producer: dict[str, str | int] | None = None) -> KafkaBus:
    return KafkaBus(
        bootstrap=settings.bootstrap,
        prefix=settings.topic_prefix,
        partitions=settings.partitions,
        settings=producer,
        queue_records=settings.queue_records,
    )


if __name__ == "__main__":
    sys.exit(main())

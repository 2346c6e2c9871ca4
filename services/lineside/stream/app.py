"""The faust shell: the consumer group delivers, ``attendant`` does the rest. The only file that names faust.

No tables (they lose records: docs/adr/0001-state-outside-faust.md), one agent over all inputs, raw bytes, no
web server, offsets committed by faust only to know where it stands itself (what counts are the offsets in
our snapshots).
"""

import logging
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NoReturn

import faust
from faust.types import TP

from lineside.bus import Bus, BusMisuse, BusUnavailable, Message
from lineside.bus.kafka import KafkaBus
from lineside.contracts import TopicName
from lineside.kit import metrics
from lineside.kit.logging import configure
from lineside.stream.attendant import Attendant
from lineside.stream.processor import Processor
from lineside.stream.quiet import quieten
from lineside.stream.readiness import Readiness
from lineside.stream.settings import StreamSettings
from lineside.stream.worker import Worker

log = logging.getLogger("lineside.stream")

_SAVE_S = 10.0
"""How long a snapshot may take to be acknowledged."""
_HANDOVER_S = 5.0
"""The same while the group waits for us to let partitions go."""
_POLL_S = 0.1
_RETRY_S = 1.0
_EXIT_MISUSE = 78  # EX_CONFIG: starting again will not help


def run(processor: Processor, settings: StreamSettings) -> NoReturn:
    """Serve ``processor`` until SIGTERM or SIGINT; exits 0 with the state saved, 78 where the topics are
    missing or have another number of partitions, 1 after a crash (start it again)."""
    configure(settings.log_level)
    quieten()
    for number in (signal.SIGTERM, signal.SIGINT):  # until faust takes over
        signal.signal(number, lambda *_: sys.exit(0))
    readiness = Readiness()
    if settings.metrics_port >= 0:
        port = metrics.serve(settings.metrics_port, readiness)
        log.info("%s: metrics and readiness on http://127.0.0.1:%d", processor.name, port)
    bus = KafkaBus(settings.bootstrap, settings.topic_prefix, settings.partitions)
    try:
        _await_topics(bus, processor, readiness)
    except BusMisuse as error:
        log.error("%s", error)
        sys.exit(_EXIT_MISUSE)
    with tempfile.TemporaryDirectory(prefix="lineside-") as folder:
        app = build(processor, settings, bus, readiness, Path(folder))
        worker = faust.Worker(app, quiet=True, override_logging=False, redirect_stdouts=False)
        worker.spinner = None  # it writes escape codes into logs
        worker.execute_from_commandline()


def _await_topics(bus: Bus, processor: Processor, readiness: Readiness) -> None:
    """Wait for the broker; the topics must be there. Raises ``BusMisuse``."""
    admin, told = bus.admin(), False
    needed = (*processor.inputs, TopicName.DETECTOR_STATE, TopicName.DEAD_LETTERS)
    while True:
        try:
            for topic in needed:
                found = admin.partitions(topic)
                if not found:
                    raise BusMisuse(f"topic {topic} is missing: run `lineside topics create`")
                if found != bus.partitions:
                    raise BusMisuse(
                        f"topic {topic} has {found} partitions, LINESIDE_PARTITIONS says {bus.partitions}"
                    )
            break
        except BusUnavailable as error:
            if not told:
                log.warning("%s waits: %s", processor.name, error)
            told, readiness.phase = True, "waiting for Kafka"
            time.sleep(_RETRY_S)
    admin.close()


def build(
    processor: Processor, settings: StreamSettings, bus: Bus, readiness: Readiness, folder: Path
) -> Any:
    """The faust app of ``processor``, wired to an attendant. ``folder``: scratch space of faust's own."""
    app = _app(processor.name, settings, folder)
    names = {f"{settings.topic_prefix}{topic}": topic for topic in processor.inputs}

    attendant = Attendant(Worker(processor, bus))
    readiness.attendant = attendant

    async def feed(stream: Any) -> None:
        async for event in stream.events():
            attendant.deliver(_received(event.message, names))
            await attendant.drained()

    async def assigned(_: Any, assigned: set[TP], **__: Any) -> None:
        attendant.assign(_whole(assigned, names))

    async def revoked(*_: Any, **__: Any) -> None:
        attendant.suspend()
        await attendant.save(_HANDOVER_S)

    async def stopping(*_: Any, **__: Any) -> None:
        if not await attendant.close(_SAVE_S):
            log.warning("not everything could be saved; the next worker replays it from the log")

    async def save() -> None:
        await attendant.save(_SAVE_S)

    async def poll() -> None:
        attendant.worker.outbox.poll()

    inputs = app.topic(*names, key_type=bytes, value_type=bytes, partitions=settings.partitions)
    app.agent(inputs, name="feed")(feed)
    app.on_partitions_assigned.connect(assigned)
    app.on_partitions_revoked.connect(revoked)
    app.on_before_shutdown.connect(stopping)
    app.timer(settings.snapshot_interval_s)(save)
    app.timer(settings.lag_interval_s)(attendant.look)
    app.timer(_POLL_S)(poll)
    return app


def _app(name: str, settings: StreamSettings, folder: Path) -> Any:
    return faust.App(
        f"{settings.topic_prefix}{name}",
        broker=[f"kafka://{host.strip()}" for host in settings.bootstrap.split(",")],
        datadir=folder,
        store="memory://",
        key_serializer="raw",
        value_serializer="raw",
        topic_partitions=settings.partitions,
        topic_allow_declare=False,
        topic_disable_leader=True,
        web_enabled=False,
        # Above 0 it selects the assignor that gives one worker the same partition of every input.
        table_standby_replicas=1,
        consumer_auto_offset_reset="earliest",
        broker_session_timeout=settings.session_timeout_s,
        broker_heartbeat_interval=settings.session_timeout_s / 5,
        broker_commit_interval=1.0,
        consumer_max_fetch_size=4_194_304,
        stream_buffer_maxsize=16_384,
        stream_wait_empty=True,
        worker_redirect_stdouts=False,
    )


def _received(message: Any, names: dict[str, TopicName]) -> Message:
    return Message(
        topic=names[message.topic],
        partition=message.partition,
        offset=message.offset,
        timestamp_ms=round(message.timestamp * 1000),
        key=message.key,
        value=message.value,
        headers=dict(message.headers or ()),
    )


def _whole(assigned: set[TP], names: dict[str, TopicName]) -> set[int]:
    """The partitions of which we have every input."""
    mine = [{tp.partition for tp in assigned if tp.topic == name} for name in names]
    whole = set.intersection(*mine)
    if torn := set.union(*mine) - whole:
        log.error("partitions %s are ours for some inputs only; they wait", sorted(torn))
    return whole

"""``python -m lineside.remediation``: consumes in the main thread, serves the API from another."""

import logging
import os
import signal
import sys
import threading
import time
from contextlib import ExitStack

from lineside.bus import BusError
from lineside.bus.kafka import KafkaBus
from lineside.contracts.signatures import BadKey
from lineside.kit import logging as kit_logging
from lineside.kit.settings import read
from lineside.remediation.api import ApiServer, PortTaken, Service, create_app
from lineside.remediation.api.app import Pulse
from lineside.remediation.metrics import Metrics
from lineside.remediation.processor import Processor
from lineside.remediation.settings import RemediationSettings
from lineside.remediation.store import Store, StoreError

log = logging.getLogger("lineside.remediation")


def main() -> int:
    settings = read(RemediationSettings)
    kit_logging.configure(settings.log_level)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        return serve(settings, stop)
    except (StoreError, PortTaken, BusError) as error:
        print(error, file=sys.stderr)
        return os.EX_UNAVAILABLE
    except BadKey as error:
        print(f"LINESIDE_SIGNING_KEY_FILE: {error}", file=sys.stderr)
        return os.EX_CONFIG


def serve(settings: RemediationSettings, stop: threading.Event) -> int:
    """Until ``stop`` is set. Raises ``StoreError``, ``PortTaken``, ``BusError``, ``BadKey``."""
    with ExitStack() as ends:
        store = Store(settings.database_url)
        ends.callback(store.close)
        store.upgrade()
        metrics = Metrics(store)
        service = Service(
            store=store,
            settings=settings,
            registry=metrics.registry,
            pulse=lambda: Pulse(
                lag=processor.lag,
                last_record_ns=processor.last_record_ns,
                last_turn_age_s=time.monotonic() - processor.beat_s,
            ),
            stopping=stop,
        )
        server = ApiServer(create_app(service), settings.api_host, settings.api_port)
        ends.callback(server.stop)
        ends.callback(stop.set)
        # Only who has the port joins the group: a second service takes no partition from the first.
        bus = KafkaBus(
            bootstrap=settings.bootstrap,
            prefix=settings.topic_prefix,
            partitions=settings.partitions,
            replication=settings.replication,
        )
        processor = Processor(bus, store, settings, metrics)
        ends.callback(processor.close)
        server.start()
        log.info(
            "mode %s, API on http://%s:%d/docs, history in %s",
            settings.mode,
            settings.api_host,
            server.port,
            store.where,
        )
        processor.run(stop)
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The bus that a command talks to: where it is follows from the command line, the environment, or the local
broker that happens to run, in this order."""

import os

from lineside.bus.kafka import KafkaBus
from lineside.bus.local import running_bootstrap
from lineside.kit.settings import BusSettings, read


def open_bus(bootstrap: str | None = None) -> KafkaBus:
    """A bus at ``bootstrap``; None: ``LINESIDE_BOOTSTRAP``, else the running local broker, else port 9092."""
    settings = read(BusSettings)
    if bootstrap is None and "LINESIDE_BOOTSTRAP" not in os.environ:
        bootstrap = running_bootstrap()
    return KafkaBus(
        bootstrap=bootstrap or settings.bootstrap,
        prefix=settings.topic_prefix,
        partitions=settings.partitions,
        replication=settings.replication,
    )

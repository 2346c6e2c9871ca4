"""Records in and out: the port, Kafka, an in-memory bus that passes the same suite, a local broker."""

from lineside.bus.port import (
    Admin,
    Bus,
    BusError,
    BusMisuse,
    BusUnavailable,
    LogReader,
    Message,
    Publisher,
    QueueFull,
    Subscriber,
)

__all__ = [
    "Admin",
    "Bus",
    "BusError",
    "BusMisuse",
    "BusUnavailable",
    "LogReader",
    "Message",
    "Publisher",
    "QueueFull",
    "Subscriber",
]

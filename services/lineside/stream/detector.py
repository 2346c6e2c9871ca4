"""What a detector is to the shell: one object per job, fed record by record."""

from typing import Protocol

from lineside.contracts import Decoded, Fault, JobHealth

Finding = Fault | JobHealth


class JobDetector(Protocol):
    """A detector's core for one job: no clock, no logger, no Kafka, no environment, no threads.

    Records of one topic come in the order of the log, records of different topics in any interleaving;
    what is found must not depend on it. After ``restore`` the object continues exactly where the one that
    made the snapshot stood.
    """

    def observe(self, record: Decoded, now_ns: int) -> list[Finding]:
        """Take in one record; what it led to. ``now_ns``: the largest append time seen so far, in ns.

        An exception is caught by the shell: the record becomes a dead letter and the job goes on.
        """
        ...

    def snapshot(self) -> bytes:
        """The whole state, at most about 4 MB."""
        ...

    def restore(self, state: bytes) -> None:
        """Become what made ``state``; called on a new object only."""
        ...

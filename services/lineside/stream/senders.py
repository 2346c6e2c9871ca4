"""Who sends a job's telemetry, and how much of it never came. Pure: part of the detectors' cores."""

import msgspec

from lineside.contracts.columns import TelemetryBatch


class Sender(msgspec.Struct, array_like=True):
    """One machine's agent. ``sequence`` is its newest batch's, gapless within an ``incarnation``; ``missing``
    batches left no trace, ``dropped`` records were given up by the sender, which said so."""

    incarnation: str
    sequence: int
    batches: int = 0
    missing: int = 0
    dropped: int = 0


class Senders:
    """The senders of one kind of batch, by machine."""

    def __init__(self) -> None:
        self.by_machine: dict[str, Sender] = {}

    def count(self, batch: TelemetryBatch) -> None:
        sender = self.by_machine.get(batch.machine_id)
        if sender is None or sender.incarnation != batch.incarnation:
            sender = Sender(batch.incarnation, batch.sequence - 1)
            self.by_machine[batch.machine_id] = sender
        sender.missing += max(0, batch.sequence - sender.sequence - 1)
        sender.sequence = max(sender.sequence, batch.sequence)
        sender.batches += 1
        sender.dropped += batch.dropped

    def snapshot(self) -> bytes:
        return msgspec.msgpack.encode(self.by_machine)

    def restore(self, state: bytes) -> None:
        self.by_machine = msgspec.msgpack.decode(state, type=dict[str, Sender])

"""The outbox: what is to be published stands in the transaction that made it so, and is sent afterwards.

Sending is at least once and in order: readers tell by plan revision and event id what they have already.
"""

import logging
from collections.abc import Sequence

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from lineside.bus import BusMisuse, Publisher, QueueFull
from lineside.contracts import Decoded, TopicName, WireMessage, encode
from lineside.contracts.signatures import Signer
from lineside.remediation.store import OutboxRow, Store

log = logging.getLogger("lineside.remediation")

_BATCH = 500
_RETRY_NS = 5 * 10**9
"""After records were given up. The client itself has tried for minutes, or there is no such topic: at once
again would only repeat those that did get through, many times a second."""


def put(session: Session, topic: TopicName, record: Decoded, partitions: int, now_ns: int) -> None:
    """``record`` will be published on ``topic``, if the transaction commits."""
    put_message(session, encode(topic, record, partitions), now_ns)


def put_message(session: Session, message: WireMessage, now_ns: int) -> None:
    session.add(
        OutboxRow(
            topic=message.topic,
            partition=message.partition,
            key=message.key,
            value=message.value,
            headers=[[name, value.decode(errors="replace")] for name, value in message.headers],
            created_ns=now_ns,
        )
    )
    session.flush()  # numbers are given in the order of the calls


class Sender:
    """Publishes what stands in the outbox; call ``send`` about every 0.2 s. ``signer`` signs what agents act
    on on its way out: the key is in one place, and the same record always gets the same signature."""

    def __init__(self, store: Store, publisher: Publisher, signer: Signer | None = None) -> None:
        self._signer = signer
        self._store = store
        self._publisher = publisher
        self._queued: list[int] = []
        self._failed = publisher.failed()
        self._again_ns = 0

    def send(self, now_ns: int, timeout_s: float = 0.5) -> int:
        """How many records are known to be delivered by this call. What the broker does not confirm in time
        stays queued in the client and is looked at again by the next call."""
        if not self._queued and now_ns >= self._again_ns:
            self._queue()
        if not self._queued:
            self._publisher.poll()
            return 0
        if self._publisher.flush(timeout_s):
            return 0
        queued, self._queued = self._queued, []
        if (failed := self._publisher.failed()) != self._failed:
            self._failed, self._again_ns = failed, now_ns + _RETRY_NS
            return 0  # some were given up, not known which: all are sent again
        self._mark(queued, {"sent_ns": now_ns})
        return len(queued)

    def _queue(self) -> None:
        with self._store.reading() as session:
            rows = session.scalars(
                select(OutboxRow)
                .where(OutboxRow.sent_ns.is_(None), OutboxRow.error.is_(None))
                .order_by(OutboxRow.outbox_id)
                .limit(_BATCH)
            ).all()
        for row in rows:
            message = WireMessage(
                topic=TopicName(row.topic),
                partition=row.partition,
                key=row.key,
                value=row.value,
                headers=tuple((name, value.encode()) for name, value in row.headers),
            )
            if self._signer is not None:
                message = self._signer.sign(message)
            try:
                self._publisher.publish(message)
            except QueueFull:
                return
            except BusMisuse as error:
                log.error("outbox record %d cannot be sent: %s", row.outbox_id, error)
                self._mark([row.outbox_id], {"error": str(error)})
            else:
                self._queued.append(row.outbox_id)

    def _mark(self, ids: Sequence[int], values: dict[str, int | str]) -> None:
        with self._store.writing() as session:
            session.execute(update(OutboxRow).where(OutboxRow.outbox_id.in_(ids)).values(values))

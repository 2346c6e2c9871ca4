"""The shell of the policy: records from the bus into SQL, a turn, the outbox to the bus.

Offsets are committed after the transaction, so a record may come twice but never not at all; every handler
and every turn bears that. Time is the broker's append time; while nothing comes the wall clock moves it.
"""

import logging
import threading
import time
from collections.abc import Callable

from sqlalchemy import delete
from sqlalchemy.exc import DBAPIError, InterfaceError, OperationalError
from sqlalchemy.orm import Session

from lineside.bus import Bus, BusUnavailable, Message
from lineside.contracts import ContractError, dead_letter, decode
from lineside.contracts.signatures import Signer
from lineside.remediation import outbox
from lineside.remediation.advance import advance
from lineside.remediation.history import Turn
from lineside.remediation.intake import HANDLERS
from lineside.remediation.metrics import Metrics
from lineside.remediation.settings import RemediationSettings
from lineside.remediation.store import HealthRow, OutboxRow, ReplyRow, RequestRow, Store

log = logging.getLogger("lineside.remediation")

GROUP = "remediation"
TICK_NS = 10**9
_LIMIT = 500
_PRUNE_NS = 60 * 10**9
_KEEP_NS = 30 * 24 * 3600 * 10**9
"""As long as the alerts topic keeps its records; readers resume from here."""
_RETRY_S = 1.0


class Processor:
    """Call ``step`` again and again, or ``run`` it until told to stop. ``clock`` gives wall time in ns.
    Raises ``BadKey`` where the signing key cannot be used."""

    def __init__(
        self,
        bus: Bus,
        store: Store,
        settings: RemediationSettings,
        metrics: Metrics,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        key = settings.signing_key_file
        signer = Signer.load(key) if key else None
        self._store = store
        self._settings = settings
        self._policy = settings.policy()
        self._metrics = metrics
        self._clock = clock
        self._subscriber = bus.subscriber(tuple(HANDLERS), GROUP)
        self._publisher = bus.publisher()
        self._sender = outbox.Sender(store, self._publisher, signer)
        self._held: list[Message] = []
        self._turned_ns = 0
        self._pruned_ns = 0
        self.now_ns = 0
        self.last_record_ns = -1
        """Append time of the newest record taken in."""
        self.lag = -1
        self.beat_s = time.monotonic()
        """When ``step`` last came through."""

    def step(self, timeout_s: float = 0.2) -> None:
        """Take in what has come, do a turn if something came or a second went by, send what is to be sent.

        After a database error the same records are taken in by the next call.
        """
        if not self._held:
            self._held = self._subscriber.receive(_LIMIT, timeout_s)
        appended = [message.timestamp_ms * 1_000_000 for message in self._held]
        self.now_ns = max([self.now_ns, *(appended or [self._clock()])])
        if self._held or self.now_ns - self._turned_ns >= TICK_NS:
            with self._store.writing() as session:
                for message in self._held:
                    self._take_in(session, message)
                advance(Turn(session, self.now_ns, self._settings), self._policy)
                self._prune(session)
            self._turned_ns = self.now_ns
            self._subscriber.commit()
            self._held = []
            self.last_record_ns = max([self.last_record_ns, *appended])
            self.lag = self._subscriber.lag()
            self._metrics.lag.set(self.lag)
        self._sender.send(self.now_ns)
        self.beat_s = time.monotonic()

    def run(self, stop: threading.Event) -> None:
        """``step`` until ``stop`` is set. A database or broker that is away is waited for."""
        while not stop.is_set():
            try:
                self.step()
            except (OperationalError, InterfaceError) as error:
                log.warning("the database is away, trying again: %s", error.orig)
                stop.wait(_RETRY_S)
            except BusUnavailable as error:
                log.warning("%s", error)
                stop.wait(_RETRY_S)

    def close(self) -> None:
        self._subscriber.close()
        self._publisher.flush(5.0)
        self._publisher.close()

    def _take_in(self, session: Session, message: Message) -> None:
        if message.value is None:
            return  # a tombstone: the run's retention is over, its history stays
        try:
            record = decode(message.topic, message.value, message.headers)
            with session.begin_nested():
                HANDLERS[message.topic](session, record, message.timestamp_ms * 1_000_000)
        except ContractError as error:
            self._bury(session, message, str(error))
        except (OperationalError, InterfaceError):
            raise  # the database, not the record
        except (DBAPIError, ArithmeticError, ValueError) as error:
            self._bury(session, message, f"cannot be kept: {error}")
        else:
            self._metrics.records.labels(message.topic).inc()

    def _bury(self, session: Session, message: Message, reason: str) -> None:
        self._metrics.dead_letters.labels(message.topic).inc()
        log.warning(
            "%s/%d@%d is a dead letter: %s",
            message.topic,
            message.partition,
            message.offset,
            reason,
        )
        letter = dead_letter(
            service=GROUP,
            reason=reason,
            topic=message.topic,
            partition=message.partition,
            offset=message.offset,
            key=message.key,
            value=message.value,
        )
        outbox.put_message(session, letter, self.now_ns)

    def _prune(self, session: Session) -> None:
        """Old health samples, evidence and records sent long ago; the history itself stays."""
        if self.now_ns - self._pruned_ns < _PRUNE_NS:
            return
        self._pruned_ns = self.now_ns
        old_health = self.now_ns - self._settings.health_keep_ns
        session.execute(delete(HealthRow).where(HealthRow.received_ns < old_health))
        session.execute(delete(ReplyRow).where(ReplyRow.received_ns < self.now_ns - _KEEP_NS))
        session.execute(delete(RequestRow).where(RequestRow.created_ns < self.now_ns - _KEEP_NS))
        session.execute(delete(OutboxRow).where(OutboxRow.sent_ns < self.now_ns - _KEEP_NS))

"""The outbox: at least once, and calm where something can never get through."""

from lineside.bus.memory import MemoryBus
from lineside.contracts import TOPICS, TopicName, WireMessage
from lineside.remediation import outbox
from lineside.remediation.store import Store

S = 10**9


def message(topic: TopicName) -> WireMessage:
    return WireMessage(topic=topic, partition=0, key=b"j", value=b"{}", headers=())


def test_what_is_given_up_is_sent_again_but_not_at_once(tmp_path):
    bus = MemoryBus(partitions=1, topics=[TOPICS[TopicName.PLANS]])
    store = Store(f"sqlite:///{tmp_path / 'history.db'}")
    store.upgrade()
    sender = outbox.Sender(store, bus.publisher())
    with store.writing() as session:
        outbox.put_message(session, message(TopicName.PLANS), 0)
        outbox.put_message(session, message(TopicName.ALERTS), 0)
    for now_ns in (0, S, 2 * S, 3 * S):
        assert sender.send(now_ns) == 0
    assert bus.reader().bounds(TopicName.PLANS, 0) == (0, 1)
    bus.create([TOPICS[TopicName.ALERTS]], 1)
    assert sender.send(6 * S) == 2
    assert bus.reader().bounds(TopicName.ALERTS, 0) == (0, 1)
    assert sender.send(7 * S) == 0, "nothing is left"
    store.close()

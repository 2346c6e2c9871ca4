import logging

from lineside.stream.quiet import _AGAIN_S, Seldom


def record(name: str, line: int = 1, level: int = logging.ERROR) -> logging.LogRecord:
    return logging.LogRecord(name, level, "fetcher.py", line, "gone", (), None)


def test_a_library_says_the_same_once_in_a_while() -> None:
    now_s = 1000.0
    seldom = Seldom(lambda: now_s)
    said = [seldom.filter(record("aiokafka.consumer.fetcher")) for _ in range(3)]
    assert said == [True, False, False]
    assert seldom.filter(record("aiokafka.consumer.fetcher", line=2))
    assert seldom.filter(record("aiokafka.consumer.fetcher", level=logging.WARNING))
    now_s += _AGAIN_S
    assert seldom.filter(record("aiokafka.consumer.fetcher"))


def test_our_own_words_always_pass() -> None:
    seldom = Seldom()
    assert all(seldom.filter(record("lineside.stream")) for _ in range(3))

"""faust, mode and aiokafka say the same ten times a second while a broker is away: once in 30 s is enough."""

import logging
import time
from collections.abc import Callable

_AGAIN_S = 30.0
_LOUD = ("aiokafka", "faust", "mode")


class Seldom(logging.Filter):
    """Passes a record whose logger, place and level did not speak for ``_AGAIN_S`` seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._spoken: dict[tuple[str, int, int], float] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        if record.name.partition(".")[0] not in _LOUD:
            return True
        key, now_s = (record.pathname, record.lineno, record.levelno), self._clock()
        if now_s - self._spoken.get(key, -_AGAIN_S) < _AGAIN_S:
            return False
        self._spoken[key] = now_s
        return True


def quieten() -> None:
    """Filter what the process's handlers print."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(Seldom())
    logging.getLogger("mode.timers").setLevel(logging.ERROR)  # a timer that was late is no news

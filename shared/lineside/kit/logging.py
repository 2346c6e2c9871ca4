"""Log lines on stderr: one line each, named by purpose (``lineside.falcon``, ``lineside.agent``)."""

import logging
import time

_QUIET = ("aiokafka", "faust", "mode", "kafka", "httpx", "httpcore", "alembic", "uvicorn.access")


def configure(level: str = "info") -> None:
    """Set up logging for a process. Libraries speak from warning on."""
    handler = logging.StreamHandler()
    formatter = logging.Formatter(
        "%(asctime)s.%(msecs)03dZ %(levelname)s %(name)s: %(message)s", "%Y-%m-%dT%H:%M:%S"
    )
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    for name in _QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)

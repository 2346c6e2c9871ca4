"""The shell that the stream processors share: every record of a job reaches its detector exactly once.

A processor says which topics it reads and how a job's detector is made (``Processor``); ``run`` does the
rest: the consumer group, snapshots, replay, dead letters, lag and readiness. Only this room knows faust.
"""

from lineside.stream.detector import Finding, JobDetector
from lineside.stream.processor import Processor
from lineside.stream.settings import StreamSettings

__all__ = ["Finding", "JobDetector", "Processor", "StreamSettings"]

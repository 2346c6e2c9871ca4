"""Binds the core to the stream room."""

from lineside.contracts import TopicName
from lineside.minder.detector import MinderDetector
from lineside.stream import Processor

PROCESSOR = Processor(
    name="minder",
    inputs=(TopicName.JOBS, TopicName.MACHINE_METRICS),
    make=lambda job_id: MinderDetector(),
)

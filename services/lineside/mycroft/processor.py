"""Binds the core to the stream room."""

from lineside.contracts import TopicName
from lineside.mycroft.detector import MycroftDetector
from lineside.stream import Processor

PROCESSOR = Processor(
    name="mycroft",
    inputs=(TopicName.JOBS, TopicName.COLLECTIVES),
    make=lambda job_id: MycroftDetector(),
)

"""Binds the core to the stream room."""

from lineside.contracts import TopicName
from lineside.falcon.config import FalconConfig
from lineside.falcon.detector import FalconDetector
from lineside.stream import Processor

PROCESSOR = Processor(
    name="falcon",
    inputs=(TopicName.JOBS, TopicName.STEPS),
    make=lambda job_id: FalconDetector(FalconConfig(), job_id),
)

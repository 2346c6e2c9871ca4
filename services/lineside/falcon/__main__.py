"""``python -m lineside.falcon``: the worker process."""

from lineside.falcon.processor import PROCESSOR
from lineside.falcon.settings import FalconSettings
from lineside.kit.settings import read
from lineside.stream.app import run

if __name__ == "__main__":
    run(PROCESSOR, read(FalconSettings))

"""``python -m lineside.minder``: the worker process."""

from lineside.kit.settings import read
from lineside.minder.processor import PROCESSOR
from lineside.minder.settings import MinderSettings
from lineside.stream.app import run

if __name__ == "__main__":
    run(PROCESSOR, read(MinderSettings))

"""``python -m lineside.mycroft``: the worker process."""

from lineside.kit.settings import read
from lineside.mycroft.processor import PROCESSOR
from lineside.mycroft.settings import MycroftSettings
from lineside.stream.app import run

if __name__ == "__main__":
    run(PROCESSOR, read(MycroftSettings))

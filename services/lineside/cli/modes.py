"""How much Lineside may do by itself."""

from enum import StrEnum


class Mode(StrEnum):
    OBSERVE = "observe"
    AUTO = "auto"

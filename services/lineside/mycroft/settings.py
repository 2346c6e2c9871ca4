"""What Mycroft reads from its environment."""

from lineside.stream import StreamSettings


class MycroftSettings(StreamSettings):
    """Nothing beyond what every stream processor reads."""

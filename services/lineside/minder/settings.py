"""What Minder reads from its environment."""

from lineside.stream import StreamSettings


class MinderSettings(StreamSettings):
    """Nothing beyond what every stream processor reads."""

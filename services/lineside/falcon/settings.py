"""What FALCON reads from its environment."""

from lineside.stream import StreamSettings


class FalconSettings(StreamSettings):
    """Nothing beyond what every stream processor reads."""

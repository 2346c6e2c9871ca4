"""``lineside demo``: a real run, a real fault, found and healed, in one command.

Every part is a process of its own, as in production; the demo only starts them, slows one rank from outside,
and watches the same topics and API that anybody can. ``measure`` is its arithmetic, ``screen`` its face.
"""

from lineside.cli.demo.command import demo

__all__ = ["demo"]

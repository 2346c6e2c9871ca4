"""The flight recorder that a training script imports: ``from lineside.probe import Probe``.

It writes into one memory-mapped file per rank and does nothing else: no thread, no socket, no lock. The
agent reads the file from outside, so the last state of a rank that is hung, stopped or killed can still be
read, and nothing that happens to the agent or to Kafka can hold up a training step.
"""

from lineside.probe.collectives import Ticket
from lineside.probe.probe import Probe

__all__ = ["Probe", "Ticket"]

"""One agent per machine: it starts the ranks, reads what their probes write, samples the machine, publishes a
batch of each kind every second, and hands the newest plan over. The launcher starts agents.

Nothing here is in a training step's way: an agent that dies, or a Kafka that is away, changes no step.
"""

"""The pipeline's point-to-point traffic: one outbox or inbox per neighbour and direction.

Both are asynchronous by exactly one message: a receive is posted while the work before it is still computed,
and a send is waited for only before the next one to the same neighbour. Under 1F1B this cannot deadlock (the
neighbour has always posted the message before), and it bounds what is in flight.
"""

from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor

from lineside.contracts import Op, p2p_group_id
from lineside.probe import Probe, Ticket

_InFlight = tuple[dist.Work, Tensor, Ticket | None]


class Outbox:
    """Sends from rank ``me`` to rank ``peer``, in order."""

    def __init__(self, me: int, peer: int, probe: Probe) -> None:
        self._peer = peer
        self._flow = p2p_group_id(me, peer)
        self._probe = probe
        self._open: _InFlight | None = None

    def send(self, tensor: Tensor) -> None:
        """Hand over ``tensor``, which must not be written to until ``settle`` or the next ``send``."""
        self.settle()
        with self._probe.phase("comm"):
            ticket = self._probe.enqueue(self._flow, Op.SEND, tensor.nbytes)
            self._probe.started(ticket)
            work = cast(dist.Work, dist.isend(tensor, self._peer))
            self._open = work, tensor, ticket

    def settle(self) -> None:
        """Wait until what was sent last has left."""
        if self._open is None:
            return
        work, _, ticket = self._open
        with self._probe.phase("comm"):
            work.wait()
        self._probe.completed(ticket)
        self._open = None


class Inbox:
    """Receives what ``peer`` sends to ``me``: tensors of one shape and type, in order."""

    def __init__(
        self, peer: int, me: int, shape: tuple[int, ...], dtype: torch.dtype, probe: Probe
    ) -> None:
        self._peer = peer
        self._flow = p2p_group_id(peer, me)
        self._shape = shape
        self._dtype = dtype
        self._probe = probe
        self._posted: _InFlight | None = None

    def post(self) -> _InFlight:
        """Be ready for the next tensor, so that it travels while this rank computes."""
        buffer = torch.empty(self._shape, dtype=self._dtype)
        ticket = self._probe.enqueue(self._flow, Op.RECV, buffer.nbytes)
        work = cast(dist.Work, dist.irecv(buffer, self._peer))
        self._posted = work, buffer, ticket
        return self._posted

    def take(self) -> Tensor:
        """The next tensor; blocks until it has come. It counts as started when it is waited for."""
        work, buffer, ticket = self._posted or self.post()
        with self._probe.phase("comm"):
            self._probe.started(ticket)
            work.wait()
            self._probe.completed(ticket)
        self._posted = None
        return buffer

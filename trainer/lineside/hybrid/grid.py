"""Which place a rank has in the data x pipeline grid, and the process groups that come with it."""

from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist

from lineside.contracts import Mesh, group_id


@dataclass(frozen=True, kw_only=True, slots=True)
class Grid:
    """A rank's coordinates. ``replicas`` is the process group of the ranks that hold the same stage."""

    mesh: Mesh
    rank: int
    replica: int
    stage: int
    replicas: dist.ProcessGroup
    replicas_id: str
    world_id: str

    @classmethod
    def join(cls, dp: int, pp: int, timeout: timedelta) -> "Grid":
        """Build the groups; to be called by every rank of an initialised process group. The timeout is given
        to each group, because a new group has PyTorch's 30 minutes otherwise."""
        mesh = Mesh(axes=["dp", "pp"], sizes=[dp, pp])
        if mesh.world_size != dist.get_world_size():
            raise ValueError(f"dp {dp} x pp {pp} is not {dist.get_world_size()} ranks")
        rank = dist.get_rank()
        place = mesh.coordinates(rank)
        peers = mesh.groups("dp")
        groups = [dist.new_group(ranks, timeout=timeout) for ranks in peers]
        return cls(
            mesh=mesh,
            rank=rank,
            replica=place["dp"],
            stage=place["pp"],
            replicas=next(group for group in groups if isinstance(group, dist.ProcessGroup)),
            replicas_id=group_id("dp", peers[place["pp"]]),
            world_id=group_id("world", range(mesh.world_size)),
        )

"""Which ranks may be compared: the peers of a rank do the same work on the same kind of machine.

Peers share the pipeline stage (mesh axis ``pp``) and the declared hardware; all other axes (dp, tp, cp, ep)
split work evenly. A rank without any such peer is *lonely*: it can be compared with the others only by how
far each has moved from its own past.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lineside.contracts import Job

Indexes = NDArray[np.intp]

_LARGEST = 131_072  # ranks; a mesh beyond it is taken for a mistake


@dataclass(frozen=True, slots=True)
class Topology:
    """The ranks of one generation; series i belongs to rank ``ranks[i]``.

    ``classes`` (classes, widest) lists the series of each peer class, ``cells`` (replicas, stages, ranks
    per cell) those of each data-parallel replica's pipeline stages; -1 pads. ``meshed`` is false where no
    Job said how ranks are arranged: then all are one class, each its own replica, and more ranks may turn
    up.
    """

    ranks: NDArray[np.int64]
    classes: Indexes
    lonely: NDArray[np.bool_]
    class_of: Indexes
    cells: Indexes
    meshed: bool
    virtual_stages: int = 1

    @property
    def size(self) -> int:
        return len(self.ranks)

    def peers(self, series: int) -> Indexes:
        """The series that ``series`` is compared with, itself left out."""
        row = self.classes[self.class_of[series]]
        others: Indexes = row[(row >= 0) & (row != series)]
        return others


def of_ranks(ranks: Sequence[int]) -> Topology:
    """Ranks of which nothing is known but their numbers, in the order given."""
    size = len(ranks)
    return Topology(
        ranks=np.asarray(ranks, np.int64),
        classes=np.arange(size)[None, :],
        lonely=np.full(size, size == 1),
        class_of=np.zeros(size, np.intp),
        cells=np.arange(size)[:, None, None],
        meshed=False,
    )


def of_job(job: Job) -> Topology | None:
    """What the Job says, or None where it declares no (plausible) mesh.

    >>> from lineside.contracts import Job, Mesh
    >>> of_job(Job(job_id="j", run_id="r", mesh=Mesh(["dp", "pp"], [2, 2]))).classes.tolist()
    [[0, 2], [1, 3]]
    """
    mesh = job.mesh
    if not mesh.axes or not 0 < mesh.world_size <= _LARGEST:
        return None
    size = mesh.world_size
    place = dict(zip(mesh.axes, np.unravel_index(np.arange(size), mesh.sizes), strict=True))
    nowhere = np.zeros(size, np.intp)
    stage, replica = place.get("pp", nowhere), place.get("dp", nowhere)
    kinds = sorted({machine.hardware for machine in job.machines} | {""})
    hardware = np.zeros(size, np.intp)
    for machine in job.machines:
        for device in machine.devices:
            if 0 <= device.rank < size:
                hardware[device.rank] = kinds.index(machine.hardware)
    classes, class_of = _classes(stage * len(kinds) + hardware)
    lonely = np.count_nonzero(classes >= 0, axis=1)[class_of] == 1
    if lonely.any():  # lonely ranks keep each other company
        classes, class_of = _classes(np.where(lonely, len(classes), class_of))
    cells = np.lexsort((stage, replica)).reshape(replica.max() + 1, stage.max() + 1, -1)
    return Topology(
        ranks=np.arange(size),
        classes=classes,
        lonely=lonely,
        class_of=class_of,
        cells=cells,
        meshed=True,
        virtual_stages=max(job.virtual_stages, 1),
    )


def _classes(label: Indexes) -> tuple[Indexes, Indexes]:
    """Members of each label, padded with -1, and each series' row among them."""
    _, row, sizes = np.unique(label, return_inverse=True, return_counts=True)
    order = np.argsort(row, kind="stable")
    column = np.arange(len(label)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    classes = np.full((len(sizes), sizes.max()), -1, np.intp)
    classes[row[order], column] = order
    return classes, row.astype(np.intp)

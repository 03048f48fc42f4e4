"""Head by head: lists against each other, against those of the backward pass, and against the mask."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from attnctl_kernels.block_arrays import BACKWARD, FORWARD, KINDS, BlockArrays
from attnctl_kernels.block_arrays.lists import SHOWN, Places, grid
from attnctl_kernels.contract import Mask, PassName
from attnctl_kernels.masks import EMPTY, PARTIAL, classify

Grid = NDArray[np.bool_]


@dataclass(slots=True)
class Heads:
    """Blocks that are listed wrongly; the last number of a place is the block."""

    both: Places = field(default_factory=Places)  # in two lists of one row
    missing: Places = field(default_factory=Places)  # seen by the mask, listed nowhere
    extra: Places = field(default_factory=Places)  # listed, and the mask sees nothing of them
    not_full: Places = field(default_factory=Places)  # listed as full, and the mask sees a part


def against_mask(arrays: BlockArrays, pass_name: PassName, blocks: int, classes: NDArray[np.int8] | None) -> Heads:
    """Every head of a pass; ``classes`` with the pass's rows as rows, None: there is no mask to compare with."""
    found = Heads()
    size = arrays.sizes(pass_name)
    for batch, head in product(*map(range, size[:2])):
        kinds = _grids(arrays, pass_name, (batch, head), blocks)
        listed = np.zeros((size[2], blocks), dtype=bool)
        for each in kinds.values():
            _add(found.both, listed & each, batch, head)
            listed |= each
        if classes is None:
            continue
        _add(found.missing, (classes != EMPTY) & ~listed, batch, head)
        _add(found.extra, (classes == EMPTY) & listed, batch, head)
        if "full" in kinds:
            _add(found.not_full, (classes == PARTIAL) & kinds["full"], batch, head)
    return found


def against_backward(arrays: BlockArrays, blocks_q: int, blocks_kv: int) -> tuple[Places, Places]:
    """Query and key blocks that one pass lists and the other does not: of forward alone, of backward alone."""
    forward, backward = Places(), Places()
    sizes = arrays.sizes(FORWARD), arrays.sizes(BACKWARD)
    for batch, head in product(*(range(max(pair)) for pair in zip(*(size[:2] for size in sizes), strict=True))):
        one = _union(_grids(arrays, FORWARD, (batch, head), blocks_kv))
        other = _union(_grids(arrays, BACKWARD, (batch, head), blocks_q)).T
        _add(forward, one & ~other, batch, head)
        _add(backward, other & ~one, batch, head)
    return forward, backward


def classes_of(mask: Mask, seqlens: tuple[int, int], block: tuple[int, int], pass_name: PassName) -> Any:
    """The mask's blocks with the pass's rows as rows."""
    classes = classify(mask, *seqlens, *block)
    return classes if pass_name == FORWARD else classes.T


def _union(kinds: dict[str, Grid]) -> Grid:
    listed: Grid = np.logical_or.reduce(list(kinds.values()))
    return listed


def _grids(arrays: BlockArrays, pass_name: PassName, at: tuple[int, int], blocks: int) -> dict[str, Grid]:
    found: dict[str, Grid] = {}
    for kind in KINDS:
        count, index = arrays.pair(pass_name, kind)
        if count is not None and index is not None:
            place = at[0] % len(count), at[1] % count.shape[1]
            found[kind] = grid(count[place], index[place], blocks)
    return found


def _add(places: Places, wrong: Grid, batch: int, head: int) -> None:
    count = int(np.count_nonzero(wrong))
    if count:
        rows = np.flatnonzero(wrong.any(axis=1))[:SHOWN]
        places.add(((batch, head, int(row), int(block)) for row in rows for block in np.flatnonzero(wrong[row])), count)

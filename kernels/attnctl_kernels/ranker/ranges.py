"""The range of keys that each query row sees, as the kernel takes masks other than history and candidates."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from attnctl_kernels.contract import Mask
from attnctl_kernels.masks import pattern


def ranges(mask: Mask, seqlen_q: int, seqlen_k: int) -> NDArray[np.int32]:
    """``[seqlen_q, 2]``: row ``i`` sees keys ``[begin, end)``. Neither ever falls from one row to the next.

    Raises:
        ValueError: the mask lacks a fact, contradicts the lengths, or is not of this kind.
    """
    strips = pattern(mask, seqlen_q, seqlen_k).strips().cut(seqlen_q, seqlen_k)
    strip = np.repeat(np.arange(len(strips.row)), strips.height)
    row = strips.row[strip] + np.arange(len(strip)) - np.repeat(np.cumsum(strips.height) - strips.height, strips.height)
    begin, end = np.full(seqlen_q, seqlen_k), np.zeros(seqlen_q, dtype=np.int64)
    np.minimum.at(begin, row, strips.start[strip])
    np.maximum.at(end, row, strips.stop[strip])
    blind = end == 0  # rows before the first key, where there are more queries than keys
    begin[blind] = 0
    found = np.stack([begin, end], axis=1)
    if (end - begin).sum() != strips.area() or (np.diff(found, axis=0) < 0).any():
        raise ValueError(f"mask pattern {mask.pattern}: its rows do not see one range of keys each, in ascending order")
    return found.astype(np.int32)

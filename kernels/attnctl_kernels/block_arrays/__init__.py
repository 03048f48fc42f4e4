"""Prebuilt block arrays: their names, and what is wrong with them. NumPy is imported when there are arrays to look at.

Per query block (per key block where the name starts with ``bwd_``) a count and that many indices of blocks to visit:
``mask_block_*`` are seen in part, ``full_block_*`` in full, ``diag_block_*`` along the diagonal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnctl_kernels.contract import PassName

if TYPE_CHECKING:
    from numpy.typing import NDArray

KINDS = ("full", "mask", "diag")
FORWARD: PassName = "forward"
BACKWARD: PassName = "backward"
PREFIX: Mapping[PassName, str] = {"forward": "", "backward": "bwd_"}
NAMES = tuple(
    f"{prefix}{kind}_block_{part}"
    for prefix in PREFIX.values()
    for kind in ("mask", "full", "diag")
    for part in ("cnt", "idx")
)
FACTS: Mapping[PassName, tuple[str, ...]] = {  # what batch size, heads, rows and width are called
    "forward": ("batch_size", "num_heads", "num_blocks", "index_width"),
    "backward": ("", "", "num_n_blocks", "backward_index_width"),
}
ALIASES: Mapping[str, str] = {  # of torch's BlockMask
    "kv_num_blocks": "mask_block_cnt",
    "kv_indices": "mask_block_idx",
    "full_kv_num_blocks": "full_block_cnt",
    "full_kv_indices": "full_block_idx",
    "q_num_blocks": "bwd_mask_block_cnt",
    "q_indices": "bwd_mask_block_idx",
    "full_q_num_blocks": "bwd_full_block_cnt",
    "full_q_indices": "bwd_full_block_idx",
}


@dataclass(frozen=True, slots=True, eq=False)
class BlockArrays:
    """The arrays of one file. ``fault`` says why it could not be read; there are no arrays then."""

    name: str  # of the file, for messages
    arrays: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    fault: str = ""
    known: dict[object, Any] = field(default_factory=dict, repr=False)  # what looking through them has told

    def pair(self, pass_name: PassName, kind: str) -> tuple[NDArray[Any] | None, NDArray[Any] | None]:
        """Counts and indices of one kind of list; None where the file has none."""
        stem = f"{PREFIX[pass_name]}{kind}_block"
        return self.arrays.get(f"{stem}_cnt"), self.arrays.get(f"{stem}_idx")

    def facts(self) -> dict[str, Any]:
        """What the arrays say about themselves, in the words of ``layout``; only what is well formed."""
        found: dict[str, Any] = {}
        for pass_name, names in FACTS.items():
            size = self.sizes(pass_name)
            width = max((each.shape[3] for each in self._indices(pass_name) if each.ndim == 4), default=0)
            found |= {name: value for name, value in zip(names, (*size, width), strict=False) if name and value > 0}
        if self.sizes(FORWARD):
            found["has_full_blocks"] = all(each is not None for each in self.pair(FORWARD, "full"))
            found["backward_arrays"] = bool(self.sizes(BACKWARD))
        dtypes = sorted({str(each.dtype) for each in self.arrays.values()}, key=lambda each: each == "int32")
        return found | ({"index_dtype": dtypes[0]} if dtypes else {})

    def _indices(self, pass_name: PassName) -> Iterator[NDArray[Any]]:
        return (index for kind in KINDS if (index := self.pair(pass_name, kind)[1]) is not None)

    def sizes(self, pass_name: PassName) -> tuple[int, ...]:
        """Batch size, heads and rows of the lists of a pass; () where none are well formed."""
        found = (tuple(int(each) for each in index.shape[:3]) for index in self._indices(pass_name) if index.ndim == 4)
        return next(found, ())

"""What is fixed when the backward kernels are compiled; everything else is an argument.

Shared memory holds *parts*: 64 rows of Q, K, V or dO, or 64 x 64 of dS. A wgmma has 64 rows, and a swizzled line has 64
elements: products of parts are whole instructions, and a part is found by its number.
"""

from dataclasses import dataclass
from typing import Any

from attnctl_kernels.ranker import backward_config
from attnctl_kernels.ranker.config import ROWS


@dataclass(frozen=True)
class BackwardTraits:
    dtype: Any
    head_dim: int
    tile_m: int
    tile_n: int
    stages: int
    capped: bool = False  # logits are bounded by a tanh
    ranges: bool = False  # each row sees one range of keys, in place of history and itself
    lse_gradient: bool = False  # the LSE is differentiated as well as the output

    @property
    def warp_groups(self) -> int:
        """That compute, each on one part of the keys."""
        return self.tile_n // ROWS

    @property
    def row_parts(self) -> int:
        """Of one step's queries."""
        return self.tile_m // ROWS

    @property
    def width(self) -> int:
        """Columns of dQ, in whole parts, and of the keys that it is multiplied from."""
        return backward_config.width(self.head_dim)

    @property
    def keys_in_registers(self) -> bool:
        return backward_config.keys_in_registers(self.head_dim)

    @property
    def part(self) -> tuple[int, int]:
        """Rows and columns of a part of Q, K, V and dO, and of what dK and dV of a warp group come from."""
        return ROWS, self.head_dim

    @property
    def squares(self) -> int:
        """Parts of dQ, 64 x 64, that each warp group computes in a step."""
        return self.row_parts * (self.width // ROWS) // self.warp_groups

    def square(self, group: Any, n: int) -> tuple[Any, Any]:
        """The part of the rows and the part of the columns that a warp group's ``n``-th square of dQ is."""
        number = group + n * self.warp_groups if self.warp_groups > 1 else n
        if self.row_parts == 1:
            return 0, number
        return number % self.row_parts, number // self.row_parts

    def num_bytes(self, rows: int) -> int:
        return rows * self.head_dim * self.dtype.width // 8

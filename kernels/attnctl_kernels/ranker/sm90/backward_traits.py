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
    def key_parts(self) -> int:
        return self.tile_n // ROWS

    @property
    def column_parts(self) -> int:
        """Of dK and dV. All warp groups of one part of the keys compute its scores."""
        return backward_config.column_parts(self.head_dim)

    @property
    def warp_groups(self) -> int:
        """That compute: one for each part of the keys and of the columns."""
        return self.key_parts * self.column_parts

    @property
    def row_parts(self) -> int:
        """Of one step's queries."""
        return self.tile_m // ROWS

    @property
    def width(self) -> int:
        """Columns of dQ, in whole pieces, and of the keys that it is multiplied from."""
        return backward_config.width(self.head_dim)

    @property
    def keys_in_registers(self) -> bool:
        return backward_config.keys_in_registers(self.head_dim)

    @property
    def part(self) -> tuple[int, int]:
        """Rows and columns of a part of Q, K, V and dO."""
        return ROWS, self.head_dim

    @property
    def gradient(self) -> tuple[int, int]:
        """Keys and columns of a warp group's dK and dV."""
        return ROWS, self.head_dim // self.column_parts

    @property
    def piece(self) -> tuple[int, int]:
        """Rows and columns of dQ that a warp group multiplies at once."""
        return ROWS, backward_config.piece_columns(self.head_dim)

    @property
    def lines(self) -> tuple[int, int]:
        """What swizzled lines of parts are chosen for: gradients and pieces begin with whole lines."""
        return self.part if self.column_parts == 1 else self.piece

    @property
    def do_stages(self) -> int:
        return backward_config.do_stages(self.head_dim, {"stages": self.stages})

    @property
    def pieces(self) -> int:
        """Of dQ, that each warp group computes in a step."""
        return self.row_parts * (self.width // self.piece[1]) // self.warp_groups

    def place(self, group: Any, n: int) -> tuple[Any, Any]:
        """The part of the rows and the part of the columns that a warp group's ``n``-th piece of dQ is."""
        number = group + n * self.warp_groups if self.warp_groups > 1 else n
        if self.row_parts == 1:
            return 0, number
        return number % self.row_parts, number // self.row_parts

    def num_bytes(self, rows: int) -> int:
        return rows * self.head_dim * self.dtype.width // 8

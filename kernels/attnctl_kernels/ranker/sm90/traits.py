"""What is fixed when the forward kernel is compiled; everything else is an argument."""

from dataclasses import dataclass
from typing import Any

from attnctl_kernels.ranker import config
from attnctl_kernels.ranker.config import ROWS


@dataclass(frozen=True)
class ForwardTraits:
    dtype: Any
    head_dim: int
    tile_m: int
    tile_n: int
    stages: int
    turns: bool
    persistent: bool
    longest_first: bool  # tiles in the order of a list, not of their rows
    balanced: bool  # the tiles of a last round are dealt out in pieces, and groups without rows sit out
    ranges: bool  # one range of keys per row, instead of history and candidates
    capped: bool  # scores pass through a tanh

    @property
    def warp_groups(self) -> int:
        """That compute, each on 64 rows of the tile."""
        return self.tile_m // ROWS

    @property
    def diagonal(self) -> bool:
        """Rows may see their own key beside a range."""
        return not self.ranges

    @property
    def diagonal_in_output(self) -> bool:
        return self.diagonal and config.diagonal_in_output(self.head_dim)

    @property
    def groups_differ(self) -> bool:
        """A warp group may visit other blocks of a tile than the others."""
        return self.ranges or self.balanced

    @property
    def rows(self) -> tuple[int, int]:
        """The box of a warp group's rows: of Q, of O, and of K and V on the diagonal."""
        return ROWS, self.head_dim

    @property
    def block(self) -> tuple[int, int]:
        """The box of one step's keys or values."""
        return self.tile_n, self.head_dim

    def num_bytes(self, rows: int) -> int:
        return rows * self.head_dim * self.dtype.width // 8

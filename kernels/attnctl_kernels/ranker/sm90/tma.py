"""Views of tensors as TMA takes them, layouts in shared memory, and copies of boxes between the two."""

from __future__ import annotations

from typing import Any

from cutlass import cute
from cutlass.cute.nvgpu import cpasync, warpgroup
from cutlass.utils import LayoutEnum, hopper_helpers


def rows_first(x: cute.Tensor) -> cute.Tensor:
    """``(B, S, H, D)`` as ``(S, D, H, B)``: what a tile spans comes first."""
    strides = tuple(s if isinstance(s, int) else cute.assume(s, divby=8) for s in x.stride[:-1])
    layout = cute.make_layout(x.shape, stride=(*strides, x.stride[-1]))
    return cute.make_tensor(x.iterator, cute.select(layout, mode=[1, 3, 2, 0]))


def ending_anywhere(x: cute.Tensor, rows: int) -> cute.Tensor:
    """``(S, D, H, B)`` as ``(rows, D, S + 1, H, B)``, where ``[missing:, :, end]`` are the rows just before ``end``.

    A box that begins at row ``missing`` reads ``rows - missing`` rows, and TMA fills the rest with zeros: a block ends
    wherever the history does, and what lies behind it in memory, NaN included, never reaches shared memory.
    """
    seqlen, head_dim, num_heads, batch_size = x.shape
    by_row, by_column, by_head, by_batch = x.stride
    before = cute.domain_offset((-rows, 0, 0, 0), x)
    layout = cute.make_layout(
        (rows, head_dim, seqlen + 1, num_heads, batch_size), stride=(by_row, by_column, by_row, by_head, by_batch)
    )
    return cute.make_tensor(before.iterator, layout)


def swizzled(dtype: Any, shape: tuple[int, int], width: int | None = None) -> cute.ComposedLayout:
    """A tile in swizzled lines; or one with more columns, of which it is the first."""
    rows, columns = shape
    kind = hopper_helpers.get_smem_layout_atom(LayoutEnum.ROW_MAJOR, dtype, columns)
    return cute.tile_to_shape(warpgroup.make_smem_layout_atom(kind, dtype), (rows, width or columns), order=(0, 1))


def stacked(layout: cute.ComposedLayout, *modes: tuple[int, int]) -> cute.ComposedLayout:
    outer = layout.outer
    for size, stride in modes:
        outer = cute.append(outer, cute.make_layout(size, stride=stride))
    return cute.make_composed_layout(layout.inner, 0, outer)


def load(atom: cute.CopyAtom, g: cute.Tensor, at: tuple[Any, ...], s: cute.Tensor, shape: Any, barrier: Any) -> None:
    """TMA a box that begins at row ``at[0]``; the rest of ``at`` picks the remaining modes."""
    target, source = _partition(atom, g, at, s, shape)
    cute.copy(atom, source, target, tma_bar_ptr=barrier)


def load_line(atom: cute.CopyAtom, g: cute.Tensor, s: cute.Tensor, barrier: Any) -> None:
    """TMA a tensor of one dimension, which is one box."""
    target, source = cpasync.tma_partition(atom, 0, cute.make_layout(1), *(cute.group_modes(x, 0, 1) for x in (s, g)))
    cute.copy(atom, source, target, tma_bar_ptr=barrier)


def prefetch(atom: cute.CopyAtom, g: cute.Tensor, at: tuple[Any, ...], s: cute.Tensor, shape: Any) -> None:
    """Fetch to L2 what ``load`` with the same arguments will move on."""
    _, source = _partition(atom, g, at, s, shape)
    cute.prefetch(atom, source)


def store(atom: cute.CopyAtom, s: cute.Tensor, g: cute.Tensor, at: tuple[Any, ...], shape: Any) -> None:
    source, target = _partition(atom, g, at, s, shape)
    cute.copy(atom, source, target)


def _partition(atom: cute.CopyAtom, g: cute.Tensor, at: tuple[Any, ...], s: cute.Tensor, shape: Any) -> Any:
    """The two sides of a copy: in shared memory, and in global memory."""
    first, *rest = at
    box = cute.local_tile(cute.domain_offset((first, 0), g[(None, None, *rest)]), shape, (0, 0))
    return cpasync.tma_partition(atom, 0, cute.make_layout(1), cute.group_modes(s, 0, 2), cute.group_modes(box, 0, 2))

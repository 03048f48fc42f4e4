"""Compares an output with what it should be. A comparison that cannot fail is worse than none: NaN never passes."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


class WrongResult(Exception):
    """A candidate computes something else than the reference."""


@dataclass(frozen=True, slots=True)
class Deviation:
    """``rms``: RMS error over the reference's RMS. ``worst_row``: the same for one row of ``head_dim`` elements.

    The RMS alone does not see one wrong row in thousands. A row's error is scaled by the row's own RMS or the whole
    reference's, whichever is larger.
    """

    rms: float
    worst_row: float
    at: tuple[int, ...]  # index of the worst row

    def exceeds(self, tolerance: float, row_tolerance: float) -> bool:
        """Written so that NaN exceeds everything."""
        return not (self.rms <= tolerance and self.worst_row <= row_tolerance)


def require_finite(name: str, got: Tensor, ignore: Tensor | None = None) -> None:
    """Every element, except where ``ignore`` (it broadcasts): there only NaN is refused.

    Raises:
        WrongResult: naming how many elements are not finite, and the first.
    """
    bad = ~torch.isfinite(got)
    if ignore is not None:
        bad &= torch.isnan(got) | ~ignore
    count = int(bad.sum())
    if count:
        first = _index(int(bad.flatten().to(torch.uint8).argmax()), got.shape)
        value = float(got[first])
        raise WrongResult(f"{name}: {count} of {got.numel()} elements are not finite; the first is {value} at {first}")


def deviation(got: Tensor, want: Tensor) -> Deviation:
    """How far ``got`` is from ``want``."""
    rms, rows = relative_errors(got, want)
    worst = int(rows.flatten().argmax())  # NaN counts as the largest
    return Deviation(rms=float(rms), worst_row=float(rows.flatten()[worst]), at=_index(worst, rows.shape))


def relative_errors(got: Tensor, want: Tensor) -> tuple[Tensor, Tensor]:
    """RMS error over all, and per row, on the tensors' device: nothing here waits for it.

    Tensors of four dimensions have rows; LSE's rows are single elements. Where ``want`` is minus infinity (LSE of a
    row without visible keys) any value but NaN is right. Where ``want`` is zero everywhere, errors are absolute.
    """
    precise = torch.promote_types(want.dtype, torch.float32)
    got, want = got.to(precise), want.to(precise)
    undefined = (want == -torch.inf) & ~torch.isnan(got)
    got, want = got.masked_fill(undefined, 0), want.masked_fill(undefined, 0)
    squares, error = want.square(), (got - want).square_()
    scale = squares.mean()
    total = error.mean()
    if want.ndim == 4:
        squares, error = squares.mean(-1), error.mean(-1)
    scale = torch.where(scale == 0, torch.ones_like(scale), scale)
    return (total / scale).sqrt(), (error / squares.clamp(min=scale)).sqrt()


def _index(flat: int, shape: torch.Size) -> tuple[int, ...]:
    return tuple(int(each) for each in torch.unravel_index(torch.tensor(flat), shape))

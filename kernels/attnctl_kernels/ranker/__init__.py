"""Family ``ranker``. ``attention`` is the kernel as a PyTorch operator; importing it brings torch."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from attnctl_kernels.ranker.op import attention, visible_ranges

__all__ = ["attention", "visible_ranges"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from attnctl_kernels.ranker import op  # noqa: PLC0415 - `attnctl validate` runs without torch

        return getattr(op, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

"""Calls of JAX's launchers, lowered for CUDA without one. Imported only where there is JAX."""

from jax.experimental.mosaic.gpu import core as mosaic


class Lowered:
    """Lowers calls of ``launcher`` and keeps what shared memory their kernels ask for."""

    def __init__(self, monkeypatch, launcher):
        self.launcher = launcher
        self.smem_bytes = []  # of the latest call's kernels, until one is refused
        counted = mosaic._smem_tree_size
        monkeypatch.setattr(mosaic, "_smem_tree_size", lambda tree: self._keep(counted(tree)))

    def _keep(self, size):
        self.smem_bytes.append(size)
        return size

    def lower(self, task, candidate):
        """Raises what lowering raises."""
        self.smem_bytes.clear()
        self.launcher.lower(task, candidate)

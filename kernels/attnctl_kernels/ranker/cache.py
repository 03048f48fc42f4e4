"""Where compiled kernels lie on disk."""

import os
from pathlib import Path


def kernel_folder() -> Path:
    """Where attnctl says; a program that says nothing shares the user's cache folder with others."""
    return Path(os.environ.get("ATTNCTL_CACHE_DIR") or Path.home() / ".cache" / "attnctl") / "ranker"

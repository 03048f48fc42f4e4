"""The interpreter's warp groups wait for each other in callbacks: XLA needs a thread for each, on any machine."""

import os

os.environ.setdefault("PJRT_NPROC", "16")

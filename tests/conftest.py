"""The CuTe DSL reads what it compiles for when it is first imported, by whichever test of a process that is."""

import os
from pathlib import Path

if not Path("/dev/nvidiactl").exists():
    os.environ.setdefault("CUTE_DSL_ARCH", "sm_90a")

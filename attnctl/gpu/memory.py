"""What the system says about memory: how much there is, and whom it has killed for it."""

from __future__ import annotations

import os
from pathlib import Path


def oom_kills() -> int:
    """Processes that the kernel has killed for want of memory since boot; 0 where it does not say."""
    try:
        for line in Path("/proc/vmstat").read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except (OSError, ValueError):
        pass
    return 0


def resident_bytes(pid: int) -> int:
    """Memory that a process and its descendants hold; what they share counts for each."""
    try:
        held = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except (OSError, IndexError, ValueError):
        return 0
    for thread in threads:
        try:
            children = (thread / "children").read_text().split()
        except OSError:  # the thread has ended, or the kernel keeps no such list
            continue
        held += sum(resident_bytes(int(child)) for child in children)
    return held


def usable_bytes() -> int:
    """Memory that this process and its children may use: the machine's, or the control group's if that is less."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        try:
            limits.append(int(Path(path).read_text()))
        except (OSError, ValueError):  # no such group, or "max"
            continue
    return min(limits)

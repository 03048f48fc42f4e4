"""What the system says about processes."""

import time
from pathlib import Path


def gone(pid):
    """Whether ``pid`` ends within a while; a zombie has ended."""
    for _ in range(200):
        if _stat(pid)[:1] in ([], ["Z"]):
            return True
        time.sleep(0.05)
    return False


def group_members(group):
    """Processes of a process group that have not ended."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if (stat := _stat(pid)) and stat[0] != "Z" and int(stat[2]) == group]


def _stat(pid):
    """State, parent, group and the rest; empty if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []

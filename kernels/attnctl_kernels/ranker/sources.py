"""What the kernels are compiled from, as one hash."""

import hashlib
from functools import cache
from pathlib import Path

SOURCES = "ranker-sources"  # among the versions of a tuned entry


@cache
def sources_hash() -> str:
    """Of this family's files, in the order of their paths."""
    folder, digest = Path(__file__).parent, hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]

"""Packages whose modules every worker compiles anew, because Python finds no bytecode and writes none.

Containers often set PYTHONDONTWRITEBYTECODE, and images are stripped of `__pycache__`. Each worker then spends seconds
on what one could have kept. Reads folders; imports no package.
"""

from __future__ import annotations

import os
import sys
from importlib.util import cache_from_source, find_spec
from itertools import islice
from pathlib import Path

FRAMEWORKS = ("cutlass", "flash_attn", "jax", "torch", "triton")
_SAMPLE = 8  # modules: installers compile all of a package, or nothing


def compiled_anew() -> list[Path]:
    """Their folders."""
    folders = filter(None, map(_folder, FRAMEWORKS))
    return [each for each in folders if not _is_cached(each) and not _will_be_cached(each)]


def _folder(name: str) -> Path | None:
    try:
        spec = find_spec(name)
    except (ImportError, ValueError):  # of a package that is broken: whoever imports it says so
        return None
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def _is_cached(folder: Path) -> bool:
    modules = islice(sorted(folder.glob("*.py")) or sorted(folder.glob("*/*.py")), _SAMPLE)
    return any(Path(cache_from_source(str(each))).is_file() for each in modules)


def _will_be_cached(folder: Path) -> bool:
    return not sys.dont_write_bytecode and os.access(folder, os.W_OK)

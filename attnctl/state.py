"""Where a sweep keeps what it must not lose: ``.attnctl`` in the working directory, ignored by git."""

from __future__ import annotations

import os
from glob import escape
from pathlib import Path

from attnctl.files import cannot_write, make_folder

STATE_DIR_VARIABLE = "ATTNCTL_STATE_DIR"
CACHE_FOLDER_VARIABLE = "ATTNCTL_CACHE_DIR"  # where families keep what they compile; else in the state folder


def state_dir() -> Path:
    """The state folder, created on demand. ``ATTNCTL_STATE_DIR`` names another place."""
    folder = _folder()
    make_folder(folder)
    ignore = folder / ".gitignore"
    if not ignore.exists():
        try:
            ignore.write_text("*\n", encoding="utf-8")
        except OSError as error:
            raise cannot_write(ignore, error) from error
    return folder


def journals_of(profile: str) -> list[Path]:
    """The journals of a profile's sweeps on any device; those that a later sweep has set aside are left out."""
    found = sorted((_folder() / "journals").glob(f"*/{escape(profile)}/*.jsonl"))
    return [path for path in found if "." not in path.stem]


def _folder() -> Path:
    return Path(os.environ.get(STATE_DIR_VARIABLE) or ".attnctl").absolute()

"""Where tuned profiles are looked for, in order."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from attnctl.errors import UsageError
from attnctl.profile.tuned import TUNED_FOLDER, tuned_root

CONFIG_DIR_VARIABLE = "ATTNCTL_CONFIG_DIR"
TUNED_DIR = "tuned_dir"  # the argument


@dataclass(frozen=True, slots=True)
class Root:
    """A folder that may hold ``<device_name>/<profile>.yaml``; ``path`` is None where nothing names one."""

    name: str
    path: Path | None


def roots(profile_path: Path | None, tuned_dir: Path | None = None) -> tuple[Root, ...]:
    """The argument, ``ATTNCTL_CONFIG_DIR``, the user's config folder, and the folder beside the profile, if any.

    Raises:
        UsageError: a folder that the caller or the environment names is not there. Passing it over would use
            another config than the one that was meant.
    """
    variable = os.environ.get(CONFIG_DIR_VARIABLE)
    named = (
        Root(TUNED_DIR, tuned_dir),
        Root(CONFIG_DIR_VARIABLE, Path(variable).expanduser() if variable else None),
    )
    for root in named:
        if root.path is not None and not root.path.is_dir():
            raise UsageError(f"{root.name} {root.path}: no such folder", "name a folder that holds <device_name>/")
    beside = () if profile_path is None else (Root("beside the profile", tuned_root(profile_path)),)
    return (*named, Root("user", _user_folder()), *beside)


def _user_folder() -> Path:
    from platformdirs import user_config_path  # noqa: PLC0415 - not needed where the profile is read only

    return user_config_path("attnctl") / TUNED_FOLDER

"""The tuned profile: what ``tune`` found for one hand-written profile on one device. Only the tool writes it.

``profiles/tuned/<device_name>/<profile>.yaml`` holds one entry per problem and pass. Writers take a lock, read
what is there, merge and replace the file as a whole; fields that this version does not know are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from attnctl.errors import AttnctlError
from attnctl.files import locked, signature, write_atomic
from attnctl.gpu.names import device_slug
from attnctl_kernels.contract import Frozen, PassName, Problem, Scalar, SparseBlock, Task, fingerprint

SCHEMA = 1
TUNED_FOLDER = "tuned"
_HEADING = "# Written by `attnctl tune`, which merges into it; to change a config by hand, edit the profile.\n"

# libyaml where PyYAML was built with it: ten times faster, and the same format.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class Latency(Frozen):
    """Of one call in the screening, with the L2 cache as ``cache`` says."""

    median_us: float
    p20_us: float
    p80_us: float
    samples: int
    cache: str


class Against(Frozen):
    """The winner's time over a baseline's, from the finals."""

    ratio: float
    low: float
    high: float
    verdict: str


class Fingerprints(Frozen):
    problem: str  # of everything that can change the best config: see entry_key
    rules: str


class Entry(BaseModel):
    """The best config of one problem and pass."""

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    family: str
    version: str | None
    arch: str | None
    pass_name: PassName = Field(alias="pass")
    problem: Problem
    config: dict[str, Scalar]
    sparse_block: SparseBlock | None
    latency: Latency
    against_default: Against | None
    against_incumbent: Against | None
    error: dict[str, float]
    num_sms: int | None
    versions: dict[str, str]
    fingerprints: Fingerprints

    def dump(self) -> dict[str, Any]:
        """Plain data for the file; what a problem does not use is left out."""
        data = self.model_dump(mode="json", by_alias=True)
        data["problem"] = self.problem.model_dump(mode="json", exclude_defaults=True)
        return data


def entry_key(task: Task, sparse_block: SparseBlock | None) -> str:
    """The key that writer and reader share. ``sparse_block`` is the one that the profile fixes, if it does."""
    return fingerprint([task.fingerprint, sparse_block])


def tuned_root(profile_path: Path) -> Path:
    return profile_path.parent / TUNED_FOLDER


def tuned_path(profile_path: Path, device_name: str, root: Path | None = None) -> Path:
    """Where the tuned profile is, or would be. ``root`` stands for ``tuned`` beside the profile."""
    return (root or tuned_root(profile_path)) / device_slug(device_name) / f"{profile_path.stem}.yaml"


@dataclass(frozen=True, slots=True)
class Tuned:
    """A tuned profile as it is on disk."""

    device_name: str | None  # a slug; None where there is no file
    entries: Mapping[str, Entry]  # by :func:`entry_key`


def open_tuned(path: Path) -> Tuned:
    """The tuned profile at ``path``; an empty one where there is no file. Read once per state of the file.

    Raises:
        AttnctlError: the file is no tuned profile, or damaged.
    """
    return _open(path, signature(path))


@lru_cache(maxsize=64)
def _open(path: Path, _: tuple[int, ...] | None) -> Tuned:
    content = _content(path)
    device_name = content.get("device_name")
    entries = {entry.fingerprints.problem: entry for entry, _ in _entries(path, content)}
    return Tuned(device_slug(str(device_name)) if device_name else None, MappingProxyType(entries))


def read(path: Path) -> dict[str, Entry]:
    """The entries of a tuned profile; see :func:`open_tuned`."""
    return dict(open_tuned(path).entries)


def store(path: Path, device_name: str, entries: Iterable[Entry]) -> None:
    """Merge ``entries`` into the tuned profile at ``path``. A file that would not change is left as it is.

    Raises:
        AttnctlError: the file is damaged, or cannot be written; what was there stands.
    """
    with locked(path):
        content = _content(path)
        merged = {entry.fingerprints.problem: raw for entry, raw in _entries(path, content)}
        for entry in entries:
            key = entry.fingerprints.problem
            merged[key] = {**_unknown(merged.get(key, {})), **entry.dump()}
        ordered = sorted(merged.values(), key=_order)
        updated = {**content, "schema": SCHEMA, "device_name": device_slug(device_name), "entries": ordered}
        if updated != content:
            write_atomic(path, _HEADING + _dump(updated))


def unknown_fields(entry: Entry) -> tuple[str, ...]:
    """Fields of another version of the tool, sorted."""
    return tuple(sorted(entry.model_extra or {}))


def _unknown(raw: dict[str, Any]) -> dict[str, Any]:
    known = {field.alias or name for name, field in Entry.model_fields.items()}
    return {name: value for name, value in raw.items() if name not in known}


def _order(raw: dict[str, Any]) -> tuple[str, ...]:
    problem = Problem.model_validate(raw["problem"])
    return (raw["family"], problem.slug, raw["pass"], raw["fingerprints"]["problem"])


def _content(path: Path) -> dict[str, Any]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise _damaged(path, "it is not text") from error
    except OSError as error:
        raise AttnctlError(f"{path}: cannot be read: {error.strerror}") from error
    try:
        content = yaml.load(text, Loader=_Loader)  # noqa: S506 - both loaders are safe ones
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark else ""
        raise _damaged(path, f"it is not YAML{where}") from error
    except (ValueError, RecursionError) as error:  # a date that is none, for example
        raise _damaged(path, f"it is not YAML of a tuned profile: {error}") from error
    if not isinstance(content, dict):
        raise _damaged(path, "it is not a mapping")
    if content.get("schema") != SCHEMA:
        raise _damaged(path, f"schema is {content.get('schema')!r}, not {SCHEMA}")
    return content


def _entries(path: Path, content: dict[str, Any]) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """Each entry, and as it stands in the file."""
    entries = content.get("entries", [])
    if not isinstance(entries, list):
        raise _damaged(path, "entries: a list is needed")
    for number, raw in enumerate(entries):
        try:
            yield Entry.model_validate(raw), raw
        except ValidationError as error:
            first = error.errors()[0]
            field = ".".join(str(part) for part in ("entries", number, *first["loc"]))
            raise _damaged(path, f"{field}: {first['msg']}") from error


def _damaged(path: Path, reason: str) -> AttnctlError:
    return AttnctlError(
        f"{path}: is not a tuned profile that can be read: {reason}",
        "it was left as it is: restore it, or move it away and run `attnctl tune` again",
    )


def _dump(content: dict[str, Any]) -> str:
    """Sorted, with the innermost mappings on one line each."""
    text: str = yaml.dump(content, Dumper=_Dumper, sort_keys=True, default_flow_style=None, width=110)
    return text

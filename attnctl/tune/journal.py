"""The append-only record of one task's sweep: JSON lines, on disk before the sweep goes on.

A journal is whole at any time: a line that a kill has torn is ignored by readers and cut off by the next writer.
Its header says what was swept and on what; outcomes of another task, device, version or rule set are never mixed
in. A journal that does not fit is moved aside, never deleted.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Annotated, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError

from attnctl._version import __version__
from attnctl.errors import AttnctlError, UsageError
from attnctl.files import cannot_write, make_folder
from attnctl.gpu.protocol import CachePolicy, Contender, Cycle, Environment, Prepared, Result
from attnctl_kernels.contract import Candidate, Frozen, Span, Task, fingerprint


class Header(Frozen):
    """What was swept, and on what."""

    record: Literal["header"] = "header"
    format: Literal[1] = 1
    attnctl: str = __version__
    profile: str
    task: Task
    space: str  # fingerprint of the candidates
    rules: str  # fingerprint of the rules that they passed
    cache: CachePolicy
    environment: Environment

    def differences(self, now: Header) -> list[str]:
        """Why outcomes of this header's sweep say nothing about a sweep under ``now``; empty if they do."""
        found = [
            f"{name} {was} then, {is_now} now"
            for name, was, is_now in (
                ("format", self.format, now.format),
                ("device", self._device(), now._device()),
                ("cache policy", self.cache, now.cache),
                ("threads", self.environment.threads, now.environment.threads),
                ("power limit in W", self.environment.power_limit_w, now.environment.power_limit_w),
            )
            if was != is_now
        ]
        was, is_now = self._versions(), now._versions()
        found += [
            f"{name} {was.get(name, 'missing')} then, {is_now.get(name, 'missing')} now"
            for name in sorted(was.keys() | is_now.keys())
            if was.get(name) != is_now.get(name)
        ]
        found += ["another task"] * (fingerprint(self._task()) != fingerprint(now._task()))
        found += ["other rules"] * (self.rules != now.rules)
        found += ["another space"] * (self.space != now.space)
        return found

    def _task(self) -> dict[str, object]:
        return self.task.model_dump(mode="json")

    def _device(self) -> str:
        device = self.environment
        return f"{device.device_name} ({device.uuid or device.device}, {device.num_sms or 'any number of'} SMs)"

    def _versions(self) -> dict[str, str]:
        return {"attnctl": self.attnctl, **self.environment.running_versions}


class PreparedRecord(Frozen):
    record: Literal["prepared"] = "prepared"
    prepared: Prepared


class OutcomeRecord(Frozen):
    """What happened to one candidate. A later record of the same candidate replaces an earlier one."""

    record: Literal["outcome"] = "outcome"
    candidate: Candidate
    result: Result
    note: str = ""
    device: str = ""  # that measured it, where several share the sweep


class FinalsRecord(Frozen):
    """What one fresh process measured."""

    record: Literal["finals"] = "finals"
    contenders: tuple[Contender, ...]
    cycles: tuple[Cycle, ...]
    failed: dict[str, Result] = {}
    span: Span | None = None  # None: in journals of before, and where the process was lost


class DoneRecord(Frozen):
    """The sweep reached a decision. ``complete``: no candidate was left for lack of time."""

    record: Literal["done"] = "done"
    complete: bool
    winner: Candidate
    reason: str
    last_check: Span | None = None


Body = PreparedRecord | OutcomeRecord | FinalsRecord | DoneRecord
Record = Header | Body
_RECORD: TypeAdapter[Record] = TypeAdapter(Annotated[Record, Field(discriminator="record")])


@dataclass
class Recorded:
    """What a journal holds."""

    header: Header
    prepared: Prepared | None = None
    outcomes: dict[str, OutcomeRecord] = field(default_factory=dict)  # by Candidate.key
    finals: list[FinalsRecord] = field(default_factory=list)
    done: DoneRecord | None = None
    size: int = 0  # bytes up to the end of the last whole line

    def add(self, record: Body) -> None:
        match record:
            case PreparedRecord():
                self.prepared = record.prepared
            case OutcomeRecord():
                self.outcomes[record.candidate.key] = record
            case FinalsRecord():
                self.finals.append(record)
            case DoneRecord():
                self.done = record


def read(path: Path) -> Recorded:
    """Read a journal, compressed or not; what follows the last whole line is ignored.

    Raises:
        UsageError: there is no such file.
        AttnctlError: it is no journal.
    """
    recorded: Recorded | None = None
    for number, (line, end) in enumerate(_lines(path), start=1):
        try:
            record = _RECORD.validate_json(line)
        except ValidationError as error:
            raise _unreadable(f"{path}:{number}", error) from error
        if isinstance(record, Header) is not (recorded is None):
            raise AttnctlError(f"{path}:{number}: not a journal of attnctl: one header must come first")
        if isinstance(record, Header):
            recorded = Recorded(record, size=end)
        elif recorded is not None:
            recorded.add(record)
            recorded.size = end
    if recorded is None:
        raise AttnctlError(f"{path}: not a journal of attnctl: it is empty")
    return recorded


def _unreadable(place: str, error: ValidationError) -> AttnctlError:
    first = error.errors()[0]
    if first["loc"] == ("header", "format"):
        known = Header.model_fields["format"].default
        return AttnctlError(
            f"{place}: format: {first['input']} is another format of journals; attnctl {__version__} reads {known}",
            "use the attnctl that wrote it",
        )
    field = ".".join(str(part) for part in first["loc"][1:])
    return AttnctlError(f"{place}: not a journal of attnctl: {f'{field}: ' if field else ''}{first['msg']}")


def _lines(path: Path) -> Iterator[tuple[bytes, int]]:
    """Whole lines, each with the offset of its end."""
    end = 0
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            for line in file:
                if not line.endswith(b"\n"):
                    return
                end += len(line)
                yield line, end
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file") from None
    except EOFError:  # a compressed journal that was cut off
        return
    except zlib.error as error:
        raise AttnctlError(f"{path}: cannot be read: {error}") from error
    except OSError as error:
        raise AttnctlError(f"{path}: cannot be read: {error.strerror or error}") from error


class Journal:
    """A journal that is being written. ``recorded`` holds what is in it, resumed records included."""

    def __init__(self, path: Path, file: IO[bytes], recorded: Recorded) -> None:
        self.path = path
        self.recorded = recorded
        self._file = file

    @classmethod
    def create(cls, path: Path, header: Header) -> Self:
        """Start a journal; one that is already there is moved aside (see :func:`set_aside`)."""
        make_folder(path.parent)
        set_aside(path)
        journal = cls(path, _open(path, "xb"), Recorded(header))
        journal._write(header)
        return journal

    @classmethod
    def scratch(cls, header: Header) -> Self:
        """A journal that nobody will read: replays leave nothing behind."""
        return cls(Path(os.devnull), tempfile.TemporaryFile(), Recorded(header))

    @classmethod
    def resume(cls, path: Path, recorded: Recorded) -> Self:
        """Go on writing a journal that :func:`read` has read."""
        file = _open(path, "r+b")
        file.truncate(recorded.size)
        file.seek(0, os.SEEK_END)
        recorded.done = None
        return cls(path, file, recorded)

    def append(self, record: Body) -> None:
        """Record, and return when it is on disk."""
        self.recorded.add(record)
        self._write(record)

    def close(self) -> None:
        with contextlib.suppress(OSError):  # it flushes again what could not be written, which has been said
            self._file.close()

    def _write(self, record: Record) -> None:
        try:
            self._file.write(record.model_dump_json().encode() + b"\n")
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise cannot_write(self.path, error) from error


def set_aside(path: Path) -> Path | None:
    """Give the journal at ``path``, if there is one, the next free number: ``name.1.jsonl``, ``name.2.jsonl``, ..."""
    if not path.exists():
        return None
    number = 1
    while (aside := path.with_suffix(f".{number}{path.suffix}")).exists():
        number += 1
    path.rename(aside)
    return aside


def _open(path: Path, mode: Literal["xb", "r+b"]) -> IO[bytes]:
    try:
        return path.open(mode)
    except OSError as error:
        raise cannot_write(path, error) from error

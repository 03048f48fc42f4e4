"""Write a file so that a reader sees the old content or the new, whatever happens to the writer."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import secrets
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnctl.errors import AttnctlError

_LOCK_TIMEOUT_S = 60.0
_LOCK_POLL_S = 0.02
_STREAM_NAME = re.compile(r"/dev/std(in|out|err)|/dev/fd/\d+|/proc/[^/]+/fd/\d+")
_HINTS = {
    errno.ENOSPC: "free some space, or choose another folder",
    errno.EDQUOT: "free some of your quota, or choose another folder",
    errno.EFBIG: "raise the limit on file sizes (ulimit -f), or choose another folder",
    errno.EROFS: "choose a folder on a file system that is not read-only",
    errno.EACCES: "give yourself write permission, or choose another folder",
    errno.EPERM: "give yourself write permission, or choose another folder",
    errno.ENOTDIR: "a file stands where a folder is needed: move it, or choose another folder",
    errno.EEXIST: "a file stands where a folder is needed: move it, or choose another folder",
    errno.EISDIR: "a folder stands where the file should go: move it, or choose another folder",
}


def write_atomic(path: Path, content: str | bytes) -> None:
    """Replace ``path`` by ``content``: a temporary file beside it, synced to disk, then renamed.

    A link stays, and the file that it names is replaced. What is no file, such as a pipe or /dev/stdout, is written to.

    Raises:
        AttnctlError: the file cannot be written; the old content stands, and nothing is left beside it.
        BrokenPipeError: nobody reads the pipe any more.
    """
    data = content.encode() if isinstance(content, str) else content
    try:
        if _is_stream(path):
            with path.open("ab") as stream:
                stream.write(data)
        else:
            make_folder(path.parent)
            _replace(Path(os.path.realpath(path)), data)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise cannot_write(path, error) from error


def _is_stream(path: Path) -> bool:
    """Whether ``path`` is a device, a pipe or a socket, or one of the names of an open one (/dev/stdout, /dev/fd/5).

    Those names stay streams where a shell has sent them to a file: replacing it would lose what is there already.
    """
    if not path.exists() or path.is_dir():
        return False
    return not path.is_file() or bool(_STREAM_NAME.fullmatch(str(path.absolute())))


def _replace(path: Path, data: bytes) -> None:
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    try:
        with temporary.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    _sync_folder(path.parent)


def append(path: Path, text: str) -> None:
    """Add ``text`` to the end of ``path``.

    Raises:
        AttnctlError: it cannot be written.
    """
    try:
        make_folder(path.parent)
        with path.open("a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise cannot_write(path, error) from error


def write_new(path: Path, text: str) -> None:
    """Create ``path`` with ``text``, whole or not at all; never in place of another file.

    Raises:
        AttnctlError: it is there already, or cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")
    write_atomic(temporary, text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise AttnctlError(f"{path}: is there already, and is not overwritten", "name another file") from None
    except OSError as error:
        raise cannot_write(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()


def signature(path: Path) -> tuple[int, ...] | None:
    """Another one for every state of a file that is replaced as a whole; None where there is none."""
    try:
        facts = path.stat()
    except OSError:
        return None
    return facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other writers of ``path`` out. The lock is a file beside it that is gone afterwards.

    Raises:
        AttnctlError: it cannot be created, or somebody has held it for a minute.
    """
    lock = path.with_name(f".{path.name}.lock")
    try:
        make_folder(path.parent)
        descriptor = _acquire(lock)
    except OSError as error:
        raise cannot_write(path, error) from error
    if descriptor is None:
        message = f"{path}: another process has been writing it for {_LOCK_TIMEOUT_S:.0f} s"
        raise AttnctlError(message, f"see who holds {lock}")
    try:
        _remove_leftovers(path)
        yield
    finally:
        # Still held: who waits for this very file sees that it is gone, and opens the next one.
        with contextlib.suppress(OSError):
            lock.unlink()
        os.close(descriptor)


def _acquire(lock: Path) -> int | None:
    end = time.monotonic() + _LOCK_TIMEOUT_S
    while time.monotonic() < end:
        descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if lock.stat().st_ino == os.fstat(descriptor).st_ino:
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            time.sleep(_LOCK_POLL_S)
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)
    return None


def _remove_leftovers(path: Path) -> None:
    """Delete temporary files of writers of ``path`` that were killed. Only under the lock that all writers take."""
    for leftover in path.parent.glob(f".{path.name}.*.tmp"):
        with contextlib.suppress(OSError):
            leftover.unlink()


def make_folder(folder: Path) -> None:
    """Create ``folder`` and its parents where they are missing."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise cannot_write(folder, error) from error


def cannot_write(path: Path, error: OSError) -> AttnctlError:
    """What to tell a user whose disk refused a write."""
    reason = os.strerror(error.errno) if error.errno else str(error)
    return AttnctlError(f"{path}: cannot be written: {reason}", _HINTS.get(error.errno or 0, "choose another folder"))


def _sync_folder(folder: Path) -> None:
    """Make a rename survive a power cut. Some file systems cannot sync a folder; the rename has happened anyway."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

"""Whether a sweep goes on with an earlier journal, or starts one."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from pathlib import Path

from attnctl.errors import AttnctlError, UsageError
from attnctl.profile.tuned import entry_key
from attnctl.tune.journal import Header, Journal, Recorded, read, set_aside
from attnctl.words import counted
from attnctl_kernels.contract import SparseBlock, fingerprint


class Mode(StrEnum):
    AUTO = "auto"  # go on with a journal that fits and is not done
    RESUME = "resume"  # the user wants that, and nothing else
    FRESH = "fresh"  # the user wants to start again


def journal_path(state_dir: Path, header: Header, sparse_block: SparseBlock | None) -> Path:
    """One file per profile, task and physical device."""
    environment, task = header.environment, header.task
    key = fingerprint([entry_key(task, sparse_block), environment.uuid or environment.device])[:8]
    folder = state_dir / "journals" / environment.device_name / header.profile
    return folder / f"{task.pass_name}-{task.problem.slug}-{key}.jsonl"


def open_journal(path: Path, header: Header, mode: Mode, say: Callable[[str], None]) -> tuple[Journal, bool]:
    """The journal to write, and whether its sweep is done already.

    Raises:
        UsageError: ``mode`` is RESUME, and there is nothing that fits.
    """
    obstacle, recorded = _obstacle(path, header)
    if mode is Mode.RESUME and (recorded is None or obstacle):
        where = "" if obstacle.startswith(str(path)) else f"{path}: "
        raise UsageError(f"nothing to resume: {where}{obstacle}", "leave --resume out to start a sweep")
    done = recorded is not None and recorded.done is not None and recorded.done.complete
    if recorded is None or obstacle or mode is Mode.FRESH or (done and mode is Mode.AUTO):
        aside = set_aside(path)
        if aside and obstacle:
            say(f"the earlier journal does not fit ({obstacle}); it was kept as {aside}")
        return Journal.create(path, header), False
    if not done:
        say(f"resuming {path}: it has {counted(len(recorded.outcomes), 'candidate')} (--fresh starts again)")
    return Journal.resume(path, recorded), done


def _obstacle(path: Path, header: Header) -> tuple[str, Recorded | None]:
    try:
        recorded = read(path)
    except UsageError:
        return "no such file", None
    except AttnctlError as error:
        return error.message, None
    return "; ".join(recorded.header.differences(header)), recorded

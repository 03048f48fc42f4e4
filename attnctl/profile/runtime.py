"""A program's way to its config: :func:`attnctl.load_config`. Imports no framework.

A process decides once per question: what it got stays what it gets, also when files change under it, and a warning
comes once.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from attnctl.errors import UsageError
from attnctl.files import signature
from attnctl.profile import job
from attnctl.profile.decision import Decision, Source, decide, lengths_of
from attnctl.profile.load import Loaded, load
from attnctl.profile.problems import problems, tasks
from attnctl_kernels.contract import PassName, Task, join_words


class NotTuned(UserWarning):
    """The config was not tuned for exactly this call on this device; the text says which is used, and why."""


class RanksMayDiffer(UserWarning):
    """Several ranks run, and each decides for itself."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a program asks. In a job of several ranks all ask the same."""

    profile: str
    seqlen_q: int | None
    seqlen_k: int | None
    device_name: str | None
    pass_name: PassName
    tuned_dir: str | None


Decide = Callable[[Any, list[Warning]], dict[str, Any]]
"""From a question, and where to put what the caller should hear of: ``config`` and ``sparse_block``."""

_answers: dict[Any, dict[str, Any]] = {}
_deciding = threading.Lock()


def load_config(question: Question) -> dict[str, Any]:
    """See :func:`attnctl.load_config`."""
    return answer_of(question, _alone)


def answer_of(question: Any, decide_alone: Decide) -> dict[str, Any]:
    """What this process, and the job that it is a rank of, goes by. ``question`` is a frozen dataclass."""
    notices: list[Warning] = []
    with _deciding:
        if question not in _answers:
            answer_it = _of_job if job.several_ranks() else _by_itself
            _answers[question] = answer_it(question, decide_alone, notices)
        answer = _answers[question]
    for notice in notices:
        warnings.warn(notice, stacklevel=4)
    block = {} if answer["sparse_block"] is None else {"sparse_block": tuple(answer["sparse_block"])}
    return {**answer["config"], **block}


def forget() -> None:
    """Decide anew from now on: for notebooks, between a ``tune`` and the next call."""
    with _deciding:
        _answers.clear()


def asked_tasks(loaded: Loaded, seq_lens: Sequence[int], pass_name: str | None) -> list[Task]:
    """What a command line asks about: every task of the profile, or those of some lengths, or of one pass.

    Raises:
        UsageError: see :func:`choose`.
    """
    passes: tuple[PassName, ...] = loaded.profile.passes if loaded.profile else ("forward",)
    if pass_name is not None:
        passes = ("forward",) if pass_name == "forward" else ("backward",)  # noqa: S105 - not a password
    if not seq_lens and loaded.profile is not None and set(passes) <= set(loaded.profile.passes):
        return [each for each in tasks(loaded.profile) if each.pass_name in passes]
    return [choose(loaded, length, None, name) for length in seq_lens or (None,) for name in passes]


def choose(loaded: Loaded, seqlen_q: int | None, seqlen_k: int | None, pass_name: PassName) -> Task:
    """The profile's task of these lengths, or its task at these lengths where it has none.

    Raises:
        UsageError: the profile has errors, no such pass, or several problems, and no length is given.
    """
    if loaded.profile is None:
        first = loaded.findings[0]
        place = f"{loaded.path}:{first.line}:{first.column}"
        raise UsageError(f"{place}: {first.code} {first.message}", "run attnctl validate")
    if pass_name not in loaded.profile.passes:
        known = join_words(loaded.profile.passes, "and")
        raise UsageError(f"{loaded.path}: has no {pass_name} pass", f"passes: {known}")
    of_pass = [each for each in tasks(loaded.profile) if each.pass_name == pass_name]
    chosen = [
        each
        for each in of_pass
        if seqlen_q in (None, each.problem.seqlen_q) and seqlen_k in (None, each.problem.seqlen_k)
    ]
    if len(chosen) == 1:
        return chosen[0]
    if not chosen and (lengths := _asked(loaded, seqlen_q, seqlen_k)):
        changes = {"seqlen_q": lengths[0], "seqlen_k": lengths[1]}
        problem = of_pass[0].problem.model_copy(update=changes)
        return of_pass[0].model_copy(update={"problem": problem})
    known = join_words([lengths_of(each.problem) for each in of_pass], "and")
    fault = "several problems match" if chosen else f"seqlen_q={seqlen_q}, seqlen_k={seqlen_k} leave a length open"
    raise UsageError(f"{loaded.path}: {fault}", f"seqlen_q x seqlen_k in the profile: {known}")


def _asked(loaded: Loaded, seqlen_q: int | None, seqlen_k: int | None) -> tuple[int, int] | None:
    """Lengths that the profile does not list; one that is left out is the other, or the only one that it has."""
    assert loaded.profile is not None
    for length, name in ((seqlen_q, "seqlen_q"), (seqlen_k, "seqlen_k")):
        if length is not None and length < 1:
            raise UsageError(f"{name}={length} is not a length", "give a whole number above 0")
    if seqlen_q and seqlen_k:
        return seqlen_q, seqlen_k
    if loaded.profile.problem.seqlen_k is None:
        length = seqlen_q or seqlen_k
        return (length, length) if length else None
    all_problems = problems(loaded.profile)
    queries = {each.seqlen_q for each in all_problems} if seqlen_q is None else {seqlen_q}
    keys = {each.seqlen_k for each in all_problems} if seqlen_k is None else {seqlen_k}
    return (queries.pop(), keys.pop()) if len(queries) == len(keys) == 1 else None


def _of_job(question: Any, decide_alone: Decide, notices: list[Warning]) -> dict[str, Any]:
    try:
        return job.shared(astuple(question), lambda: decide_alone(question, notices))
    except job.NotShared as reason:
        notices.append(RanksMayDiffer(f"ranks may get different configs: {reason}"))
        return decide_alone(question, notices)


def _by_itself(question: Any, decide_alone: Decide, notices: list[Warning]) -> dict[str, Any]:
    return decide_alone(question, notices)


def _alone(question: Question, notices: list[Warning]) -> dict[str, Any]:
    path = Path(question.profile)
    loaded = _loaded(path, signature(path))
    task = choose(loaded, question.seqlen_q, question.seqlen_k, question.pass_name)
    tuned_dir = Path(question.tuned_dir) if question.tuned_dir is not None else None
    decision = decide(loaded, task, device_name=question.device_name, tuned_dir=tuned_dir)
    if decision.source is not Source.TUNED:
        notices.append(NotTuned(excuse(loaded.path, decision)))
    candidate = decision.candidate
    return {"config": dict(candidate.config), "sparse_block": candidate.sparse_block}


@lru_cache(maxsize=8)
def _loaded(path: Path, _: tuple[int, ...] | None) -> Loaded:
    return load(path)


def excuse(path: os.PathLike[str], decision: Decision) -> str:
    """Why the config is not one that was tuned for exactly this, and what it is instead."""
    others = f" (tuned: {join_words(decision.others, 'and')})" if decision.others else ""
    why = f"{path}: {decision.why_not_tuned}{others}"
    if decision.source is Source.NEAREST and decision.entry:
        return f"{why}; the config tuned for {lengths_of(decision.entry.problem)} is used, unmeasured at this length"
    if decision.source is Source.PROFILE:
        return f"{why}; the profile's own config is used"
    return f"{why}; the profile's own config is not allowed here, the kernel's default is used"

"""What a report is about: sweeps with their rows, and the masks of profiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from attnctl.profile.load import Loaded
from attnctl.profile.problems import cases
from attnctl.report._page.compared import Pair, paired
from attnctl.report._page.recall import Recalled, recall
from attnctl.report._page.rows import Row, rows
from attnctl.state import journals_of
from attnctl_kernels.contract import Case


@dataclass(frozen=True, slots=True)
class Contents:
    sweeps: tuple[tuple[Recalled, tuple[Row, ...]], ...]
    pairs: tuple[Pair, ...]
    cases: tuple[Case, ...]  # of the profiles

    @property
    def title(self) -> str:
        names = [sweep.header.profile for sweep, _ in self.sweeps] or [case.problem.slug for case in self.cases]
        shown = list(dict.fromkeys(names))
        more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
        return f"attnctl: {', '.join(shown[:3])}{more}"


def gather(profiles: Sequence[Loaded], journals: Sequence[Path]) -> Contents:
    """Read the journals, and those in the state folder that are about the profiles.

    Raises:
        AttnctlError: a journal cannot be read.
    """
    kept = [path for each in profiles for path in journals_of(each.path.stem)]
    given = [recall(path, profiles) for path in journals]
    found = [recall(path, profiles) for path in kept if path.absolute() not in {each.absolute() for each in journals}]
    recalled = [*given, *(each for each in found if each.profile)]
    sweeps = tuple((sweep, tuple(rows(sweep))) for sweep in recalled)
    shown = tuple(case for each in profiles if each.profile for case in cases(each.profile))
    return Contents(sweeps, tuple(paired(sweeps)), shown)

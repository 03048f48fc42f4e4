"""What a sweep has come to so far, for the displays of :mod:`attnctl.report._live`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from attnctl.gpu.protocol import Result
from attnctl.report._terminal import one_line
from attnctl.tune.space import Space
from attnctl_kernels.contract import Candidate, Outcome


@dataclass
class Tally:
    """One task's: what was tried, what went wrong, what is fastest, how long it will take."""

    space: Space | None = None
    total: int = 0  # candidates that will be tried at most
    done: int = 0
    failed: Counter[Outcome] = field(default_factory=Counter)
    last_failure: str = ""
    best: tuple[float, Candidate] | None = None
    times_us: dict[str, float] = field(default_factory=dict)  # of default and incumbent
    finals: tuple[int, int, int] | None = None  # process, processes, contenders
    begun: float = field(default_factory=time.monotonic)
    finals_begun: float = 0.0

    def add(self, candidate: Candidate, result: Result) -> None:
        self.done += 1
        if result.outcome is not Outcome.OK:
            self.failed[result.outcome] += 1
            self.last_failure = f"{result.outcome}: {one_line(result.reason)} ({candidate})"
        elif result.timing:
            median_us = result.timing.median_us
            if self.best is None or median_us < self.best[0]:
                self.best = median_us, candidate
            if self.space and candidate in self.space.required:
                self.times_us[self.space.labels[candidate.key]] = median_us

    def enter_finals(self, process: int, processes: int, contenders: int) -> None:
        if self.finals is None:
            self.finals_begun = time.monotonic()
        self.finals = process, processes, contenders

    def __str__(self) -> str:
        """``17/110 done, 3 failed (2 timeout, 1 wrong_result), best 467.3 us tile_m=128 ..., 40 s left``."""
        parts = [f"{self.done}/{self.total} done"]
        if self.failed:
            parts.append(f"{self.failed.total()} failed ({self._kinds()})")
        if self.best:
            parts.append(f"best {self.best[0]:,.1f} us {one_line(str(self.best[1]))}")
        if left := self._left():
            parts.append(left)
        return ", ".join(parts)

    def rows(self) -> Iterator[tuple[str, str]]:
        """The same for a screen of its own: a word and what there is to say."""
        left = self._left()
        yield "measured", f"{self.done} of {self.total}{f', {left}' if left else ''}"
        if self.space and self.space.drops:
            by_rule = [f"{drop.rule.code} {count}" for count, drop in self.space.drops_by_rule()]
            yield "dropped", f"{len(self.space.drops)} by rules: {', '.join(by_rule)}"
        if self.failed:
            yield "failed", f"{self.failed.total()}: {self._kinds()}"
            yield "", self.last_failure
        for name, median_us in self.times_us.items():
            yield name, f"{median_us:,.1f} us"
        if self.best:
            usual = self.times_us.get("default")
            ratio = f", {self.best[0] / usual:.3f} of the default's" if usual else ""
            yield "best", f"{self.best[0]:,.1f} us{ratio}: {one_line(str(self.best[1]))}"
        if self.finals:
            process, processes, contenders = self.finals
            yield "finals", f"process {process} of {processes}, {contenders} contenders{self._left_of_finals()}"

    def _kinds(self) -> str:
        return ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.failed.items()))

    def _left(self) -> str:
        if not 0 < self.done < self.total or self.finals:
            return ""
        return f"{(time.monotonic() - self.begun) / self.done * (self.total - self.done):.0f} s left"

    def _left_of_finals(self) -> str:
        """From the second process on, by what those before took."""
        assert self.finals
        process, processes, _ = self.finals
        if process == 1:
            return ""
        each_s = (time.monotonic() - self.finals_begun) / (process - 1)
        return f", about {each_s * (processes - process + 1):.0f} s left"

"""What a sweep has come to so far, for the displays of :mod:`attnctl.report._live`."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from attnctl.gpu.protocol import Result
from attnctl.report._terminal import one_line
from attnctl.tune.space import Space
from attnctl.words import counted
from attnctl_kernels.contract import Candidate, Outcome


@dataclass
class Tally:
    """One task's: what was tried, what went wrong, what is fastest, how long it will take."""

    space: Space | None = None
    total: int = 0  # candidates that will be tried at most
    results: dict[str, tuple[Candidate, Result]] = field(default_factory=dict)  # by key: finals may take one back
    last_failure: str = ""
    finals: tuple[int, int, int] | None = None  # process, processes, contenders
    begun: float = field(default_factory=time.monotonic)
    finals_begun: float = 0.0

    def add(self, candidate: Candidate, result: Result) -> None:
        self.results[candidate.key] = candidate, result
        if result.outcome is not Outcome.OK:
            self.last_failure = f"{result.outcome}: {one_line(result.reason)} ({candidate})"

    @property
    def done(self) -> int:
        return len(self.results)

    @property
    def failed(self) -> Counter[Outcome]:
        return Counter(result.outcome for _, result in self.results.values() if result.outcome is not Outcome.OK)

    @property
    def best(self) -> tuple[float, Candidate] | None:
        return min(self._times(), key=lambda each: each[0], default=None)

    def _times(self) -> Iterator[tuple[float, Candidate]]:
        """Microseconds of what runs and is right."""
        for candidate, result in self.results.values():
            if result.outcome is Outcome.OK and result.timing:
                yield result.timing.median_us, candidate

    def enter_finals(self, process: int, processes: int, contenders: int) -> None:
        if self.finals is None:
            self.finals_begun = time.monotonic()
        self.finals = process, processes, contenders

    def __str__(self) -> str:
        """``17/110 done, 3 failed (2 timeout, 1 wrong_result), best 467.3 us tile_m=128 ..., 40 s left``."""
        parts = [f"{self.done}/{self.total} done"]
        if failed := self.failed:
            parts.append(f"{failed.total()} failed ({_kinds(failed)})")
        if best := self.best:
            parts.append(f"best {best[0]:,.1f} us {one_line(str(best[1]))}")
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
        if failed := self.failed:
            yield "failed", f"{failed.total()}: {_kinds(failed)}"
            yield "", self.last_failure
        required, labels = (self.space.required, self.space.labels) if self.space else ((), {})
        usual = {labels[each.key]: median_us for median_us, each in self._times() if each in required}
        for name, median_us in usual.items():
            yield name, f"{median_us:,.1f} us"
        if best := self.best:
            ratio = f", {best[0] / usual['default']:.3f} of the default's" if "default" in usual else ""
            yield "best", f"{best[0]:,.1f} us{ratio}: {one_line(str(best[1]))}"
        if self.finals:
            process, processes, contenders = self.finals
            yield (
                "finals",
                f"process {process} of {processes}, {counted(contenders, 'contender')}{self._left_of_finals()}",
            )

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


def _kinds(failed: Counter[Outcome]) -> str:
    return ", ".join(f"{count} {outcome}" for outcome, count in sorted(failed.items()))

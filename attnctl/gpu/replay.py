"""A recorded sweep in place of a device: strategies and decisions can be tried again without one.

Finals are the recorded cycles where the journal has all contenders; otherwise they are drawn, seeded, from the
raw samples of the screening. Drawn cycles know nothing of drift between processes: good enough to compare
strategies, not to judge a kernel.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from attnctl.errors import UsageError
from attnctl.gpu.closing import Closing
from attnctl.gpu.protocol import CachePolicy, Contender, Cycle, Environment, FinalsReply, Prepared, Result
from attnctl.tune.journal import FinalsRecord, Recorded
from attnctl_kernels.contract import Candidate, Outcome, Task, fingerprint


class ReplayMeasurer(Closing):
    """A :class:`~attnctl.gpu.interfaces.MeasurerLike` that reads journals of one device."""

    compiles = False
    device_count = 1

    def __init__(self, journals: Sequence[Recorded]) -> None:
        self._journals = {fingerprint(each.header.task.model_dump(mode="json")): each for each in journals}
        self._recorded = journals[0]
        self._finals: Iterator[FinalsRecord] = iter(())
        self._random = random.Random(0)  # noqa: S311 - not cryptography

    @property
    def environment(self) -> Environment:
        return self._recorded.header.environment

    def prepare(self, task: Task, cache: CachePolicy = "cold") -> Prepared:
        """Open the journal of ``task``.

        Raises:
            UsageError: there is none.
        """
        recorded = self._journals.get(fingerprint(task.model_dump(mode="json")))
        if recorded is None or recorded.prepared is None:
            headers = [each.header.task for each in self._journals.values()]
            known = ", ".join(f"{each.problem.slug} {each.pass_name}" for each in headers)
            raise UsageError(
                f"no journal of {task.problem.slug} {task.pass_name} to replay", f"the journals given are of {known}"
            )
        self._recorded = recorded
        self._finals = iter(recorded.finals)
        self._random.seed(task.seed)
        return recorded.prepared

    def measure(
        self,
        candidate: Candidate,
        best_us: float | None = None,
        *,
        max_samples: int = 2000,
        second_seed: bool = False,
        probes: bool = False,
    ) -> Result:
        """What happened to ``candidate`` then."""
        record = self._recorded.outcomes.get(candidate.key)
        if record is None:
            return Result(outcome=Outcome.SKIPPED, reason="not in the journal")
        return record.result

    def warm_up(self, count: int) -> None:
        """Nothing to start."""

    def prepare_finals(self, count: int) -> None:
        """Nothing to start."""

    def finals(self, contenders: Sequence[Contender], cycles: int) -> FinalsReply:
        """The next recorded process with all ``contenders``; when there is none left, drawn cycles."""
        for record in self._finals:
            if (recorded := _renamed(record, contenders)) is not None:
                return FinalsReply(cycles=recorded)
        samples = {each.name: self._samples(each.candidate) for each in contenders}
        drawn = tuple(
            Cycle(samples_us={name: self._random.choice(each) for name, each in samples.items()}) for _ in range(cycles)
        )
        return FinalsReply(cycles=drawn)

    def interrupt(self) -> None:
        """Nothing to stop."""

    def close(self) -> None:
        """Nothing to stop."""

    def _samples(self, candidate: Candidate) -> tuple[float, ...]:
        timing = self._recorded.outcomes[candidate.key].result.timing
        assert timing is not None  # only what was timed gets into finals
        return timing.samples_us


def _renamed(record: FinalsRecord, contenders: Sequence[Contender]) -> tuple[Cycle, ...] | None:
    """The cycles of ``record`` under the names of ``contenders``; None unless all of them ran in it.

    A candidate with two names, as the baseline has, needs two slots in the record.
    """
    free = [each for each in record.contenders if each.name not in record.failed]
    names = {}
    for contender in contenders:
        slot = next((each for each in free if each.candidate == contender.candidate), None)
        if slot is None:
            return None
        free.remove(slot)
        names[contender.name] = slot.name
    return tuple(
        cycle.model_copy(update={"samples_us": {name: cycle.samples_us[slot] for name, slot in names.items()}})
        for cycle in record.cycles
    )

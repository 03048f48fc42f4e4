"""Correct before timed: what a bound candidate must do before anything else is asked of it.

In this order, each on the same bound call, so that a compiled kernel is compiled once:

1. outputs filled with NaN, one run: every element written, inputs untouched, equal to the reference;
2. more runs: an output that changes between runs is a race, or adds into what was there (the timed runs are watched
   for the same, so that a result which is wrong in 1 run of 20 is found);
3. strongly negative scores: a tail that is not masked takes the softmax's weight;
4. NaN in the keys that no query may see, where the mask leaves whole tiles of them: they must not be read;
5. for the winner, inputs of a second seed. In finals every process has a seed of its own anyway.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

import torch
from torch import Tensor

from attnctl.gpu.protocol import Check
from attnctl.worker.compare import Deviation, WrongResult, deviation, relative_errors, require_finite
from attnctl.worker.setup import Setup
from attnctl.worker.trial import Trial
from attnctl_kernels.contract import Call, SparseBlock

_REPEATS = 3  # the timed runs are watched too
_WATCHED = 40  # of them: finds a result that is wrong in 1 run of 20, at a bounded price
_REPEATS_WINNER = 64
_REPEATS_FINALIST = 22  # in each of three processes
_REPEAT_BUDGET_S = 0.5


class Checker:
    """Checks one bound call. Every method raises :class:`WrongResult` with the reason."""

    def __init__(self, setup: Setup, call: Call) -> None:
        self._setup = setup
        self._call = call
        self._first: dict[str, Tensor] = {}
        self._watched: dict[str, Tensor] = {}
        self._watches = 0

    def first_run(self) -> None:
        """Launch once into poisoned outputs. What came out is looked at later: this may be killed for taking long."""
        self._call.poison()
        self._call.run()
        self._setup.device.synchronize()

    def check(self, sparse_block: SparseBlock | None, *, finalist: bool = False, winner: bool = False) -> Check:
        """After :meth:`first_run`: everything in the order above; leaves the main trial's inputs in place."""
        setup = self._setup
        found = self.check_latest_run()
        self._first = {name: each.clone() for name, each in self._outputs().items()}
        runs = self._require_steady(_REPEATS_WINNER if winner else _REPEATS_FINALIST if finalist else _REPEATS)
        self.check_on(setup.negative)
        notes = [f"{runs} runs gave the same result", self.check_blindness(sparse_block)]
        if winner:
            self.check_on(setup.second)
        setup.main.copy_to(setup.live)
        return Check(
            error={name: each.rms for name, each in found.items()},
            worst_row={name: each.worst_row for name, each in found.items()},
            checked_fraction=setup.heads.fraction,
            notes=tuple(notes),
        )

    def check_latest_run(self) -> dict[str, Deviation]:
        """On the main trial's inputs: every element written, inputs untouched, equal to the reference."""
        self._require_untouched_inputs(self._setup.main)
        return self._require_equal(self._outputs(), self._setup.main)

    def check_on(self, trial: Trial) -> None:
        """One run on other inputs, which stay in place."""
        trial.copy_to(self._setup.live)
        self.first_run()
        self._require_untouched_inputs(trial)
        self._require_equal(self._outputs(), trial)

    def check_blindness(self, sparse_block: SparseBlock | None) -> str:
        """NaN where no query looks must not come out. Says so where the mask leaves no such keys."""
        setup = self._setup
        unseen = setup.unseen_keys(sparse_block)
        count = int(unseen.sum())
        if not count:
            return "every tile of keys is seen by some query"
        setup.main.copy_to(setup.live)
        setup.live.k[:, unseen] = torch.nan
        setup.live.v[:, unseen] = torch.nan
        self.first_run()
        try:
            self._require_equal(self._outputs(), setup.main)
        except WrongResult as error:
            raise WrongResult(f"reads keys that no query may see ({count} of them hold NaN): {error}") from None
        return f"{count} unseen keys are not read"

    def watch(self) -> None:
        """Remember how far the latest run's outputs are from the first's; does not wait for the device."""
        self._watches += 1
        if self._watches > _WATCHED:
            return
        for name, got in self._outputs().items():
            if name in self._setup.main.expected:
                _, rows = relative_errors(got, self._first[name])
                self._watched[name] = torch.maximum(rows.max(), self._watched.get(name, rows.new_zeros(())))

    def check_watched(self) -> None:
        """Judge what :meth:`watch` has seen, and whether the inputs are still what they were."""
        self._setup.device.synchronize()
        self._require_untouched_inputs(self._setup.main)
        self._require_same("the last timed run")
        for name, worst in self._watched.items():
            allowed = self._setup.main.row_tolerance[name]
            if not float(worst) <= allowed:
                raise WrongResult(
                    f"result changes: {name} of a timed run differs from the first run's by {float(worst):.3g} in some "
                    f"row (allowed {allowed:.3g})"
                )

    def check_copy(self, call: Call) -> None:
        """Outputs of a call on a copy of the inputs are those of the first run."""
        self._require_same("a call of the timed graph", self._outputs(call))

    def _outputs(self, call: Call | None = None) -> dict[str, Tensor]:
        device = self._setup.device
        return {name: device.to_torch(each) for name, each in (call or self._call).outputs().items()}

    def _require_untouched_inputs(self, trial: Trial) -> None:
        if changed := trial.changed(self._setup.live):
            raise WrongResult(f"writes its inputs: {', '.join(changed)} changed")

    def _require_equal(self, outputs: Mapping[str, Tensor], trial: Trial) -> dict[str, Deviation]:
        """All outputs finite everywhere, and right where they are compared."""
        missing = [name for name in trial.expected if name not in outputs and name != "lse"]
        if missing:
            raise WrongResult(f"gives no {' and no '.join(missing)}")
        found = {}
        for name, want in trial.expected.items():
            if name not in outputs:  # not every kernel gives its LSE
                continue
            got = self._setup.heads.take(name, outputs[name])
            if got.shape != want.shape:
                raise WrongResult(f"{name} has shape {tuple(got.shape)} instead of {tuple(want.shape)}")
            require_finite(name, outputs[name], self._setup.blind_rows if name == "lse" else None)
            found[name] = deviation(got, want)
            if found[name].exceeds(trial.tolerance[name], trial.row_tolerance[name]):
                raise WrongResult(self._explain(name, got, want, found[name], trial))
        return found

    def _explain(self, name: str, got: Tensor, want: Tensor, found: Deviation, trial: Trial) -> str:
        rms, row = trial.tolerance[name], trial.row_tolerance[name]
        numbers = (
            f"{name}: RMS error {found.rms:.3g} (allowed {rms:.3g}), worst row {found.worst_row:.3g} at {found.at} "
            f"(allowed {row:.3g}), on {trial.name}"
        )
        if trial is self._setup.main and self._setup.task.problem.mask.pattern != "dense":
            dense = deviation(got, self._setup.dense[name]).rms
            if dense < found.rms:
                return f"sparsity ignored: closer to dense attention (RMS error {dense:.3g}); {numbers}"
        return numbers

    def _require_steady(self, count: int) -> int:
        """Run ``count`` times, fewer if that takes long; every other time into poisoned outputs."""
        end = time.monotonic() + _REPEAT_BUDGET_S
        for run in range(2, count + 1):
            if run > _REPEATS and time.monotonic() > end:
                return run - 1
            if run % 2:
                self._call.poison()
            self._call.run()
            self._setup.device.synchronize()
            self._require_same(f"run {run}")
        return count

    def _require_same(self, which: str, outputs: Mapping[str, Tensor] | None = None) -> None:
        """Equal to the first run's outputs, up to the rounding of sums in another order."""
        trial = self._setup.main
        for name, got in (outputs or self._outputs()).items():
            first = self._first[name]
            if torch.equal(got, first) or name not in trial.expected:
                continue
            require_finite(f"{name} of {which}", got, self._setup.blind_rows if name == "lse" else None)
            change = deviation(got, first)
            if change.exceeds(trial.tolerance[name], trial.row_tolerance[name]):
                raise WrongResult(
                    f"result changes: {name} of {which} differs from the first run's by {change.worst_row:.3g} "
                    f"in row {change.at} (allowed {trial.row_tolerance[name]:.3g})"
                )

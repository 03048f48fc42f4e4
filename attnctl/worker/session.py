"""What a worker knows between requests, and how it serves each."""

from __future__ import annotations

import gc
import time
from collections.abc import Mapping

from attnctl.gpu.protocol import (
    Compile,
    CompileReply,
    Cycle,
    Failed,
    Finals,
    FinalsReply,
    Hello,
    Measure,
    Prepare,
    Prepared,
    PreparedReply,
    Ready,
    Result,
)
from attnctl.worker import failures
from attnctl.worker.attempt import Announce, Attempt, compiles
from attnctl.worker.devices import Device, hint, open_device
from attnctl.worker.environment import describe
from attnctl.worker.finals import order_of_cycle, run_cycle
from attnctl.worker.graphs import Timed
from attnctl.worker.nvml import Nvml
from attnctl.worker.probes import Probes
from attnctl.worker.setup import Setup
from attnctl.worker.trial import flop
from attnctl_kernels import masks
from attnctl_kernels.contract import Family, Launcher, Outcome

_PREHEAT_S = 0.2


class Session:
    """One family on one device."""

    def __init__(self, family: Family, launcher: Launcher, announce: Announce) -> None:
        self._family = family
        self._launcher = launcher
        self._announce = announce
        self._device: Device | None = None
        self._nvml: Nvml | None = None
        self._attempt: Attempt | None = None

    def hello(self, request: Hello) -> Ready | Failed:
        if request.device != "none":
            name, on_gpu = self._family.name, self._family.on_gpu(request.arch)
            if on_gpu and request.device.startswith("cpu"):
                return Failed(reason=f"{name} runs on a GPU, not on {request.device}", hint="name a GPU, or no device")
            missing = self._launcher.available(request.arch)
            if missing:
                return Failed(reason=missing, hint=hint(request.device, name, on_gpu=on_gpu))
            try:
                self._device = open_device(self._launcher.framework, request.device)
            except RuntimeError as error:
                return Failed(reason=str(error), hint=hint(request.device, name, on_gpu=on_gpu))
            self._nvml = Nvml.open(self._device.facts().get("uuid"))
        environment = describe(request, self._device, self._launcher, self._nvml)
        if self._device:
            self._device.use()
        count = self._device.count() if self._device else 1
        return Ready(environment=environment, compiles=compiles(self._launcher), device_count=count)

    def prepare(self, request: Prepare) -> PreparedReply:
        begun = time.perf_counter()
        self._attempt = None  # the last task's tensors go first
        gc.unfreeze()
        failures.collect(self._device)
        task = request.task
        setup = Setup(task, self._device, request.cache)
        probes = Probes(self._family, self._launcher, task, self._device)
        self._attempt = Attempt(self._family, self._launcher, setup, probes, self._announce)
        gc.freeze()  # cleaning up after a failed candidate need not look at all of the framework
        setup.seal()
        self._device.release()  # references take many times what is kept of them
        self._device.preheat(_PREHEAT_S)
        problem, main = task.problem, setup.main
        return PreparedReply(
            prepared=Prepared(
                density=masks.density(problem.mask, problem.seqlen_q, problem.seqlen_k),
                flop=flop(problem, task.pass_name),
                tolerance=dict(main.tolerance),
                row_tolerance=dict(main.row_tolerance),
                baseline_error={name: each.rms for name, each in main.baseline.items()},
                seconds=time.perf_counter() - begun,
                device_bytes=self._device.allocated_bytes(),
            )
        )

    def measure(self, request: Measure) -> Result:
        return self._attempt.measure(request)

    def finals(self, request: Finals) -> FinalsReply:
        """Check every contender, then run the cycles. A sticky error ends them: the tool starts again without it."""
        timed: dict[str, Timed] = {}
        failed: dict[str, Result] = {}
        for contender in request.contenders:
            qualified = self._attempt.qualify(contender.candidate, contender.name)
            if not isinstance(qualified, Result):
                timed[contender.name] = qualified
                continue
            failed[contender.name] = qualified
            if qualified.poisoned:
                return FinalsReply(cycles=(), failed=failed)
        try:
            cycles = self._cycles(timed, request.cycles if timed else 0)
            failed |= self._attempt.still_right(timed)
        except Exception as error:  # noqa: BLE001 - some contender's, and launches are queued: nothing says whose
            return FinalsReply(cycles=(), failed=failed, broken=failures.as_result(error, "finals", self._device))
        return FinalsReply(cycles=cycles, failed=failed)

    def _cycles(self, timed: Mapping[str, Timed], count: int) -> tuple[Cycle, ...]:
        setup = self._attempt.setup
        setup.main.copy_to(setup.live)  # a contender that failed a check has left that check's inputs behind
        self._device.preheat(_PREHEAT_S)
        cycles = []
        for cycle in range(count):
            self._announce("finals")
            order = order_of_cycle(len(timed), cycle)
            cycles.append(run_cycle(self._device, timed, order, setup.cache, self._nvml))
        return tuple(cycles)

    def compile(self, request: Compile) -> CompileReply:
        """Compile without a device. Without a result there was nothing to compile: that is fine too."""
        self._announce("compile")
        begun = time.perf_counter()
        try:
            compiled = self._launcher.compile(request.task, request.candidate)
            result = Result(outcome=Outcome.OK, compiled=compiled)
        except ModuleNotFoundError:  # a package that is missing is no candidate's fault
            raise
        except Exception as error:  # noqa: BLE001 - whatever a compiler raises is the candidate's outcome
            result = failures.as_result(error, "compile", None)
        if result.outcome is not Outcome.OK:
            failures.collect(None)
        seconds = {"compile": time.perf_counter() - begun}
        return CompileReply(result=result.model_copy(update={"seconds": seconds}))

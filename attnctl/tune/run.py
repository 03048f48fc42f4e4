"""Tune a profile: its tasks one after the other, on one device or from journals."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from attnctl.errors import AttnctlError, UsageError
from attnctl.gpu.compile_pool import CompilePool
from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.interfaces import PoolLike
from attnctl.gpu.lane import Lanes
from attnctl.gpu.measurer import Measurer
from attnctl.gpu.protocol import CachePolicy, Environment, Hello
from attnctl.gpu.replay import ReplayMeasurer
from attnctl.profile.load import Loaded
from attnctl.profile.lookup import Hit, Stale, case_for, lookup
from attnctl.profile.model import Profile
from attnctl.profile.problems import tasks
from attnctl.state import state_dir
from attnctl.tune.budget import Budget, parse_budget
from attnctl.tune.device import ALL, CPU, check_device, devices_of
from attnctl.tune.early import compile_early
from attnctl.tune.entry import rules_fingerprint
from attnctl.tune.finals import PROCESSES
from attnctl.tune.interrupt import Interrupts
from attnctl.tune.journal import Header, Journal, read
from attnctl.tune.outcome import Status, TaskResult
from attnctl.tune.progress import Progress
from attnctl.tune.quarantine import Quarantine
from attnctl.tune.resume import Mode, journal_path, open_journal
from attnctl.tune.space import Space, build
from attnctl.tune.strategies import Strategy, get_strategy
from attnctl.tune.sweep import Sweep, write
from attnctl_kernels.contract import Candidate, PassName, Task
from attnctl_kernels.families import get_family


class Cluster(Protocol):
    """Devices and compile workers of other machines."""

    def lanes(self, profile: Profile, deadlines: Deadlines, say: Callable[[str], None]) -> Lanes:
        """The devices of one model that a profile can be tuned on."""

    def pool(
        self, profile: Profile, deadlines: Deadlines, jobs: int | None, say: Callable[[str], None]
    ) -> AbstractContextManager[PoolLike] | None:
        """Compile workers; None where they would be of no use."""


@dataclass(frozen=True)
class Options:
    """What the command line says, or leaves open."""

    strategy: Strategy = field(default_factory=lambda: get_strategy("guided"))
    budget: Budget | None = None  # None: what a profile's ``search`` says, or as long as it takes
    mode: Mode = Mode.AUTO
    device: str | None = None  # "cpu", "cuda:0", several with commas, "all"; None: what the family runs on
    cache: CachePolicy = "cold"
    out: Path | None = None
    jobs: int | None = None  # compile workers; None: one per core for a GPU, none beside measurements on the CPU
    replay: tuple[Path, ...] = ()
    cluster: Cluster | None = None  # None: the devices of this machine
    deadlines: Deadlines = field(default_factory=Deadlines)


@dataclass
class Tuning:
    """One profile's tuning. ``results`` grows task by task."""

    loaded: Loaded
    options: Options
    progress: Progress
    interrupts: Interrupts
    results: list[TaskResult] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.loaded.profile is None:
            raise ValueError("the profile has errors")
        self._profile = self.loaded.profile
        self._family = get_family(self._profile.family)
        if not self._family.tunable:
            raise UsageError(f"{self.loaded.path}: {self._family.name} has rules only, it cannot be tuned")
        self._settled: dict[str, dict[PassName, Candidate]] = {}  # winners of earlier passes, by problem

    def run(self, tasks_after: int = 0) -> None:
        """Tune every task; ``tasks_after`` are still to come in other profiles, and share the budget.

        Raises:
            Interrupted: ``results`` holds what is known by then.
        """
        if self.options.replay:
            with Lanes.of(ReplayMeasurer([read(path) for path in self.options.replay])) as lanes:
                self._run_on(lanes, None, None, 0.0, tasks_after)
            return
        begun = time.monotonic()
        folder = state_dir()
        with ExitStack() as stack:
            opened = self._pool(folder)  # its workers import what they need while the device is opened
            pool = stack.enter_context(opened) if opened else None
            if pool:
                stack.enter_context(ThreadPoolExecutor(1)).submit(self._compile_early, pool, folder)
            lanes = stack.enter_context(self._lanes(folder, PROCESSES if pool else 0))
            if not lanes.lead.compiles:
                pool = None
            self._run_on(lanes, pool, folder, time.monotonic() - begun, tasks_after)

    @property
    def left(self) -> int:
        """Tasks without a decision."""
        return len(tasks(self._profile)) - sum(each.decision is not None for each in self.results)

    @property
    def devices(self) -> tuple[str, ...]:
        """What the command line names; of ``all``, the first."""
        return devices_of(self._profile, self.options.device)

    def _lanes(self, folder: Path, warm: int) -> Lanes:
        """The devices, open and locked; ``warm`` processes for the finals import their framework meanwhile."""
        if self.options.cluster:
            return self.options.cluster.lanes(self._profile, self.options.deadlines, self.progress.say)
        names, wants_all = self.devices, self.options.device == ALL

        def open_one(device: str, *, lock: bool = False) -> Measurer:
            hello = Hello(family=self._family.name, arch=self._profile.arch, device=device)
            more = warm if device == names[0] else 0
            measurer = Measurer(hello, self.options.deadlines, folder, on_wait=self.progress.say, lock=lock, warm=more)
            check_device(self.loaded.path, self._profile, measurer.environment, self.progress.say)
            return measurer

        if len(names) == 1 and not wants_all:
            return Lanes.of(open_one(names[0], lock=True))
        lanes = Lanes()
        try:
            lanes.add(names, open_one)
            if wants_all:
                kind = names[0].partition(":")[0]
                count = lanes.all[0].measurer.device_count
                lanes.add([f"{kind}:{index}" for index in range(1, count)], open_one)
            lanes.lock()
        except BaseException:
            lanes.close()
            raise
        return lanes

    def spaces(self) -> list[Space]:
        """What would be measured, with the profile's own config as the incumbent: no device is asked."""
        return [self._space(task, None) for task in tasks(self._profile)]

    def _run_on(
        self, lanes: Lanes, pool: PoolLike | None, folder: Path | None, startup_s: float, tasks_after: int
    ) -> None:
        all_tasks = tasks(self._profile)
        budget = self.options.budget
        if budget is None:  # the profile's own is not shared with others
            own = self._profile.search.get("budget")
            budget, tasks_after = Budget(parse_budget(own) if own else None), 0
        for index, task in enumerate(all_tasks):
            with ExitStack() as stack:
                sweep, done = self._sweep(task, lanes, pool, folder, stack)
                sweep.startup_s = startup_s
                sweep.share = budget.share(len(all_tasks) - index + tasks_after)
                self.results.append(sweep.result)
                try:
                    if not sweep.result.space.candidates:
                        sweep.result.status = Status.NO_CONFIG
                    elif not (done and sweep.recall()):
                        sweep.run()
                finally:
                    self._keep(sweep.result)

    def _sweep(
        self, task: Task, lanes: Lanes, pool: PoolLike | None, folder: Path | None, stack: ExitStack
    ) -> tuple[Sweep, bool]:
        environment = lanes.lead.environment
        space = self._space(task, self._incumbent(task, environment))
        header = Header(
            profile=self.loaded.path.stem,
            task=task,
            space=space.fingerprint,
            rules=rules_fingerprint(task.family),
            cache=self.options.cache,
            environment=environment,
        )
        result = TaskResult(task, space, environment)
        quarantine, done = None, False
        if folder is None:
            journal = Journal.scratch(header)
        else:
            path = journal_path(folder, header, self._profile.sparse_block_of(task.pass_name))
            journal, done = open_journal(path, header, self.options.mode, self.progress.say)
            result.journal = path
            quarantine = Quarantine(folder)
        stack.callback(journal.close)
        held = quarantine.find(task, environment) if quarantine and self.options.mode is not Mode.FRESH else {}
        sweep = Sweep(
            result=result,
            lanes=lanes,
            pool=pool,
            journal=journal,
            quarantine=quarantine,
            strategy=self.options.strategy,
            progress=self.progress,
            interrupts=self.interrupts,
            held=held,
        )
        return sweep, done

    def _space(self, task: Task, incumbent: Candidate | None) -> Space:
        case = case_for(self.loaded, task)
        settled = self._settled.get(task.problem.model_dump_json(), {})
        case = replace(
            case,
            configs={**case.configs, **{name: each.config for name, each in settled.items()}},
            sparse_blocks={**case.sparse_blocks, **{name: each.sparse_block for name, each in settled.items()}},
        )
        fixed = self._profile.sparse_block_of(task.pass_name)
        return build(case, sparse_block=fixed, search=self._profile.search, incumbent=incumbent)

    def _incumbent(self, task: Task, environment: Environment) -> Candidate | None:
        """The tuned config of this device, measured again where it is of other versions; None: the profile's own."""
        found = lookup(
            self.loaded,
            task,
            environment.device_name,
            root=self.options.out,
            versions=environment.running_versions,
            num_sms=environment.num_sms,
        )
        if isinstance(found, Stale):
            again = "; it is measured again" if found.candidate else ""
            self.progress.say(f"{found.path}: the tuned config of {task.problem.slug} is stale: {found.reason}{again}")
            return found.candidate
        if isinstance(found, Hit):
            for note in found.notes:
                self.progress.say(f"{found.path}: {note}")
        return found.candidate if isinstance(found, Hit) else None

    def _pool(self, folder: Path) -> AbstractContextManager[PoolLike] | None:
        if cluster := self.options.cluster:
            return cluster.pool(self._profile, self.options.deadlines, self.options.jobs, self.progress.say)
        cores = len(os.sched_getaffinity(0))
        jobs = self.options.jobs
        first = self.devices[0]
        if jobs is None:
            jobs = 0 if first.startswith(CPU) else max(1, cores - len(self.devices))  # one core each launches kernels
        if not jobs:
            return None
        hello = Hello(family=self._family.name, arch=self._profile.arch, device=first)
        return CompilePool(hello, jobs, self.options.deadlines, folder)

    def _compile_early(self, pool: PoolLike, folder: Path) -> None:
        first = tasks(self._profile)[0]
        with suppress(AttnctlError):  # whoever needs it for the sweep says so
            suspects = Quarantine(folder).suspects(first)
            compile_early(pool, first, self._space(first, None), self.options.strategy, suspects)

    def _keep(self, result: TaskResult) -> None:
        """Write a winner, if there is one and it has somewhere to go; later passes are tuned beside it."""
        if result.winner is None:
            return
        winners = self._settled.setdefault(result.task.problem.model_dump_json(), {})
        winners[result.task.pass_name] = result.winner
        if not self.options.replay or self.options.out:
            with self.interrupts.shield():
                write(result, self.loaded, self.options.out, lambda: how_to_resume(self.loaded.path, " --out FOLDER"))


def how_to_resume(profile: Path, more: str = "") -> str:
    return f"attnctl tune {shlex.quote(str(profile))} --resume{more}"


def count_tasks(profiles: Sequence[Loaded]) -> int:
    return sum(len(tasks(each.profile)) for each in profiles if each.profile)

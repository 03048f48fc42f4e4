"""Compilers do not wait for the device: what is compiled while it is opened is what the sweep asks for first."""

import time

import pytest
from sweeps import BLOCKS, ENVIRONMENT, bad, journals, profile, tuning

from attnctl.profile.load import load
from attnctl.profile.problems import tasks
from attnctl.tune.early import compile_early
from attnctl.tune.journal import read
from attnctl.tune.quarantine import Quarantine
from attnctl.tune.run import Tuning
from attnctl.tune.strategies import get_strategy
from attnctl_kernels.contract import Outcome

COMPILED = """\
schema: 1
family: faulty
problem: {batch_size: 1, seq_len: 64, num_heads_q: 2, head_dim: 16, dtype: float32}
mask: {pattern: causal}
config: {fault: none, delay_us: 20000}
search: {fault: [none], delay_us: [1000, 2000, 3000, 4000]}
"""


class Submitted(list):
    size = 3

    def submit(self, task, candidate):
        self.append(candidate.key)


class OpensWhenCompiled(Tuning):
    """Real devices and compile workers; but the device is there only when all that was asked for is compiled."""

    def _pool(self, folder):
        self.pool = super()._pool(folder)
        return self.pool

    def _lanes(self, folder, warm):
        lanes, until = super()._lanes(folder, warm), time.monotonic() + 60
        while len(self.pool._jobs) < self.pool.size or not all(each.future.done() for each in self.pool._jobs.values()):
            assert time.monotonic() < until, "nothing is compiled while the device is opened"
            time.sleep(0.02)
        self.opened = time.time()
        return lanes


def test_the_first_candidates_are_compiled_while_the_device_is_opened_and_only_then(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plain = tuning(profile(tmp_path, COMPILED), jobs=2)
    it = OpensWhenCompiled(plain.loaded, plain.options, plain.progress, plain.interrupts)
    it.run()
    (path,) = journals(tmp_path)
    results = [each.result for each in read(path).outcomes.values()]
    assert {each.outcome for each in results} == {Outcome.OK}
    early = [each for each in results if each.compiled.span.ended < it.opened]
    assert len(early) == 2
    assert not any(each.compiled.cached for each in results)


@pytest.mark.parametrize("strategy", ["guided", "exhaustive", "random:samples=2"])
def test_one_candidate_for_every_compiler_the_default_first(tmp_path, strategy):
    it = tuning(profile(tmp_path))
    (space,), (task,), pool = it.spaces(), tasks(it.loaded.profile), Submitted()
    compile_early(pool, task, space, get_strategy(strategy), ())
    assert pool[: len(space.required)] == [each.key for each in space.required]
    assert len(set(pool)) == len(pool) == min(pool.size, get_strategy(strategy).most(len(space.candidates)))


def test_what_is_in_quarantine_for_any_device_is_not_compiled_early(tmp_path):
    path, quarantine = profile(tmp_path), Quarantine(tmp_path)
    (task,), (space,) = tasks(load(path).profile), tuning(path).spaces()
    other = ENVIRONMENT.model_copy(update={"device_name": "nvidia_h100"})
    quarantine.add(task, space.candidates[0], other, bad(Outcome.WORKER_DIED, "killed by SIGABRT"))
    elsewhere = tasks(load(profile(tmp_path, BLOCKS.replace("128", "64", 1), "other.yaml")).profile)[0]
    quarantine.add(elsewhere, space.candidates[1], other, bad(Outcome.WORKER_DIED, "killed by SIGABRT"))
    pool = Submitted()
    compile_early(pool, task, space, get_strategy("exhaustive"), quarantine.suspects(task))
    assert space.candidates[0].key not in pool
    assert space.candidates[1].key in pool

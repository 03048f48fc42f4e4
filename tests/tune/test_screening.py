"""The loop between compile workers and the device, with recorded outcomes in place of both."""

from concurrent.futures import Future
from queue import SimpleQueue

import pytest
from sweeps import ENVIRONMENT, Told, bad, ok, profile, record, tuning

from attnctl.errors import Unavailable
from attnctl.gpu.lane import Lane, Lanes
from attnctl.gpu.protocol import Result
from attnctl.gpu.replay import ReplayMeasurer
from attnctl.tune.interrupt import Interrupts
from attnctl.tune.journal import Journal, OutcomeRecord, read
from attnctl.tune.screening import Recorder, Screening
from attnctl.tune.strategies import Stop, get_strategy
from attnctl_kernels.contract import Compiled, Outcome


class Pool:
    """Compiles what it is given when there is nothing else to wait for, newest first; ``of`` says what comes out."""

    def __init__(self, of):
        self.of = of
        self.queue = []
        self.submitted = []
        self.most_waiting = 0
        self.cancelled = False
        self.size = 1
        self.next = -1

    def submit(self, task, candidate):
        future = Future()
        self.queue.append((candidate, future))
        self.submitted.append(candidate)
        self.most_waiting = max(self.most_waiting, len(self.queue))
        return future

    def compile_one(self):
        candidate, future = self.queue.pop(self.next)
        future.set_result(self.of(candidate))

    def cancel(self):
        self.cancelled = True
        self.queue.clear()


class Events(SimpleQueue):
    """Its reader makes the next thing happen, if nothing is on its way: one order, whatever the machine does."""

    def __init__(self, it):
        self.it = it

    def get(self):
        if len(self.it._idle) == len(self.it.lanes.all) and self.it.pool:
            self.it.pool.compile_one()
        return super().get()


class Measuring(ReplayMeasurer):
    """Remembers what it was asked."""

    def measure(self, candidate, best_us=None, **options):
        self.asked = [*getattr(self, "asked", ()), (candidate, best_us)]
        return super().measure(candidate, best_us, **options)


class TwoAtATime:
    """A guided strategy: it sees the outcomes of what it proposed before it proposes more."""

    lookahead = 1  # beside the one that compiles

    def __init__(self):
        self.seen = []

    def start(self, space):
        def choose(tried, pending):
            self.seen.append(len(tried))
            free = (each for each in space.candidates if each.key not in tried and each.key not in pending)
            return next(free, Stop("all"))

        return choose


def compiled(binary):
    return Result(outcome=Outcome.OK, compiled=Compiled(seconds=2.0, binary=binary))


def own_binary(candidate):
    return compiled(candidate.key)


@pytest.fixture
def screening(tmp_path):
    """Makes a screening of the six candidates of the usual profile."""
    path = profile(tmp_path)
    (space,) = tuning(path).spaces()

    def median(candidate):
        return ok(100.0 + 10 * space.candidates.index(candidate))

    def make(result_of=median, of=own_binary, strategy=None, **options):
        recorded = read(record(path, tmp_path / "recorded.jsonl", result_of))
        measurer = Measuring([recorded])
        measurer.prepare(recorded.header.task)
        journal = Journal.scratch(recorded.header)
        recorder = Recorder(space, ENVIRONMENT, journal, None, Told(), Interrupts())
        return started(measurer, Pool(of) if of else None, recorder, strategy, **options)

    return make


def started(measurer, pool, recorder, strategy=None, **options):
    it = Screening(Lanes.of(measurer), pool, recorder, strategy or get_strategy("exhaustive"), **options)
    it._events = Events(it)
    return it


def outcomes(it):
    return it.recorder.journal.recorded.outcomes


def test_everything_is_compiled_ahead_and_measured_as_it_comes(screening):
    it = screening()
    it.begin()
    candidates = it.recorder.space.candidates
    assert it.pool.submitted == list(candidates)
    assert it.run()
    assert [candidate for candidate, _ in it.lanes.lead.asked] == list(candidates[::-1])
    assert set(outcomes(it)) == {each.key for each in candidates}
    assert it.costs.compile_core_s == 2.0 * len(candidates)


def test_without_a_pool_the_order_is_the_spaces(screening):
    it = screening(of=None)
    assert it.run()
    assert [candidate for candidate, _ in it.lanes.lead.asked] == list(it.recorder.space.candidates)


def test_the_time_to_beat_is_never_given_to_default_and_incumbent(screening):
    it = screening()
    it.run()
    limits = {candidate.key: best for candidate, best in it.lanes.lead.asked}
    first, second, *rest = it.recorder.space.candidates
    assert limits[first.key] is limits[second.key] is None
    assert [limits[each.key] for each in rest] == [130.0, 140.0, 150.0, None]


def test_what_does_not_compile_is_an_outcome_and_is_not_measured(screening):
    failure = Result(outcome=Outcome.COMPILE_ERROR, reason="no", seconds={"compile": 1.0})
    it = screening(of=lambda candidate: failure if candidate.config["block_kv"] == 128 else own_binary(candidate))
    assert it.run()
    failed = [each.candidate for each in outcomes(it).values() if each.result == failure]
    assert {each.config["block_kv"] for each in failed} == {128}
    assert all(candidate.config["block_kv"] != 128 for candidate, _ in it.lanes.lead.asked)


def test_identical_binaries_over_the_same_blocks_are_measured_once(tmp_path, one_block, screening):
    it = screening(of=lambda candidate: compiled(f"q{candidate.config['block_q']}"))
    assert it.run()
    assert len(it.lanes.lead.asked) == 6, "their block lists differ, so that the same code does different work"

    path, space = one_block
    recorded = read(record(path, tmp_path / "fixed.jsonl", lambda candidate: ok(100.0 + candidate.config["block_q"])))
    measurer = Measuring([recorded])
    measurer.prepare(recorded.header.task)
    recorder = Recorder(space, ENVIRONMENT, Journal.scratch(recorded.header), None, Told(), Interrupts())
    pool = Pool(lambda candidate: compiled(f"q{candidate.config['block_q']}"))
    it = started(measurer, pool, recorder)
    assert it.run()
    assert len(measurer.asked) == 2
    copied = [each for each in outcomes(it).values() if each.note]
    assert len(copied) == 4
    assert all(each.note.startswith("same binary as ") for each in copied)
    medians = {(each.candidate.config["block_q"], each.result.timing.median_us) for each in outcomes(it).values()}
    assert medians == {(16, 116.0), (64, 164.0)}


def test_a_hang_of_one_binary_does_not_condemn_its_twin(screening):
    it = screening(result_of=lambda candidate: bad(Outcome.TIMEOUT), of=lambda candidate: compiled("same"))
    it.run()
    assert len(it.lanes.lead.asked) == 6


def given_up(result):
    return result.model_copy(update={"timing": result.timing.model_copy(update={"gave_up": True})})


@pytest.fixture
def one_block(tmp_path):
    """The usual profile with one sparse block, so that equal code does equal work; and its space."""
    (tmp_path / "fixed").mkdir()
    path = profile(tmp_path / "fixed")
    path.write_text(path.read_text() + "sparse_block: [128, 128]\n")
    return path, tuning(path).spaces()[0]


def test_a_twin_that_was_given_up_does_not_speak_for_default_and_incumbent(tmp_path, one_block):
    """Compiled last, they find an outcome that says "clearly slower": finals could not compare with them."""
    path, space = one_block

    def result_of(candidate):
        return ok(100.0) if candidate in space.required else given_up(ok(300.0))

    recorded = read(record(path, tmp_path / "fixed.jsonl", result_of))
    measurer = Measuring([recorded])
    measurer.prepare(recorded.header.task)
    recorder = Recorder(space, ENVIRONMENT, Journal.scratch(recorded.header), None, Told(), Interrupts())
    it = started(measurer, Pool(lambda candidate: compiled("same")), recorder)
    assert it.run()
    assert {each.key for each in space.required} <= {candidate.key for candidate, _ in measurer.asked}
    assert not any(outcomes(it)[each.key].result.timing.gave_up for each in space.required)


def test_what_was_given_up_is_measured_in_full_once_it_is_the_incumbent(tmp_path, screening):
    """A sweep was interrupted, and its profile's config is another by now: one of those that were tried."""
    it = screening(of=None)
    incumbent = it.recorder.space.incumbent
    it.recorder.journal.append(OutcomeRecord(candidate=incumbent, result=given_up(ok(300.0))))
    again = started(it.lanes.lead, None, it.recorder)
    assert again.run()
    assert not outcomes(again)[incumbent.key].result.timing.gave_up


def test_a_guided_strategy_sees_outcomes_and_is_asked_a_little_ahead(screening):
    strategy = TwoAtATime()
    it = screening(strategy=strategy)
    assert it.run()
    assert it.pool.most_waiting == 2
    assert strategy.seen[:4] == [1, 2, 3, 4]
    assert len(outcomes(it)) == 6


def test_when_time_is_up_default_and_incumbent_are_measured_and_nothing_else(screening):
    it = screening(of=None, out_of_time=lambda: True)
    assert not it.run()
    assert [candidate for candidate, _ in it.lanes.lead.asked] == list(it.recorder.space.required)


def test_when_time_is_up_the_compile_workers_stop(screening):
    it = screening(out_of_time=lambda: True)
    it.pool.next = 0  # default and incumbent, which are waited for, come first
    assert not it.run()
    assert it.pool.cancelled
    assert [candidate for candidate, _ in it.lanes.lead.asked] == list(it.recorder.space.required)


def test_known_outcomes_are_not_measured_again_but_skipped_ones_are(screening):
    it = screening(of=None)
    it.run()
    journal = it.recorder.journal
    it.lanes.lead.asked = []
    key, first = next(iter(journal.recorded.outcomes.items()))
    journal.append(first.model_copy(update={"result": Result(outcome=Outcome.SKIPPED, reason="quarantine")}))
    again = started(it.lanes.lead, None, it.recorder)
    assert again.run()
    assert [candidate.key for candidate, _ in it.lanes.lead.asked] == [key]


def test_a_strategy_that_has_seen_enough_leaves_what_is_compiling(screening):
    class Enough(TwoAtATime):
        lookahead = None

        def start(self, space):
            choose = super().start(space)
            return lambda tried, pending: Stop("enough", wait=False) if len(tried) == 3 else choose(tried, pending)

    it = screening(strategy=Enough())
    it.pool.next = 0
    assert it.run()
    assert it.pool.cancelled
    assert len(outcomes(it)) == 3
    assert it.stopped.reason == "enough"


def test_two_devices_share_one_queue_and_one_that_is_lost_costs_nothing(screening, tmp_path):
    it = screening(of=None)
    lost = []

    class Lost(Measuring):
        def measure(self, candidate, best_us=None, **options):
            lost.append(candidate)
            raise Unavailable("the driver is gone")

    second = Lost([it.recorder.journal.recorded])
    it = started(it.lanes.lead, None, it.recorder)
    it.lanes.all.append(Lane(lambda: second))
    it._idle = list(it.lanes.all)
    assert it.run()
    assert len(lost) == 1
    assert {each.key for each in it.recorder.space.candidates} == set(outcomes(it))
    assert it.recorder.progress.messages == ["going on with 1 devices: the driver is gone"]

"""From recorded outcomes to a winner on disk: replays need no device, and no time."""

import json
import re
import signal

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sweeps import BLOCKS, Told, bad, file_size_limit, finals_record, ok, profile, record, tuning

import attnctl
from attnctl.cli.app import run
from attnctl.errors import AttnctlError
from attnctl.profile.load import load
from attnctl.profile.lookup import Hit, Miss, Stale, lookup
from attnctl.profile.problems import tasks
from attnctl.profile.runtime import NotTuned
from attnctl.profile.tuned import tuned_path
from attnctl.tune.interrupt import Interrupted
from attnctl.tune.outcome import Status
from attnctl.tune.run import how_to_resume
from attnctl.tune.strategies import get_strategy
from attnctl.tune.sweep import write
from attnctl_kernels.contract import Outcome

OUTCOMES = [each for each in Outcome if each is not Outcome.OK]


def by_tile(times):
    """``result_of`` for a profile of blocks: (block_q, block_kv) -> microseconds, or a result."""

    def result_of(candidate):
        value = times[candidate.config["block_q"], candidate.config["block_kv"]]
        return ok(value) if isinstance(value, float) else value

    return result_of


TIMES = {(16, 16): 900.0, (16, 64): 500.0, (16, 128): 400.0, (64, 16): 480.0, (64, 64): 300.0, (64, 128): 250.0}


def replayed(folder, times, **options):
    path = profile(folder)
    journal = record(path, folder / "j.jsonl", by_tile(times))
    it = tuning(path, replay=(journal,), **options)
    it.run()
    (result,) = it.results
    return result


def tile(candidate):
    return candidate.config["block_q"], candidate.config["block_kv"]


def test_the_fastest_wins_and_says_against_what(tmp_path):
    result = replayed(tmp_path, TIMES)
    assert result.status is Status.WON
    assert tile(result.winner) == (64, 128)
    assert result.against_baseline.ratio == pytest.approx(250 / 900, rel=0.01)
    assert result.against_default.ratio == pytest.approx(250 / 300, rel=0.01)
    assert result.written is None
    assert not (tmp_path / "tuned").exists()
    assert not (tmp_path / ".attnctl").exists()


def test_a_tie_keeps_the_incumbent_and_says_so(tmp_path):
    result = replayed(tmp_path, dict.fromkeys(TIMES, 300.0) | {(64, 128): 299.9})
    assert result.status is Status.TIE
    assert tile(result.winner) == (16, 16)
    assert result.decision.reason.startswith("tie: ")


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_what_failed_never_wins(tmp_path, outcome):
    result = replayed(tmp_path, TIMES | {(64, 128): bad(outcome)})
    assert tile(result.winner) == (64, 64)
    assert result.failures == {outcome: 1}


def test_where_the_incumbent_fails_the_default_is_the_baseline(tmp_path):
    result = replayed(tmp_path, TIMES | {(16, 16): bad()})
    assert result.baseline == "default"
    assert tile(result.winner) == (64, 128)


def test_where_both_fail_the_fastest_is_kept(tmp_path):
    result = replayed(tmp_path, TIMES | {(16, 16): bad(), (64, 64): bad()})
    assert tile(result.winner) == (64, 128)
    assert result.against_default is None


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.fixed_dictionaries({each: st.one_of(st.floats(100, 1000), st.sampled_from(OUTCOMES).map(bad)) for each in TIMES})
)
def test_the_winner_is_right_and_nothing_right_is_faster_beyond_the_margin(tmp_path, times):
    result = replayed(tmp_path, times)
    working = {each: us for each, us in times.items() if isinstance(us, float)}
    if not working:
        assert result.status is Status.NO_CONFIG
        assert result.winner is None
    else:
        assert tile(result.winner) in working
        assert working[tile(result.winner)] <= 1.02 * min(working.values())


def test_random_search_finds_the_best_of_what_it_measured(tmp_path):
    result = replayed(tmp_path, TIMES, strategy=get_strategy("random:samples=2,seed=3"))
    tried = {tile(each.candidate) for each in result.outcomes}
    assert len(tried) == 4
    assert tile(result.winner) == min(tried, key=lambda each: TIMES[each])


def test_recorded_finals_decide_rather_than_the_screening(tmp_path):
    path = profile(tmp_path)
    (space,) = tuning(path).spaces()
    keys = {tile(each): each.key for each in space.candidates}
    times = {keys[each]: us for each, us in (TIMES | {(64, 64): 200.0}).items()}
    finals = [finals_record(space, times, seed=seed) for seed in range(3)]
    journal = record(path, tmp_path / "j.jsonl", by_tile(TIMES), finals=finals)
    it = tuning(path, replay=(journal,))
    it.run()
    assert tile(it.results[0].winner) == (64, 64)
    assert it.results[0].processes == 3


def test_an_interval_without_end_is_null_in_json_which_has_no_infinity(tmp_path, capsys):
    """Six cycles in all say nothing about any ratio."""
    path = profile(tmp_path)
    (space,) = tuning(path).spaces()
    times = {each.key: TIMES[tile(each)] for each in space.candidates}
    finals = [finals_record(space, times, seed=seed, cycles=1) for seed in range(6)]
    journal = record(path, tmp_path / "j.jsonl", by_tile(TIMES), finals=finals)
    assert run(["tune", str(path), "--replay", str(journal), "--format", "json"]) == 0
    text = capsys.readouterr().out
    assert not re.search("Infinity|NaN", text)
    against = json.loads(text)["tasks"][0]["against_default"]
    assert (against["verdict"], against["high"]) == ("inconclusive", None)


def test_an_unstable_machine_decides_nothing(tmp_path, capsys):
    path = profile(tmp_path)
    (space,) = tuning(path).spaces()
    times = {each.key: TIMES[tile(each)] for each in space.candidates}
    finals = [finals_record(space, times, seed=seed, throttle=("thermal",)) for seed in range(3)]
    journal = record(path, tmp_path / "j.jsonl", by_tile(TIMES), finals=finals)
    out = tmp_path / "out"
    assert run(["tune", str(path), "--replay", str(journal), "--out", str(out)]) == 3
    assert "the machine is unstable: 100% of the cycles were dropped" in capsys.readouterr().out
    assert not out.exists()


class Interrupting(Told):
    """Ctrl-C when a process of the finals begins."""

    def __init__(self, process):
        super().__init__()
        self.process = process

    def finals(self, process, processes, contenders):
        if process == self.process:
            raise Interrupted(signal.SIGINT)


@pytest.mark.parametrize(("process", "decided"), [(1, False), (2, False), (3, True)])
def test_an_interrupted_sweep_is_decided_by_two_processes_of_finals_and_never_by_less(tmp_path, process, decided):
    path = profile(tmp_path)
    journal = record(path, tmp_path / "j.jsonl", by_tile(TIMES))
    it = tuning(path, Interrupting(process), replay=(journal,), out=tmp_path / "tuned")
    with pytest.raises(Interrupted):
        it.run()
    (result,) = it.results
    assert len(result.outcomes) == 6
    assert (tmp_path / "tuned").exists() == decided
    assert result.status is (Status.WON if decided else Status.INTERRUPTED)
    assert (result.winner is not None and tile(result.winner) == (64, 128)) == decided


def test_nothing_works_is_an_error_with_its_causes(tmp_path, capsys):
    path = profile(tmp_path)
    failing = TIMES | dict.fromkeys(TIMES, bad(Outcome.TIMEOUT, "no reply")) | {(16, 16): bad()}
    journal = record(path, tmp_path / "j.jsonl", by_tile(failing))
    assert run(["tune", str(path), "--replay", str(journal), "--out", str(tmp_path / "out")]) == 1
    shown = capsys.readouterr()
    assert shown.err.splitlines()[-1] == (
        "error: no config works for causal-b1-s128-h1-d16-float32: 5 timeout (no reply), 1 wrong_result (out is wrong)"
    )
    assert "nothing was written" in shown.out
    assert not (tmp_path / "out").exists()


def test_a_written_winner_is_found_by_a_program(tmp_path):
    result = replayed(tmp_path, TIMES, out=tmp_path / "tuned")
    assert result.written == tmp_path / "tuned" / "nvidia_h200" / "p.yaml"
    config = attnctl.load_config(tmp_path / "p.yaml", device_name="NVIDIA H200")
    assert config == {"block_q": 64, "block_kv": 128, "sparse_block": (64, 128)}


def test_a_second_replay_leaves_the_file_as_it_is(tmp_path):
    first = replayed(tmp_path, TIMES, out=tmp_path / "tuned")
    before = first.written.read_bytes()
    second = replayed(tmp_path, TIMES, out=tmp_path / "tuned")
    assert second.space.incumbent == first.winner == second.winner
    assert list(second.winner.config) == list(first.winner.config) == ["block_q", "block_kv"]
    assert second.unchanged
    assert second.written.read_bytes() == before


def test_a_disk_that_takes_no_more_says_how_to_write_later(tmp_path):
    result = replayed(tmp_path, TIMES)
    path, root = tmp_path / "p.yaml", tmp_path / "tuned"
    with file_size_limit(200), pytest.raises(AttnctlError) as caught:
        write(result, load(path), root, lambda: how_to_resume(path, " --out FOLDER"))
    assert caught.value.message == f"{root}/nvidia_h200/p.yaml: cannot be written: File too large"
    assert caught.value.hint.endswith(f"nothing is lost: attnctl tune {path} --resume --out FOLDER")


@pytest.fixture
def stored(tmp_path):
    replayed(tmp_path, TIMES, out=tmp_path / "tuned")
    return tmp_path / "p.yaml"


def found(path, device_name="nvidia_h200", **known):
    loaded = load(path)
    (task,) = tasks(loaded.profile)
    return lookup(loaded, task, device_name, **known)


def test_spelling_of_the_device_does_not_matter_but_the_device_does(stored):
    assert isinstance(found(stored, "NVIDIA H200"), Hit)
    missed = found(stored, "NVIDIA H100 80GB HBM3")
    assert isinstance(missed, Miss)
    assert missed.devices == ("nvidia_h200",)
    assert isinstance(found(stored, "NVIDIA H200 NVL"), Miss)


def test_a_slice_of_the_device_is_stale(stored):
    stale = found(stored, num_sms=66)
    assert isinstance(stale, Stale)
    assert stale.reason == "num_sms 132 then, 66 now"


def test_other_versions_are_stale_and_named(stored):
    assert isinstance(found(stored, versions={"kernel": "1", "attnctl": "9"}), Hit)
    assert found(stored, versions={"kernel": "2"}).reason == "versions.kernel 1 then, 2 now"


def edit(stored, change):
    path = tuned_path(stored, "nvidia_h200")
    content = yaml.safe_load(path.read_text())
    change(content["entries"][0])
    path.write_text(yaml.safe_dump(content))


def test_a_config_of_other_versions_is_measured_again_and_written_with_those_of_now(stored, tmp_path):
    before = found(stored).candidate
    edit(stored, lambda entry: entry["versions"].update(kernel="0"))
    assert found(stored, versions={"kernel": "1"}).candidate == before
    assert found(stored, versions={"kernel": "1"}, num_sms=66).candidate is None
    again = replayed(tmp_path, TIMES, out=tmp_path / "tuned")
    assert again.space.incumbent == before
    assert found(stored, versions={"kernel": "1"}).candidate == again.winner


def test_no_version_recorded_is_never_current(stored):
    edit(stored, lambda entry: entry.update(versions={}))
    assert found(stored).reason == "versions: none are recorded"


def test_an_entry_that_a_rule_forbids_is_not_used(stored):
    edit(stored, lambda entry: entry["config"].update(block_q=-64))
    stale = found(stored)
    assert isinstance(stale, Stale)
    with pytest.warns(NotTuned, match=re.escape(stale.reason)):
        config = attnctl.load_config(stored, device_name="nvidia_h200")
    assert (config["block_q"], config["block_kv"]) == (16, 16)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"family": "fa4"}, "family: the entry is of fa4, not of blocks"),
        ({"family": "no_such"}, "family: the entry is of no_such, not of blocks"),
        ({"config": {}}, "config: the entry has none"),
        (
            {"config": {"block_q": "abc", "block_kv": 128}},
            "config.block_q abc: input should be a valid integer",
        ),
        (
            {"config": {"block_q": 64, "block_k": 128}},
            "config.block_k 128: extra inputs are not permitted",
        ),
        ({"sparse_block": [0, 128]}, "sparse_block [0, 128] has a side below 1"),
    ],
)
def test_an_entry_that_is_no_config_of_the_family_is_not_used(stored, change, reason):
    edit(stored, lambda entry: entry.update(change))
    stale = found(stored)
    assert isinstance(stale, Stale)
    assert stale.reason == reason
    with pytest.warns(NotTuned, match=re.escape(reason)):
        config = attnctl.load_config(stored, device_name="nvidia_h200")
    assert (config["block_q"], config["block_kv"]) == (16, 16)


def test_an_unknown_field_is_noted(stored):
    edit(stored, lambda entry: entry.update(checked_by="someone"))
    assert found(stored).notes == ("unknown fields: checked_by",)


CHANGES = {
    "dtype": ("dtype: float32", "dtype: float16"),
    "head_dim": ("head_dim: 16", "head_dim: 32"),
    "head_dim_v": ("head_dim: 16", "head_dim: 16, head_dim_v: 32"),
    "seqlen_q": ("seq_len: 128", "seqlen_q: 64, seqlen_k: 128"),
    "seqlen_k": ("seq_len: 128", "seqlen_q: 128, seqlen_k: 256"),
    "heads": ("num_heads_q: 1", "num_heads_q: 2, num_heads_kv: 1"),
    "batch": ("batch_size: 1", "batch_size: 2"),
    "mask": ("pattern: causal", "pattern: dense"),
    "mask parameter": ("pattern: causal", "pattern: sliding_window, window: 16"),
    "sparse block": ("schema: 1", "schema: 1\nsparse_block: [128, 128]"),
    "passes": ("schema: 1", "schema: 1\npasses: [backward]"),
    "scale": ("head_dim: 16", "head_dim: 16, softmax_scale: 0.5"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_any_field_that_can_change_the_best_config_makes_a_miss(stored, change):
    before, after = CHANGES[change]
    text = BLOCKS.replace(before, after)
    if change == "passes":
        text = text.replace("  forward:", "  backward:")
    stored.write_text(text)
    assert isinstance(found(stored), Miss)


def test_description_and_order_of_keys_do_not_matter(stored):
    content = yaml.safe_load(BLOCKS)
    stored.write_text(yaml.safe_dump({"description": "another", **content}, sort_keys=True))
    assert isinstance(found(stored), Hit)


def test_a_damaged_tuned_file_ends_the_tune_and_stays(stored):
    path = tuned_path(stored, "nvidia_h200")
    path.write_text(path.read_text()[:100])
    before = path.read_bytes()
    with pytest.raises(AttnctlError, match="is not a tuned profile that can be read"):
        replayed(stored.parent, TIMES, out=stored.parent / "tuned")
    assert path.read_bytes() == before


def test_load_config_names_what_it_has(tmp_path):
    path = profile(tmp_path, BLOCKS.replace("seq_len: 128", "seq_len: [128, 256]"))
    with pytest.raises(AttnctlError) as caught:
        attnctl.load_config(path)
    assert caught.value.hint == "seqlen_q x seqlen_k in the profile: 128 x 128 and 256 x 256"
    with pytest.warns(NotTuned, match="nothing is tuned for no_such_chip"):
        config = attnctl.load_config(path, seqlen_q=256, device_name="No Such Chip")
    assert config == {"block_q": 16, "block_kv": 16, "sparse_block": (16, 16)}

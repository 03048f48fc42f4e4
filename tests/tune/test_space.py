"""Which candidates a profile makes, which the rules drop, and in what order they are measured."""

from dataclasses import replace

import pytest
from sweeps import BLOCKS, ok, profile, tuning

from attnctl.errors import AttnctlError, UsageError
from attnctl.profile.candidate import case_of
from attnctl.rules.check import check_case
from attnctl.tune import strategies
from attnctl.tune.strategies import Stop, get_strategy, strategy_names
from attnctl_kernels.families import get_family
from attnctl_kernels.flex.launch.block_mask import flex_mask
from attnctl_kernels.masks import block_lists, classify
from attnctl_kernels.rule import Severity

FA4 = """\
schema: 1
family: fa4
arch: sm_90
problem: {batch_size: 2, seq_len: 8192, num_heads_q: 16, head_dim: 256, dtype: bfloat16}
mask: {pattern: history_candidate, history_len: 6144}
"""


def space(folder, text):
    (found,) = tuning(profile(folder, text)).spaces()
    return found


def test_search_narrows_the_familys_space_and_default_and_incumbent_come_first(tmp_path):
    found = space(tmp_path, BLOCKS)
    configs = [(each.config["block_q"], each.config["block_kv"]) for each in found.candidates]
    assert set(configs) == {(q, kv) for q in (16, 64) for kv in (16, 64, 128)}
    assert [found.labels[each.key] for each in found.candidates[:2]] == ["default", "incumbent"]
    assert configs[1] == (16, 16)
    costs = [get_family("blocks").predicted_cost(case_of(found.case, each)) for each in found.candidates[2:]]
    assert costs == sorted(costs)


def test_default_and_incumbent_are_there_though_search_leaves_them_out(tmp_path):
    found = space(tmp_path, BLOCKS.replace("block_q: [16, 64], block_kv: [16, 64, 128]", "block_q: [128]"))
    assert found.default in found.candidates
    assert found.incumbent.config == {"block_q": 16, "block_kv": 16}
    assert found.incumbent in found.candidates


def test_a_profile_without_config_has_the_default_as_incumbent(tmp_path):
    text = BLOCKS.replace("config:\n  forward: {block_q: 16, block_kv: 16}\n", "")
    found = space(tmp_path, text)
    assert found.incumbent == found.default
    assert found.required == (found.default,)


def test_the_profiles_sparse_block_holds_for_all_otherwise_each_has_its_own(tmp_path):
    free = space(tmp_path, BLOCKS)
    assert {each.sparse_block for each in free.candidates} == {
        (each.config["block_q"], each.config["block_kv"]) for each in free.candidates
    }
    fixed = space(tmp_path, BLOCKS + "sparse_block: [128, 128]\n")
    assert {each.sparse_block for each in fixed.candidates} == {(128, 128)}


def test_the_sweep_and_validate_call_the_same_rules(tmp_path):
    found = space(tmp_path, FA4)
    assert len(found.drops) > len(found.candidates) > 0

    def broken(candidate):
        found_errors = check_case(case_of(found.case, candidate))
        return [rule.code for rule, _ in found_errors if rule.severity is Severity.ERROR]

    assert not any(broken(each) for each in found.candidates)
    assert all(broken(drop.candidate)[0] == drop.rule.code for drop in found.drops)
    counted = found.drops_by_rule()
    assert sum(count for count, _ in counted) == len(found.drops)
    assert "FA4-F007" in {drop.rule.code for _, drop in counted}


def test_labels_are_one_per_candidate_and_stable(tmp_path):
    first, second = space(tmp_path, FA4), space(tmp_path, FA4)
    assert first.labels == second.labels
    assert len(set(first.labels.values())) == len(first.labels) == first.size
    assert first.fingerprint == second.fingerprint
    assert space(tmp_path, FA4.replace("6144", "2048")).fingerprint == first.fingerprint


def test_a_search_that_would_never_end_is_refused_with_its_longest_lists(tmp_path):
    values = list(range(1, 601))
    with pytest.raises(UsageError) as caught:
        space(
            tmp_path,
            BLOCKS.partition("search:")[0] + f"search: {{forward: {{block_q: {values}, block_kv: {values}}}}}\n",
        )
    assert caught.value.message == "search: the forward pass has 360,000 combinations, the limit is 250,000"
    assert caught.value.hint == "list fewer values: block_q has 600, block_kv has 600"


def counts_of_fa4(problem):
    lists = block_lists(classify(problem.mask, problem.seqlen_q, problem.seqlen_k, 128, 128))
    return lists.partial_count, lists.full_count


def counts_of_flex(problem):
    lists = flex_mask(problem, (128, 128)).lists
    return lists["kv_num_blocks"][0, 0], lists["full_kv_num_blocks"][0, 0]


@pytest.mark.parametrize("counts", [counts_of_fa4, counts_of_flex])
def test_the_mask_that_is_timed_has_the_profiles_own_blocks(counts, tmp_path):
    """Partial and full blocks are listed apart: together they are the blocks that a row sees, and no more."""
    text = FA4.replace("8192", "4096").replace("{pattern: history_candidate, history_len: 6144}", "{pattern: causal}")
    partial, full = counts(space(tmp_path, text).case.problem)
    assert (int(partial.sum()), int(full.sum())) == (32, 496)
    assert list(partial + full) == list(range(1, 33))


def proposed(text, space):
    """What a strategy asks for, when nothing that is tried takes any time or fails."""
    choose, tried = get_strategy(text).start(space), {}
    while not isinstance(choice := choose(tried, ()), Stop):
        assert choice.key not in tried
        tried[choice.key] = ok(100.0)
    return list(tried)


@pytest.fixture
def large(tmp_path):
    """More candidates than are measured whole."""
    found = space(tmp_path, FA4.replace("head_dim: 256", "head_dim: 64"))
    assert len(found.candidates) > 64
    return found


def test_every_strategy_proposes_candidates_of_the_space_once(large):
    assert strategy_names() == ("exhaustive", "guided", "random")
    for name in strategy_names():
        keys = proposed(name, large)
        assert 0 < len(keys) <= get_strategy(name).most(len(large.candidates))
        assert set(keys) <= {each.key for each in large.candidates}


def test_exhaustive_keeps_the_order(large):
    assert proposed("exhaustive", large) == [each.key for each in large.candidates]


def test_random_is_a_seeded_sample_whatever_the_order(large):
    turned = replace(large, candidates=large.candidates[::-1])
    assert proposed("random:samples=8,seed=1", large) == proposed("random:seed=1,samples=8", turned)
    assert len(proposed("random:samples=8", large)) == 8
    assert proposed("random:samples=8,seed=1", large) != proposed("random:samples=8,seed=2", large)
    assert len(proposed("random:samples=1000", large)) == len(large.candidates) - len(large.required)


def test_a_file_without_a_strategy_says_what_it_needs(tmp_path, monkeypatch):
    (tmp_path / "lazy.py").write_text(
        "from dataclasses import dataclass\n\n@dataclass\nclass STRATEGY:\n    n: int = 1\n"
    )
    monkeypatch.setattr(strategies, "__path__", [*strategies.__path__, str(tmp_path)])
    with pytest.raises(AttnctlError, match=r"lazy\.py: defines no strategy") as caught:
        get_strategy("lazy:n=2")
    assert caught.value.hint == (
        "it needs a dataclass STRATEGY with lookahead, start and most; CONTRIBUTING.md shows one"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("greedy", "there is no strategy 'greedy'"),
        ("random:size=3", "strategy 'random' has no option 'size'"),
        ("random:samples=many", "samples must be a whole number from 0 up, not 'many'"),
        ("random:samples=-1", "samples must be a whole number from 0 up, not '-1'"),
        ("exhaustive:samples=3", "strategy 'exhaustive' has no option 'samples'"),
    ],
)
def test_wrong_strategies_are_named(text, message):
    with pytest.raises(UsageError) as caught:
        get_strategy(text)
    assert message in caught.value.message
    assert caught.value.hint

"""The ranker's Triton kernels: the rules against their loops, walked in Python, and every fix of every rule."""

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from attnctl_kernels.contract import Case, Mask, Problem
from attnctl_kernels.families import get_family
from attnctl_kernels.ranker_triton.spec import V1, V2
from attnctl_kernels.rule import check

FAMILY = get_family("ranker_triton")


def case_of(mask, *, seq_len=1024, pass_name="forward", version=V1, heads=(8, 8), head_dim=128, **written):
    problem = Problem(
        batch_size=1,
        seqlen_q=seq_len,
        seqlen_k=seq_len,
        num_heads_q=heads[0],
        num_heads_kv=heads[1],
        head_dim=head_dim,
        head_dim_v=head_dim,
        dtype="bfloat16",
        mask=mask,
    )
    config = {
        **FAMILY.default_config(problem, pass_name, "sm_80", None),
        "backward_pass_impl": "triton_split",
        **written,
    }
    return Case("ranker_triton", version, "sm_80", problem, pass_name, config, None, frozenset(written))


def codes(case):
    return {rule.code for rule, _ in check(case, FAMILY.rules())}


def missed(length, rows, keys, window, *, backward):
    """Rows (of queries; in the dK and dV loop of keys) that miss a visible pair, as the loops of upstream run."""

    def visible(q, k):
        return k <= q and (window is None or k > q - window)

    bad = set()
    for start in range(0, length, rows):  # forward and dQ: a program per query block
        upper = start // keys + 1
        lower = max(upper - (window + rows) // keys, 0) if window else 0
        for q in range(start, min(start + rows, length)):
            first, last = (max(0, q - window + 1) if window else 0), q
            if first // keys < lower or last // keys >= upper:
                bad.add(q)
    if backward:
        for start in range(0, length, keys):  # dK and dV: a program per key block
            lower = start // rows
            upper = -(-length // rows)
            if window:
                upper = min(lower + (window + keys) // rows, upper)
            for k in range(start, min(start + keys, length)):
                first, last = k, (min(k + window - 1, length - 1) if window else length - 1)
                assert visible(last, k)
                if first // rows < lower or last // rows >= upper:
                    bad.add(k)
    return bad


blocks = st.sampled_from([16, 32, 64, 128])


@settings(deadline=None, max_examples=400)
@given(
    rows=blocks,
    keys=blocks,
    count=st.integers(1, 6),
    window=st.one_of(st.none(), st.integers(1, 400)),
    backward=st.booleans(),
)
def test_causal_and_windowed_loops(rows, keys, count, window, backward):
    """A rule is broken exactly where the loops lose a pair."""
    length = count * max(rows, keys)
    mask = Mask(pattern="sliding_window", window=window) if window else Mask(pattern="causal")
    assume(window is None or window <= length)
    case = case_of(mask, seq_len=length, pass_name="backward" if backward else "forward", block_q=rows, block_k=keys)
    lost = missed(length, rows, keys, window, backward=backward)
    found = codes(case) & {"RTRI-004", "RTRI-005"}
    if keys % rows and not found & {"RTRI-004"}:
        assert keys >= length
    if "RTRI-004" in found:
        assert lost  # blocks that straddle always lose the keys of their last rows
    else:
        assert bool(lost) == ("RTRI-005" in found), (sorted(lost)[:4], found)


@pytest.mark.parametrize(("rows", "keys", "count"), [(128, 64, 512), (48, 64, 240)])
def test_rows_that_lose_keys_are_counted(rows, keys, count):
    length = 1024 if rows == 128 else 960
    case = case_of(Mask(pattern="causal"), seq_len=length, block_q=rows, block_k=keys)
    (message,) = [violation.message for rule, violation in check(case, FAMILY.rules()) if rule.code == "RTRI-004"]
    lost = len(missed(length, rows, keys, None, backward=False))
    assert f"{lost} of {length} rows miss keys" in message
    assert length != 1024 or lost == count


@pytest.mark.parametrize(("window", "lost"), [(128, 0), (129, 0), (100, True), (130, True)])
def test_windows_on_blocks_of_128(window, lost):
    assert bool(missed(1024, 128, 128, window, backward=False)) is bool(lost)
    assert ("RTRI-005" in codes(case_of(Mask(pattern="sliding_window", window=window)))) is bool(lost)


def test_short_training_sequences_fail_in_the_second_module_alone():
    history = Mask(pattern="history_candidate", history_len=32)
    assert codes(case_of(history, seq_len=64, version=V2)) == set()
    assert codes(case_of(history, seq_len=64, version=V2, pass_name="backward")) == {"RTRI-001"}
    assert codes(case_of(history, seq_len=64, version=V1, pass_name="backward")) == set()


def test_the_first_modules_own_backward_default_does_not_exist():
    case = case_of(Mask(pattern="history_candidate", history_len=896), pass_name="backward")
    config = {name: value for name, value in case.config.items() if name != "backward_pass_impl"}
    assert codes(replace(case, config=config)) == {"RTRI-003"}
    assert codes(replace(case, config=config, version=V2)) == set()


@st.composite
def cases(draw):
    length = draw(st.sampled_from([48, 64, 96, 128, 384, 1000, 1024, 1088]))
    mask = draw(
        st.sampled_from(
            [
                Mask(),
                Mask(pattern="causal"),
                Mask(pattern="sliding_window", window=draw(st.integers(1, 300))),
                Mask(pattern="history_candidate", history_len=draw(st.integers(0, length))),
            ]
        )
    )
    version = draw(st.sampled_from([V1, V2]))
    names = ("block_q", "block_k", "block_q_fwd", "block_k_fwd", "block_q_bwd_dq", "block_k_bwd_dkv")
    written = {name: draw(st.sampled_from([8, 16, 48, 64, 96, 128, 256])) for name in names if draw(st.booleans())}
    written |= draw(
        st.sampled_from([{}, {"cap": 30.0, "cap_method": "none"}, {"inference": True}, {"history_segment_id": 5}])
    )
    heads = draw(st.integers(1, 12)), draw(st.integers(1, 12))
    pass_name = draw(st.sampled_from(["forward", "backward"]))
    head_dim = draw(st.sampled_from([8, 64, 96, 128]))
    return case_of(
        mask, seq_len=length, pass_name=pass_name, version=version, heads=heads, head_dim=head_dim, **written
    )


def applied(case, fix):
    head, _, name = fix.field.partition(".")
    if head == "problem":
        changed = {name: fix.value, **({"seqlen_k": fix.value} if name == "seqlen_q" else {})}
        return replace(case, problem=case.problem.model_copy(update=changed))
    if head == "mask":
        mask = case.problem.mask.model_copy(update={name: fix.value})
        return replace(case, problem=case.problem.model_copy(update={"mask": mask}))
    if head == "config":
        config = {key: value for key, value in {**case.config, name: fix.value}.items() if value is not None}
        return replace(case, config=config, given=case.given & config.keys())
    return replace(case, **{head: fix.value})


@settings(deadline=None, max_examples=300)
@given(cases())
def test_every_fix_makes_its_rule_pass(case):
    for rule, violation in check(case, FAMILY.rules()):
        assert violation.fixes or violation.advice, (rule.code, violation.message)
        for fix in violation.fixes:
            left = [each.field for _, each in check(applied(case, fix), [rule])]
            assert violation.field not in left, f"{rule.code}: {violation.message}, {fix}"

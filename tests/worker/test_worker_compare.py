"""The comparator: what must fail does fail."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from worker_tasks import problem, task

from attnctl.worker.compare import WrongResult, deviation, require_finite
from attnctl.worker.inputs import negative_scores, random_inputs
from attnctl.worker.trial import Heads, Trial, flop
from attnctl_kernels.contract import Inputs, Mask, Problem

CPU = torch.device("cpu")


def rows(value=1.0):
    return torch.full((1, 8, 2, 4), value)


@pytest.mark.parametrize(
    ("got", "want"), [(math.nan, 1.0), (1.0, math.nan), (math.nan, math.nan), (math.inf, 1.0), (1.0, math.inf)]
)
def test_nan_and_infinity_never_pass(got, want):
    a, b = rows(), rows()
    a[0, 3, 1, 2], b[0, 3, 1, 2] = got, want
    assert deviation(a, b).exceeds(1e30, 1e30)


def test_nan_lse_of_a_row_without_keys_fails():
    want = torch.tensor([[[0.5, -math.inf]]])
    assert not deviation(torch.tensor([[[0.5, -math.inf]]]), want).exceeds(0, 0)
    assert not deviation(torch.tensor([[[0.5, 0.0]]]), want).exceeds(0, 0)  # conventions differ
    assert deviation(torch.tensor([[[0.5, math.nan]]]), want).exceeds(1e30, 1e30)


def test_equal_is_zero():
    assert (deviation(rows(), rows()).rms, deviation(rows(), rows()).worst_row) == (0.0, 0.0)


@given(st.integers(0, 7), st.integers(0, 1), st.floats(0.01, 100))
def test_one_wrong_row_is_found_and_named(row, head, size):
    got = rows()
    got[0, row, head] += size
    found = deviation(got, rows())
    assert found.at == (0, row, head)
    assert found.worst_row == pytest.approx(size, rel=1e-4)
    assert found.rms == pytest.approx(size / 4, rel=1e-4)  # one of 16 rows


@given(st.floats(1e-3, 1e3))
def test_errors_are_relative_to_the_reference(scale):
    got, want = rows(1.1), rows(1.0)
    assert deviation(got * scale, want * scale).rms == pytest.approx(deviation(got, want).rms, rel=1e-4)


def test_errors_against_zero_are_absolute():
    assert deviation(rows(0.25), rows(0.0)).rms == 0.25


def test_a_light_row_is_measured_against_the_whole():
    want = rows()
    want[0, 5] = 0
    got = want.clone()
    got[0, 5] = 0.1
    assert deviation(got, want).worst_row == pytest.approx(0.1 / math.sqrt(7 / 8))


def test_finite_check_counts_and_names_the_first():
    got = rows()
    got[0, 2:4] = math.nan
    with pytest.raises(
        WrongResult, match=r"^out: 16 of 64 elements are not finite; the first is nan at \(0, 2, 0, 0\)$"
    ):
        require_finite("out", got)


def test_finite_check_ignores_infinity_only_where_told():
    lse = torch.tensor([[[1.0, -math.inf, 2.0]]])
    require_finite("lse", lse, torch.tensor([False, True, False]))
    with pytest.raises(WrongResult):
        require_finite("lse", lse, torch.tensor([False, False, True]))
    with pytest.raises(WrongResult):
        require_finite("lse", torch.tensor([[[1.0, math.nan, 2.0]]]), torch.tensor([False, True, False]))


def test_negative_scores_are_negative():
    for head_dim in (16, 64, 128):
        values = negative_scores(problem(head_dim=head_dim), 0, CPU, gradient=False)
        scores = torch.einsum("bqd,bkd->bqk", values.q[:, :, 0], values.k[:, :, 0]) / math.sqrt(head_dim)
        assert -40 < float(scores.min()) < float(scores.max()) < -8


def test_inputs_are_seeded():
    def draw(seed):
        return random_inputs(problem(), seed, CPU, gradient=True)

    assert all(torch.equal(getattr(draw(3), name), getattr(draw(3), name)) for name in ("q", "k", "v", "dout"))
    assert not torch.equal(draw(3).q, draw(4).q)
    assert not torch.equal(draw(3).q[..., :1], draw(3).k[..., :1].expand(-1, -1, 2, -1))


def test_trial_sees_each_changed_input():
    values = random_inputs(problem(), 0, CPU, gradient=True)
    trial = Trial.of("x", values, problem(), Heads.choose(problem(), "backward", 1e9))
    live = trial.fresh_inputs()
    assert trial.changed(live) == []
    for name in ("q", "k", "v", "out", "lse", "dout"):
        getattr(live, name).view(torch.int32).flatten()[-1] ^= 1  # one bit
        assert trial.changed(live) == [name]
        trial.copy_to(live)
    assert trial.changed(live) == []


def test_tolerance_comes_from_the_dtype():
    def tolerance(dtype):
        facts = problem(dtype=dtype)
        values = random_inputs(facts, 0, CPU, gradient=False)
        return Trial.of("x", values, facts, Heads.choose(facts, "forward", 1e9)).tolerance["out"]

    assert 1e-7 < tolerance("float32") < 1e-5
    assert 1e-4 < tolerance("float16") < tolerance("bfloat16") < 5e-2


def test_compared_heads_cover_first_and_last():
    facts = problem(batch_size=3, num_heads_q=8, num_heads_kv=4)
    per_pair = flop(
        facts.model_copy(update={"mask": problem().mask.model_copy(update={"pattern": "dense"})}), "forward"
    )
    heads = Heads.choose(facts, "forward", per_pair / 12 * 5)
    assert (len(heads.pairs), heads.pairs[0], heads.pairs[-1]) == (5, (0, 0), (2, 3))
    assert heads.fraction == 5 / 12
    q = torch.arange(3 * 8).view(3, 1, 8, 1).expand(3, 2, 8, 1)
    assert heads.take("q", q)[-1, 0, :, 0].tolist() == [22, 23]  # the query heads of the last key head
    lse = torch.arange(3 * 8).view(3, 8, 1)
    assert heads.take("lse", lse)[-1, :, 0].tolist() == [22, 23]


def test_part_of_the_heads_has_the_same_reference_as_all():
    facts: Problem = problem(batch_size=2, num_heads_q=4, num_heads_kv=2)
    for gradient in (False, True):
        values: Inputs = random_inputs(facts, 0, CPU, gradient=gradient)
        some = Heads.choose(facts, "forward", 0.0)
        every = Heads.choose(facts, "forward", 1e12)
        assert (len(some.pairs), every.pairs) == (2, None)
        whole = Trial.of("x", values, facts, every).expected
        for name, part in Trial.of("x", values, facts, some).expected.items():
            assert torch.equal(part, some.take(name, whole[name]))


def test_flop_counts_visible_pairs():
    dense = task(mask={"pattern": "dense"}).problem
    assert flop(dense, "forward") == 4 * 256 * 256 * 32 * 2
    assert flop(dense, "backward") == 10 * 256 * 256 * 32 * 2
    assert flop(task().problem, "forward") == 4 * (256 * 257 / 2) * 32 * 2


def test_what_rounding_the_given_output_costs_is_no_fault_of_a_backward_kernel():
    """Row 1 sees two keys: its dS is a difference of nearly equal numbers, one of which was rounded before.

    A kernel without any other error than that of dS in 16 bits is right, and one that loses a key of such a row is not.
    """
    facts = Problem(
        batch_size=1, seqlen_q=1024, seqlen_k=1024, num_heads_q=32, num_heads_kv=32, head_dim=128, head_dim_v=128,
        dtype="bfloat16", mask=Mask(pattern="causal"),
    )  # fmt: skip
    values = negative_scores(facts, 4, CPU, gradient=True)
    trial = Trial.of("strongly negative scores", values, facts, Heads.choose(facts, "backward", 1e15))
    q, k, v, dout, out = (
        x.float().transpose(1, 2) for x in (values.q, values.k, values.v, values.dout, trial.values.out)
    )
    scale, position = 1 / math.sqrt(128), torch.arange(1024)
    hidden = position[:, None] < position
    weights = (q @ k.mT * scale).masked_fill(hidden, -math.inf).softmax(-1)
    dscores = (weights * (dout @ v.mT - (dout * out).sum(-1, keepdim=True))).bfloat16().float()

    def error(dscores):
        dq = (dscores @ k * scale).transpose(1, 2).bfloat16()
        return deviation(dq, trial.expected["dq"])

    allowed = trial.tolerance["dq"], trial.row_tolerance["dq"]
    assert error(dscores).at[1] == 1
    assert error(dscores).worst_row > 4 * trial.baseline["dq"].worst_row
    assert not error(dscores).exceeds(*allowed)
    dscores[:, :, 1, 0] = 0.0
    assert error(dscores).exceeds(*allowed)

"""The formulas that the GPU tests hold gradients against, and what they say about wrong ones. No device is needed."""

import math

import pytest

torch = pytest.importorskip("torch")

from ranker_gradients import NAMES, Case, expected, faults, spans  # noqa: E402

CASE = Case([[5, 105, 105, 150], [30, 90, 0, 60]], 150, 4, 2, 64, torch.bfloat16)


def dense(case, q, k, v):
    k, v = (x.repeat_interleave(case.num_heads_q // case.num_heads_kv, dim=2) for x in (k, v))
    visible = torch.stack(
        [((history | candidate)[:, None] & history) | torch.diag(candidate) for history, candidate in case.kinds()]
    )[:, None]
    scores = (torch.einsum("bihd,bjhd->bhij", q, k) * case.scale).masked_fill(~visible, -math.inf)
    weights = scores.softmax(-1).nan_to_num(0.0)
    return torch.einsum("bhij,bjhd->bihd", weights, v), scores.logsumexp(-1)


@pytest.fixture(scope="module")
def gradients():
    return expected(CASE, *CASE.tensors("cpu")[0])[1]


def test_it_is_attention_under_the_whole_mask(gradients):
    (q, k, v, dout), _ = CASE.tensors("cpu")
    (out, lse), _ = expected(CASE, q, k, v, dout)
    leaves = [x.float().nan_to_num().requires_grad_() for x in (q, k, v)]
    wanted, wanted_lse = dense(CASE, *leaves)
    torch.testing.assert_close(out, wanted.detach())
    torch.testing.assert_close(lse, wanted_lse.detach())
    seen = torch.stack([history | candidate for history, candidate in CASE.kinds()])[:, :, None, None]
    loss = (wanted * dout.float().nan_to_num())[seen.expand_as(wanted)].sum()
    for found, other in zip(gradients, torch.autograd.grad(loss, leaves), strict=True):
        torch.testing.assert_close(found, other.nan_to_num(0.0), rtol=1e-4, atol=1e-5)


def test_rounded_gradients_have_no_fault(gradients):
    assert faults(CASE, [x.bfloat16() for x in gradients], gradients, 64, 64) == []


@pytest.mark.parametrize("name", NAMES)
def test_a_tile_that_is_counted_twice_is_found(gradients, name):
    found = [x.clone() for x in gradients]
    found[NAMES.index(name)][0, 5 + 64 : 5 + 100] *= 2
    said = "\n".join(faults(CASE, found, gradients, 64, 64))
    assert f"{name}: " in said
    assert all(f"{other}: " not in said for other in NAMES if other != name)
    assert "batch row 0: rows 69-104 (history 36 of 100, candidates 0 of 45, padding 0 of 5)" in said
    assert "tiles of 64 rows from its first: 1" in said
    assert "factor 2.000" in said


def test_what_is_not_a_number_is_wrong(gradients):
    found = [x.clone() for x in gradients]
    found[0][1, 100] = math.nan  # padding
    said = "\n".join(faults(CASE, found, gradients, 64, 64))
    assert "dq: 256 of 76800 wrong, 256 NaN" in said
    assert "padding 1 of" in said


def test_spans():
    assert spans([0, 1, 1, 1, 0, 1]) == "1-3 5"

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


def rounded(case, inputs):
    """Gradients with all that the kernels round to 16 bits: outputs, weights, and gradients of the scores."""
    (out, lse), _ = expected(case, *inputs)
    q, k, v, dout = (torch.nan_to_num(x.float()) for x in inputs)
    out = out.to(case.dtype).float()
    found = [torch.zeros_like(x) for x in (q, k, v)]
    for batch, (history, candidate) in enumerate(case.kinds()):
        seen = ((history | candidate)[:, None] & history) | torch.diag(candidate)
        for head in range(case.num_heads_q):
            at, kv = (batch, slice(None), head), (batch, slice(None), head * case.num_heads_kv // case.num_heads_q)
            p = torch.exp(q[at] @ k[kv].T * case.scale - lse[batch, head, :, None]).where(seen, 0.0)
            ds = p * (dout[at] @ v[kv].T - (out[at] * dout[at]).sum(-1, keepdim=True))
            p, ds = (x.to(case.dtype).float() for x in (p, ds))
            found[0][at] += ds @ k[kv] * case.scale
            found[1][kv] += ds.T @ q[at] * case.scale
            found[2][kv] += p.T @ dout[at]
    return [x.to(case.dtype) for x in found]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "bounds",
    [[[5, 105, 105, 150], [30, 90, 0, 60]], [[0, 1, 1, 150], [149, 150, 0, 150]], [[0, 3, 3, 150], [0, 0, 0, 150]]],
)
def test_gradients_that_are_rounded_as_in_the_kernels_have_no_fault(bounds, dtype):
    case = CASE._replace(bounds=bounds, dtype=dtype, num_heads_q=2, num_heads_kv=1, head_dim=128)
    inputs, _ = case.tensors("cpu")
    assert faults(case, rounded(case, inputs), expected(case, *inputs)[1], 64, 64) == []


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

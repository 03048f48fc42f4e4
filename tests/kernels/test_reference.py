import numpy as np
import pytest
import torch
from brute_force import elements, mask_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from attnctl_kernels import masks, reference
from attnctl_kernels.contract import Mask

torch.set_num_threads(1)  # tensors here are small: on a busy machine their threads would wait for each other

GROUPS = st.sampled_from([(1, 1), (2, 2), (4, 2), (6, 2), (3, 1)])


def inputs(seqlen_q, seqlen_k, heads=(2, 2), dims=(8, 8), *, batch_size=2, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [
        (batch_size, seqlen_q, heads[0], dims[0]),
        (batch_size, seqlen_k, heads[1], dims[0]),
        (batch_size, seqlen_k, heads[1], dims[1]),
        (batch_size, seqlen_q, heads[0], dims[1]),
    ]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def torch_attention(q, k, v, dout, seen, *, scale=None):
    """PyTorch's own attention and autograd; rows without keys are left out, as PyTorch gives NaN there."""
    seen = torch.as_tensor(seen)
    some = seen.any(1)
    leaves = [part.detach().clone().requires_grad_() for part in (q, k, v)]
    group = q.shape[2] // k.shape[2]
    heads = [leaves[0][:, some], *(part.repeat_interleave(group, dim=2) for part in leaves[1:])]
    out = torch.zeros_like(dout)
    lse = torch.full((q.shape[0], q.shape[2], q.shape[1]), -torch.inf, dtype=q.dtype)
    if some.any():
        q_heads, k_heads, v_heads = (part.transpose(1, 2) for part in heads)
        visible_out = scaled_dot_product_attention(q_heads, k_heads, v_heads, attn_mask=seen[some], scale=scale)
        out[:, some] = visible_out.transpose(1, 2)
        scores = (q_heads @ k_heads.mT) * (q.shape[-1] ** -0.5 if scale is None else scale)
        lse[:, :, some] = scores.masked_fill(~seen[some], -torch.inf).logsumexp(-1)
        out.backward(dout)
    return out.detach(), lse.detach(), *(torch.zeros_like(x) if x.grad is None else x.grad for x in leaves)


def assert_equal(actual, expected, **tolerance):
    torch.testing.assert_close(actual, expected, **(tolerance or {"rtol": 1e-9, "atol": 1e-11}))


@given(mask_cases())
def test_torch_predicate_is_numpys(case):
    mask, seqlen_q, seqlen_k = case
    q, k = np.arange(seqlen_q)[:, None], np.arange(seqlen_k)[None, :]
    seen = reference.visible(mask, torch.as_tensor(q), torch.as_tensor(k), seqlen_q, seqlen_k)
    assert seen.dtype == torch.bool
    np.testing.assert_array_equal(seen.numpy(), masks.visible(mask, q, k, seqlen_q, seqlen_k))


@given(mask_cases(), GROUPS, st.sampled_from([(8, 8), (4, 6)]), st.sampled_from([None, 0.3]))
def test_forward_and_backward_are_pytorchs(case, heads, dims, scale):
    mask, seqlen_q, seqlen_k = case
    q, k, v, dout = inputs(seqlen_q, seqlen_k, heads, dims)
    expected = torch_attention(q, k, v, dout, elements(mask, seqlen_q, seqlen_k), scale=scale)
    actual = reference.forward(q, k, v, mask, scale) + reference.backward(q, k, v, dout, mask, scale)
    for ours, theirs in zip(actual, expected, strict=True):
        assert_equal(ours, theirs)


@given(mask_cases(), GROUPS, st.integers(1, 4000))
@settings(max_examples=50)
def test_pieces_add_up(case, heads, scores_bytes):
    mask, seqlen_q, seqlen_k = case
    q, k, v, dout = inputs(seqlen_q, seqlen_k, heads)
    whole = reference.forward(q, k, v, mask) + reference.backward(q, k, v, dout, mask)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reference, "_CPU_SCORES_BYTES", scores_bytes)
        pieces = reference.forward(q, k, v, mask) + reference.backward(q, k, v, dout, mask)
    for part, expected in zip(pieces, whole, strict=True):
        assert_equal(part, expected)


def test_rows_pick_query_rows_in_their_order():
    q, k, v, _ = inputs(30, 40)
    mask = Mask(pattern="causal")
    out, lse = reference.forward(q, k, v, mask)
    rows = [29, 0, 7]
    picked_out, picked_lse = reference.forward(q, k, v, mask, rows=rows)
    assert_equal(picked_out, out[:, rows])
    assert_equal(picked_lse, lse[:, :, rows])


def test_rows_without_keys():
    q, k, v, dout = inputs(12, 8)
    mask = Mask(pattern="causal")  # rows 0 to 3 sit before the first key
    out, lse = reference.forward(q, k, v, mask)
    dq, dk, dv = reference.backward(q, k, v, dout, mask)
    assert (out[:, :4] == 0).all()
    assert (lse[:, :, :4] == -torch.inf).all()
    assert (dq[:, :4] == 0).all()
    assert all(torch.isfinite(part).all() for part in (out, lse[:, :, 4:], dq, dk, dv))


def test_no_visible_key_at_all():
    q, k, v, dout = inputs(6, 6)
    mask = Mask(pattern="blocks", block_size=(6, 6), rows=((),))
    assert not reference.forward(q, k, v, mask)[0].any()
    assert not any(part.any() for part in reference.backward(q, k, v, dout, mask))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_reference_is_more_precise_than_plain(dtype):
    q, k, v, dout = inputs(64, 64, heads=(4, 2), dims=(32, 32), dtype=dtype)
    mask = Mask(pattern="causal")
    exact = torch_attention(*(part.double() for part in (q, k, v, dout)), elements(mask, 64, 64))
    precise = reference.forward(q, k, v, mask) + reference.backward(q, k, v, dout, mask)
    plain = reference.plain(q, k, v, mask) + reference.plain_backward(q, k, v, dout, mask)
    lse = 1
    for index, (truth, better, worse) in enumerate(zip(exact, precise, plain, strict=True)):
        assert better.dtype == reference.reference_dtype(dtype)
        assert worse.dtype == (torch.float32 if index == lse else dtype)
        better_error, worse_error = ((part.double() - truth).square().mean().sqrt() for part in (better, worse))
        assert better_error * 100 < worse_error < 0.02 * truth.square().mean().sqrt()


def test_tf32_is_off_inside_and_as_it_was_outside():
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        q, k, v, _ = inputs(64, 64, dims=(64, 64), dtype=torch.float32)
        coarse, _ = reference.forward(q, k, v, Mask(), dtype=torch.float32)
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision(before)
    assert_equal(coarse, reference.forward(q, k, v, Mask(), dtype=torch.float32)[0], rtol=0, atol=0)

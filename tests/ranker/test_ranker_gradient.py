"""How the backward operator is tied to the forward one: with the formulas in place of the kernels, on the CPU."""

import math

import pytest

torch = pytest.importorskip("torch")

from torch.autograd import forward_ad  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from attnctl_kernels import reference  # noqa: E402
from attnctl_kernels.contract import Mask  # noqa: E402
from attnctl_kernels.ranker import checks, gradient, op  # noqa: E402
from attnctl_kernels.ranker.checks import check_gradient  # noqa: E402

HISTORY, SEQLEN, SCALE = 13, 20, 0.3
MASK = Mask(pattern="history_candidate", history_len=HISTORY)
CAUSAL = Mask(pattern="causal")
BOUNDS = torch.tensor([[0, HISTORY, HISTORY, SEQLEN]] * 2, dtype=torch.int32)
CONFIG = "tile_m=128 stages=2"


@op._forward.register_kernel("cpu")
def _forward(q, k, v, bounds, softmax_scale, *rest):
    out, lse = reference.forward(q, k, v, mask_of(bounds), softmax_scale)
    return out.to(q.dtype).contiguous(), lse.float()


@gradient.backward.register_kernel("cpu")
def _backward(*given):
    q, k, v, out, dout, lse, dlse, bounds, softmax_scale, logit_cap, config = given
    assert logit_cap is None
    again, lse_again = reference.forward(q, k, v, mask_of(bounds), softmax_scale)
    torch.testing.assert_close(out, again.to(q.dtype))
    torch.testing.assert_close(lse, lse_again.float())
    assert config == CONFIG
    found = reference.backward(q, k, v, dout, mask_of(bounds), softmax_scale)
    if dlse is not None:
        assert bounds.ndim == 2
        ds = dense_scores(q, k, softmax_scale).softmax(-1) * dlse[..., None] * softmax_scale
        dk = torch.einsum("bhij,bihd->bjhd", ds, q).unflatten(2, (-1, 2)).sum(3)
        dq = torch.einsum("bhij,bjhd->bihd", ds, k.repeat_interleave(2, dim=2))
        found = found[0] + dq, found[1] + dk, found[2]
    return tuple(x.to(q.dtype).contiguous() for x in found)


def mask_of(bounds):
    if bounds.ndim == 2:
        assert torch.equal(bounds, BOUNDS)
        return MASK
    assert torch.equal(bounds, op.visible_ranges(CAUSAL, SEQLEN, SEQLEN, bounds.device).expand(2, -1, -1))
    return CAUSAL


def attention(q, k, v):
    return op._forward(q, k, v, BOUNDS, SCALE, None, None, CONFIG)[0]


def inputs():
    torch.manual_seed(0)
    return [torch.randn(2, SEQLEN, heads, 64, dtype=torch.float64, requires_grad=True) for heads in (4, 2, 2)]


def dense_scores(q, k, scale=SCALE, *, causal=False):
    history, position = torch.arange(SEQLEN) < HISTORY, torch.arange(SEQLEN)
    seen = position[:, None] >= position if causal else history | (position[:, None] == position)
    scores = torch.einsum("bihd,bjhd->bhij", q, k.repeat_interleave(2, dim=2)) * scale
    return scores.masked_fill(~seen, -math.inf)


def dense(q, k, v, scale=SCALE, *, causal=False):
    scores = dense_scores(q, k, scale, causal=causal)
    return torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), v.repeat_interleave(2, dim=2))


def dense_lse(q, k, scale=SCALE):
    return dense_scores(q, k, scale).logsumexp(-1)


def gradients(function, given, weight):
    return torch.autograd.grad((function(*given) * weight).sum(), given)


def test_each_input_gets_its_own_gradient():
    given, weight = inputs(), torch.randn(2, SEQLEN, 4, 64, dtype=torch.float64)
    for found, expected in zip(gradients(attention, given, weight), gradients(dense, given, weight), strict=True):
        torch.testing.assert_close(found, expected)


def z_loss(out, lse, weight):
    return lse.square().sum() if weight is None else lse.square().sum() + (out * weight).sum()


@pytest.mark.parametrize("alone", [False, True])
@pytest.mark.parametrize("compiled", [False, True])
def test_the_lse_is_differentiated_as_well(alone, compiled):
    """With the output, and alone."""
    given, weight = inputs(), None if alone else torch.randn(2, SEQLEN, 4, 64, dtype=torch.float64)

    def own(q, k, v):
        return op._forward(q, k, v, BOUNDS, SCALE, None, None, CONFIG)

    own = torch.compile(own, fullgraph=True, backend="aot_eager") if compiled else own
    found = torch.autograd.grad(z_loss(*own(*given), weight), given)
    out, lse = dense(*given), dense_lse(*given[:2])
    expected = torch.autograd.grad(z_loss(out, lse, weight), given, allow_unused=True, materialize_grads=True)
    for each, other in zip(found, expected, strict=True):
        torch.testing.assert_close(each, other, rtol=1e-5, atol=1e-5)  # the LSE is float32


def test_an_lse_that_nobody_differentiates_costs_nothing(monkeypatch):
    seen, plain = [], gradient.backward
    monkeypatch.setattr(gradient, "backward", lambda *given: seen.append(given[6]) or plain(*given))
    attention(*inputs()).sum().backward()
    assert seen == [None]


@pytest.mark.parametrize("dynamic", [None, True])
def test_gradients_pass_through_a_compiled_program(dynamic):
    given, weight = inputs(), torch.randn(2, SEQLEN, 4, 64, dtype=torch.float64)
    compiled = torch.compile(attention, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for found, expected in zip(gradients(compiled, given, weight), gradients(dense, given, weight), strict=True):
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("as_table", [False, True])
def test_gradients_of_a_mask(monkeypatch, as_table):
    """As a pattern, and as a table in a compiled program."""
    monkeypatch.setattr(checks, "_check_tensor", lambda *_: None)  # which asks for a GPU
    given, weight = inputs(), torch.randn(2, SEQLEN, 4, 64, dtype=torch.float64)
    mask = op.visible_ranges(CAUSAL, SEQLEN, SEQLEN, given[0].device) if as_table else CAUSAL
    how = {"config": {}, "backward_config": {"tile_m": 128, "stages": 2}, "softmax_scale": SCALE}
    whole = torch.compile(op.attention, fullgraph=True, backend="aot_eager") if as_table else op.attention
    found = gradients(lambda *x: whole(*x, mask=mask, **how), given, weight)
    for each, expected in zip(found, gradients(lambda *x: dense(*x, causal=True), given, weight), strict=True):
        torch.testing.assert_close(each, expected)


def test_an_input_that_needs_no_gradient_gets_none():
    q, k, v = inputs()
    attention(q, k.detach(), v.detach()).sum().backward()
    assert q.grad is not None
    assert k.grad is None


def test_the_operators_are_what_they_say():
    """PyTorch's own tests: schema, autograd, fake tensors, and shapes that are symbols."""
    q, k, v = inputs()
    torch.library.opcheck(op._forward, (q, k, v, BOUNDS, SCALE, None, None, CONFIG))
    out, lse = op._forward(*(x.detach() for x in (q, k, v)), BOUNDS, SCALE, None, None, CONFIG)
    given = [x.detach() for x in (q, k, v)]
    for dlse in (None, torch.ones_like(lse)):
        whole = (*given, out, torch.ones_like(out), lse, dlse, BOUNDS, SCALE, None, CONFIG)
        torch.library.opcheck(gradient.backward, whole)


@pytest.mark.parametrize("warn_only", [False, True])
def test_who_asks_for_determinism_is_told_that_dq_has_none(warn_only):
    torch.use_deterministic_algorithms(True, warn_only=warn_only)
    try:
        expecting = pytest.warns if warn_only else pytest.raises
        with expecting(UserWarning if warn_only else RuntimeError, match="sums dQ in any order"):
            if warn_only:
                gradient._say_that_order_varies()
            else:  # from the operator itself, ahead of any kernel
                x, lse = torch.ones(1, 8, 1, 64), torch.ones(1, 1, 8)
                gradient.backward._init_fn(x, x, x, x, x, lse, None, BOUNDS[:1], 1.0, None, "")
    finally:
        torch.use_deterministic_algorithms(False)


def test_a_second_derivative_is_refused():
    q, k, v = inputs()
    (dq,) = torch.autograd.grad(attention(q, k, v).sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no second derivative"):
        dq.sum().backward()


@forward_ad.dual_level()
def dual(function, x):
    return function(forward_ad.make_dual(x, x))


@pytest.mark.parametrize("derive", [dual, lambda function, x: torch.func.jvp(function, (x,), (x,))])
def test_a_forward_mode_derivative_is_refused(derive):
    """PyTorch would hand out a tangent of 0."""

    def checked(q):
        check_gradient(q, q, q)
        return q

    x = checked(torch.ones(1, 1, 1, 64))
    with pytest.raises(RuntimeError, match="no forward-mode derivative"):
        derive(checked, x)


def test_gradients_under_a_checkpoint_and_vmap():
    given, weight = inputs(), torch.randn(2, SEQLEN, 4, 64, dtype=torch.float64)
    found = gradients(lambda *x: checkpoint(attention, *x, use_reentrant=False), given, weight)
    for each, expected in zip(found, gradients(dense, given, weight), strict=True):
        torch.testing.assert_close(each, expected)
    many = torch.stack([given[0].detach(), -given[0].detach()])
    k, v = (x.detach() for x in given[1:])
    torch.testing.assert_close(torch.func.vmap(attention, (0, None, None))(many, k, v)[1], attention(many[1], k, v))


@pytest.mark.parametrize("dynamic", [None, True])
def test_a_compiled_program_follows_shapes_scale_and_config(monkeypatch, dynamic):
    """The whole function in one graph, also where its compiler keeps symbols for what varies."""
    monkeypatch.setattr(checks, "_check_tensor", lambda *_: None)  # which asks for a GPU
    whole = torch.compile(op.attention, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for scale, tile_m in ((0.3, 64), (0.2, 128), (0.1, 192)):
        given, weight = inputs(), torch.randn(2, SEQLEN, 4, 64, dtype=torch.float64)
        how = {"config": {"tile_m": tile_m}, "backward_config": {"tile_m": 128, "stages": 2}, "softmax_scale": scale}

        def own(*arrays, how=how):
            return whole(*arrays, BOUNDS, **how)

        def other(*arrays, scale=scale):
            return dense(*arrays, scale)

        for found, expected in zip(gradients(own, given, weight), gradients(other, given, weight), strict=True):
            torch.testing.assert_close(found, expected)


@pytest.mark.parametrize(
    ("strides", "copied"),
    [((64, 64, 64, 1), False), ((0, 0, 0, 0), True), ((64, 64, 64, 2), True), ((65, 65, 65, 1), True)],
)
def test_gradients_that_tma_cannot_load_are_copied(strides, copied):
    x = torch.arange(1000.0).as_strided((1, 2, 1, 8), strides)
    found = gradient._loadable(x)
    assert torch.equal(found, x)
    assert (found is not x) == copied


@pytest.mark.parametrize(("strides", "begin"), [((512, 64, 64, 1), 1), ((7, 64, 9, 1), 0)])
def test_gradients_that_pytorch_calls_contiguous_are_made_loadable(strides, begin):
    x = torch.arange(1000.0)[begin:].as_strided((1, 2, 1, 64), strides)
    assert x.is_contiguous()
    found = gradient._loadable(x)
    assert torch.equal(found, x)
    assert found.data_ptr() % 16 == 0
    assert all(stride % 8 == 0 for stride in found.stride()[:-1])

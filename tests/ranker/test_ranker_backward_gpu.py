"""Gradients against float32 attention, over bounds of every kind. Needs a Hopper GPU.

Where all fail, `ranker_backward_ladder.py` finds the smallest call that does.
"""

import itertools
import math

import pytest

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.ranker.launch")

from ranker_ahead import backward, compile_ahead, forward  # noqa: E402
from ranker_gradients import Case, expected, faults  # noqa: E402
from ranker_graph import captured  # noqa: E402
from ranker_oracle import EDGES, random_rows  # noqa: E402

from attnctl_kernels.contract import Case as RuleCase  # noqa: E402
from attnctl_kernels.contract import Mask, Problem  # noqa: E402
from attnctl_kernels.ranker import attention, backward_call  # noqa: E402
from attnctl_kernels.ranker import backward_config as own  # noqa: E402
from attnctl_kernels.ranker.config import HEAD_DIMS  # noqa: E402
from attnctl_kernels.ranker.spec import FAMILY  # noqa: E402
from attnctl_kernels.rule import check  # noqa: E402

MISSING = launch.LAUNCHER.available("sm_90")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

BF16, F16 = torch.bfloat16, torch.float16


@pytest.fixture(scope="module", autouse=True)
def kernels_on_disk(request):
    """Those of the tests that were chosen: all configs only where each is tried."""
    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    every = [backward(each["head_dim"], BF16, each["config"]) for each in chosen if "config" in each]
    for head_dim, dtype in itertools.product(HEAD_DIMS, (BF16, F16)):
        for capped in (False, True):
            every += [backward(head_dim, dtype, own.default_config(head_dim), capped=capped)]
            every += [forward(head_dim, dtype, capped=capped)]
    if any("ranges" in each for each in chosen):
        for head_dim, ranges in itertools.product(HEAD_DIMS, (False, True)):
            every += [backward(head_dim, BF16, own.default_config(head_dim), ranges=ranges, lse_gradient=True)]
            every += [forward(head_dim, BF16, ranges=ranges)]
    compile_ahead(every)


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch):
    """Scratch is NaN, and so is what the allocator hands out for the gradients."""
    plain = backward_call.scratch
    monkeypatch.setattr(backward_call, "scratch", lambda *given: [x.fill_(math.nan) for x in plain(*given)])
    torch.full((1 << 26,), math.nan, device="cuda")


def gradients(case, config=None, function=attention):
    (q, k, v, dout), bounds = case.tensors("cuda")
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = function(*leaves, bounds, {}, softmax_scale=case.scale, logit_cap=case.cap, backward_config=config or {})
    return torch.autograd.grad(out, leaves, dout)


def assert_right(case, config=None, function=attention):
    found = gradients(case, config, function)
    tile = own.default_config(case.head_dim) | (config or {})
    _, wanted = expected(case, *case.tensors("cuda")[0])
    lines = faults(case, found, wanted, tile["tile_m"], tile["tile_n"])
    assert not lines, "\n".join(lines)
    for x, kinds in itertools.product(found, [list(case.kinds())]):
        for batch, (history, candidate) in enumerate(kinds):
            assert not x[batch, ~(history | candidate)].any(), f"{case}: padding has a gradient"
    return found


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_they_are_the_formulas_over_bounds_of_every_kind(dtype, head_dim):
    for seed, (_, seqlen, heads_q, heads_kv, bounds) in enumerate([*EDGES, *random_rows(25)]):
        assert_right(Case(bounds, seqlen, heads_q, heads_kv, head_dim, dtype, seed))


@pytest.mark.parametrize("cap", [2.0, 30.0])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_capped_logits(head_dim, cap):
    """At 2 most scores are in the bend of the tanh, and their slopes far from 1."""
    for dtype, seed in itertools.product((BF16, F16), range(2)):
        assert_right(Case([[0, 700, 700, 1000], [3, 155, 160, 261]], 1000, 8, 2, head_dim, dtype, seed, cap=cap))


@pytest.mark.parametrize("ranges", [False, True])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_the_lse_is_differentiated_as_well(head_dim, ranges):
    """What comes for rows that see nothing, whose LSE is minus infinity, may be infinite, too."""
    torch.manual_seed(head_dim)
    q, dout = (torch.randn(2, 600, 4, head_dim, device="cuda", dtype=BF16) for _ in range(2))
    k, v = (torch.randn(2, 600, 2, head_dim, device="cuda", dtype=BF16) for _ in range(2))
    position = torch.arange(600, device="cuda")
    history, candidate = position < 400, (position >= 400) & (position < 570)
    seen = (history | candidate)[:, None] & (history | (torch.diag(candidate)))
    what = {"bounds": torch.tensor([[0, 400, 400, 570]] * 2, dtype=torch.int32, device="cuda")}
    if ranges:
        end = (position + 1).clamp(max=350)
        begin = (position - 100).clamp(min=0).minimum(end)
        seen = (begin[:, None] <= position) & (position < end[:, None])
        what = {"mask": torch.stack([begin, end], -1)[None].int()}
    blind = ~seen.any(-1)
    assert blind.any()
    dlse = torch.randn(2, 4, 600, device="cuda")
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    found = attention(*leaves, config={}, backward_config={}, return_lse=True, **what)
    given = dout.masked_fill(blind[:, None, None], 0.0), dlse.masked_fill(blind, -math.inf)
    gradients_found = torch.autograd.grad(found, leaves, given)

    exact = [x.float().requires_grad_() for x in (q, k, v)]
    keys, values = (x.repeat_interleave(2, dim=2) for x in exact[1:])
    scores = torch.einsum("bihd,bjhd->bhij", exact[0], keys) / math.sqrt(head_dim)
    scores = scores[:, :, ~blind].masked_fill(~seen[~blind], -math.inf)
    out = torch.einsum("bhij,bjhd->bihd", scores.softmax(-1), values)
    wanted = torch.autograd.grad((out, scores.logsumexp(-1)), exact, (dout[:, ~blind].float(), dlse[..., ~blind]))
    for one, other in zip(gradients_found, wanted, strict=True):
        typical = other.square().mean().sqrt() + other.square().mean(-1, keepdim=True).sqrt()
        assert ((one.float() - other).abs() <= 0.03 * other.abs() + 0.1 * typical + 0.01).all()


def configs(head_dim):
    problem = Problem(
        batch_size=1,
        seqlen_q=1000,
        seqlen_k=1000,
        num_heads_q=4,
        num_heads_kv=2,
        head_dim=head_dim,
        head_dim_v=head_dim,
        dtype="bfloat16",
        mask=Mask(pattern="history_candidate", history_len=700),
    )
    space = FAMILY.space(problem, "backward", "sm_90")
    for values in itertools.product(*space.values()):
        config = dict(zip(space, values, strict=True))
        case = RuleCase("ranker", "1", "sm_90", problem, "backward", config)
        if not list(check(case, FAMILY.rules())):
            yield config


@pytest.mark.parametrize(
    ("head_dim", "config"), [(head_dim, config) for head_dim in HEAD_DIMS for config in configs(head_dim)]
)
def test_every_config_that_the_rules_let_through_is_right(head_dim, config):
    bounds = [[0, 700, 700, 1000], [3, 155, 160, 261], [500, 1000, 0, 400]]
    assert_right(Case(bounds, 1000, 4, 2, head_dim, BF16), config)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_gradients_of_keys_are_the_same_in_every_run(head_dim):
    """Those of queries are sums in any order, and may differ in a last bit."""
    case = Case([[0, 700, 700, 1000], [17, 900, 901, 990]], 1000, 8, 2, head_dim, BF16)
    first = gradients(case)
    for _ in range(3):
        dq, dk, dv = gradients(case)
        assert torch.equal(dk, first[1])
        assert torch.equal(dv, first[2])
        torch.testing.assert_close(dq, first[0], rtol=0.02, atol=0.002)


def test_gradients_of_a_sum_and_of_slices():
    """Strides of autograd's and of the program's making."""
    qkv = torch.randn(2, 500, 3, 4, 128, device="cuda", dtype=BF16, requires_grad=True)
    bounds = torch.tensor([[0, 300, 300, 500], [10, 20, 0, 10]], dtype=torch.int32, device="cuda")
    attention(*qkv.unbind(2), bounds, {}, backward_config={}).sum().backward()
    copies = [x.detach().clone().requires_grad_() for x in qkv.unbind(2)]
    out = attention(*copies, bounds, {}, backward_config={})
    wanted = torch.autograd.grad(out, copies, torch.ones_like(out))
    for found, other in zip(qkv.grad.unbind(2), wanted, strict=True):
        torch.testing.assert_close(found, other, rtol=0.02, atol=0.002)


def test_a_compiled_program_gives_the_same():
    case = Case([[0, 400, 400, 600], [0, 10, 20, 600]], 600, 4, 2, 128, BF16)
    assert_right(case, function=torch.compile(attention, fullgraph=True))


def test_a_graph_gives_the_same():
    case = Case([[0, 400, 400, 600], [0, 10, 20, 600]], 600, 4, 2, 128, BF16)
    (q, k, v, dout), bounds = case.tensors("cuda")
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]

    def step():
        out = attention(*leaves, bounds, {}, softmax_scale=case.scale, backward_config={})
        return torch.autograd.grad(out, leaves, dout)

    graph, outputs = captured(step)
    for x in outputs:
        x.fill_(math.nan)
    graph.replay()
    _, wanted = expected(case, q, k, v, dout)
    lines = faults(case, outputs, wanted, 64, 128)
    assert not lines, "\n".join(lines)


def test_without_a_config_it_is_the_tuned_one_or_the_default(tmp_path, monkeypatch):
    from attnctl.profile.runtime import NotTuned, forget

    monkeypatch.setenv("ATTNCTL_CONFIG_DIR", str(tmp_path))
    forget()
    case = Case([[0, 200, 200, 323]], 323, 2, 2, 128, BF16)
    (q, k, v, dout), bounds = case.tensors("cuda")
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    out = attention(*leaves, bounds, {}, softmax_scale=case.scale)
    with pytest.warns(NotTuned, match=r"s323-.*: nothing is tuned for it on .*; the kernel's default is used"):
        found = torch.autograd.grad(out, leaves, dout)
    _, wanted = expected(case, q, k, v, dout)
    lines = faults(case, found, wanted, 64, 128)
    assert not lines, "\n".join(lines)


def test_a_long_sequence():
    assert_right(Case([[5, 700, 700, 131072]], 131072, 1, 1, 128, BF16))


@pytest.mark.parametrize("first", range(3))
def test_batch_rows_further_apart_than_32_bits_reach(first):
    """One of the tensors begins where an allocation does, and perhaps all mapped memory: TMA must not see before it."""
    seqlen, heads, apart = 300, 2, (1 << 31) + 4096
    base = torch.empty(apart + 8 * seqlen * heads * 64, dtype=BF16, device="cuda")
    strides = (apart, heads * 64, 64, 1)
    case = Case([[0, 200, 200, 300], [0, 100, 150, 300]], seqlen, heads, heads, 64, BF16)
    (q, k, v, dout), bounds = case.tensors("cuda")
    leaves = []
    for n, x in enumerate((q, k, v)):
        far = base.as_strided(x.shape, strides, (n - first) % 3 * 2 * seqlen * heads * 64)
        far.copy_(x)
        leaves.append(far.detach().requires_grad_())
    out = attention(*leaves, bounds, {}, softmax_scale=case.scale, backward_config={})
    _, wanted = expected(case, q, k, v, dout)
    lines = faults(case, torch.autograd.grad(out, leaves, dout), wanted, 128, 128)
    assert not lines, "\n".join(lines)

"""The operator against float32 attention, over bounds of every kind. Needs a Hopper GPU."""

import math
import random

import pytest

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.ranker.launch")

from attnctl_kernels.ranker import attention  # noqa: E402

MISSING = launch.LAUNCHER.available("sm_90")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

EDGES = [  # batch_size, seqlen, num_heads_q, num_heads_kv, bounds
    (1, 128, 1, 1, [[0, 128, 128, 128]]),
    (1, 128, 1, 1, [[0, 0, 0, 128]]),
    (1, 1, 1, 1, [[0, 1, 1, 1]]),
    (1, 1, 1, 1, [[0, 0, 0, 1]]),
    (1, 200, 2, 2, [[0, 0, 0, 0]]),
    (2, 1000, 4, 1, [[0, 700, 700, 1000], [3, 55, 60, 61]]),
    (3, 1000, 8, 1, [[17, 900, 901, 990], [0, 0, 10, 1000], [5, 1000, 0, 0]]),
    (2, 777, 8, 8, [[100, 101, 300, 777], [400, 777, 0, 399]]),
    (2, 300, 2, 2, [[0, 200, 100, 300], [0, 900, -5, 2]]),  # overlapping, and beyond the sequence
]


def random_rows(count, seed=1):
    draw = random.Random(seed)
    for _ in range(count):
        batch_size, seqlen, heads_kv = draw.randint(1, 3), draw.randint(1, 900), draw.randint(1, 2)
        bounds = []
        for _ in range(batch_size):
            a, b, c, d = sorted(draw.randint(0, seqlen) for _ in range(4))
            bounds.append(draw.choice([[a, b, c, d], [c, d, a, b]]))
        yield batch_size, seqlen, heads_kv * draw.choice([1, 4, 8]), heads_kv, bounds


def visible_pairs(seqlen, bounds, device):
    h_lo, h_hi, c_lo, c_hi = bounds
    position = torch.arange(seqlen, device=device)
    history = (h_lo <= position) & (position < h_hi)
    candidate = (c_lo <= position) & (position < c_hi) & ~history
    return ((history | candidate)[:, None] & history) | torch.diag(candidate)


def reference(q, k, v, bounds, scale):
    k, v = (x.float().repeat_interleave(q.shape[2] // x.shape[2], dim=2) for x in (k, v))
    visible = torch.stack([visible_pairs(q.shape[1], row, q.device) for row in bounds.tolist()])[:, None]
    scores = (torch.einsum("bihd,bjhd->bhij", q.float(), k) * scale).masked_fill(~visible, -math.inf)
    lse = scores.logsumexp(-1)
    weights = (scores - lse.nan_to_num(neginf=0.0)[..., None]).exp()
    return torch.einsum("bhij,bjhd->bihd", weights, v), lse


def make(case, dtype, head_dim, seed=0):
    """Inputs whose padding is NaN, and their clean copies."""
    batch_size, seqlen, heads_q, heads_kv, rows = case
    torch.manual_seed(seed)
    bounds = torch.tensor(rows, dtype=torch.int32, device="cuda")
    clean = [
        torch.randn(batch_size, seqlen, heads, head_dim, device="cuda", dtype=dtype)
        for heads in (heads_q, heads_kv, heads_kv)
    ]
    padding = torch.stack([~visible_pairs(seqlen, row, "cuda").any(-1) for row in rows])
    return [x.masked_fill(padding[:, :, None, None], math.nan) for x in clean], clean, bounds


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("head_dim", [64, 128])
def test_it_is_the_reference_over_bounds_of_every_kind(dtype, head_dim):
    scale = 1.3 / math.sqrt(head_dim)
    for seed, case in enumerate([*EDGES, *random_rows(25)]):
        poisoned, clean, bounds = make(case, dtype, head_dim, seed)
        out, lse = attention(*poisoned, bounds, softmax_scale=scale, return_lse=True)
        wanted, wanted_lse = reference(*clean, bounds, scale)
        # One rounding of the output, and weights rounded to 16 bits under values of a normal distribution.
        torch.testing.assert_close(out.float(), wanted, rtol=0.008, atol=0.006, msg=lambda m, case=case: f"{case}: {m}")
        torch.testing.assert_close(lse, wanted_lse, rtol=1e-5, atol=1e-3, msg=lambda m, case=case: f"{case}: {m}")
        again, _ = attention(*poisoned, bounds, softmax_scale=scale, return_lse=True)
        assert torch.equal(out, again), case


def test_scores_that_rise_along_the_history():
    """Each block's maximum exceeds those before it: sums and outputs are corrected every time."""
    q, k, v = (torch.randn(1, 1024, 1, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    q, k = q.abs(), k.abs() * torch.linspace(40, 0, 1024, device="cuda", dtype=torch.bfloat16)[None, :, None, None]
    bounds = torch.tensor([[0, 900, 900, 1024]], dtype=torch.int32, device="cuda")
    out, lse = attention(q, k, v, bounds, return_lse=True)
    wanted, wanted_lse = reference(q, k, v, bounds, 1 / math.sqrt(128))
    torch.testing.assert_close(out.float(), wanted, rtol=0.02, atol=0.02)
    torch.testing.assert_close(lse, wanted_lse, rtol=1e-4, atol=1e-2)


def test_slices_of_a_larger_tensor():
    """Strides that are not those of a contiguous tensor."""
    qkv = torch.randn(2, 500, 3, 4, 128, device="cuda", dtype=torch.bfloat16)
    bounds = torch.tensor([[0, 300, 300, 500], [10, 20, 0, 10]], dtype=torch.int32, device="cuda")
    parts = qkv.unbind(2)
    assert torch.equal(attention(*parts, bounds), attention(*(x.contiguous() for x in parts), bounds))


def test_graph_and_compiled_program_give_the_same():
    (q, k, v), _, bounds = make((2, 600, 4, 2, [[0, 400, 400, 600], [0, 10, 20, 600]]), torch.bfloat16, 128)
    wanted = attention(q, k, v, bounds)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention(q, k, v, bounds)
    out.zero_()
    graph.replay()
    assert torch.equal(out, wanted)
    assert torch.equal(torch.compile(attention, fullgraph=True)(q, k, v, bounds), wanted)

"""The operator against float32 attention, over bounds of every kind. Needs a Hopper GPU."""

import math

import pytest

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.ranker.launch")

from ranker_ahead import compile_ahead, forward  # noqa: E402
from ranker_oracle import EDGES, assert_right, make, random_rows, reference  # noqa: E402

from attnctl_kernels.ranker import attention  # noqa: E402
from attnctl_kernels.ranker.config import HEAD_DIMS, default_config  # noqa: E402

MISSING = launch.LAUNCHER.available("sm_90")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

BF16, F16 = torch.bfloat16, torch.float16
ORDERS = [
    {"schedule": "longest_first"},
    {"balanced": True},
    {"schedule": "longest_first", "balanced": True},
    {"persistent": False},
    {"schedule": "longest_first", "persistent": False},
    {"turns": False},
]
SHORT = {"tile_m": 192, "tile_n": 64, "stages": 2}


@pytest.fixture(scope="module", autouse=True)
def kernels_on_disk():
    every = [forward(head_dim, dtype) for head_dim in HEAD_DIMS for dtype in (BF16, F16)]
    for head_dim in (64, 128):
        every += [forward(head_dim, BF16, capped=True)]
    for head_dim in (64, 128, 256):
        every += [forward(head_dim, BF16, order) for order in ORDERS]
    compile_ahead([*every, forward(128, BF16, SHORT)])


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_it_is_the_reference_over_bounds_of_every_kind(dtype, head_dim):
    scale = 1.3 / math.sqrt(head_dim)
    for seed, case in enumerate([*EDGES, *random_rows(25)]):
        poisoned, clean, bounds = make(case, dtype, head_dim, seed)
        found = attention(*poisoned, bounds, {}, softmax_scale=scale, return_lse=True)
        assert_right(found, reference(*clean, bounds, scale), (case, dtype, head_dim, seed))
        again = attention(*poisoned, bounds, {}, softmax_scale=scale)
        assert torch.equal(found[0], again), case


@pytest.mark.parametrize("head_dim", [64, 128, 256])
def test_no_order_of_tiles_changes_a_bit(head_dim):
    """Longest first, the last round in pieces, a block per tile: the same sums in the same order.

    At 256 keys and values on the diagonal, and the output, have one buffer, tile after tile.
    """
    default = default_config(head_dim)
    large = (5, 2500, 16, 4, [[0, 2000, 2000, 2500], [0, 64, 64, 2500], [0, 0, 0, 2500], [9, 2500, 0, 0], [0, 0, 0, 0]])
    for seed, case in enumerate([*EDGES, *random_rows(10), large]):
        inputs, _, bounds = make(case, torch.bfloat16, head_dim, seed)
        wanted = attention(*inputs, bounds, default, return_lse=True)
        for each in ORDERS:
            found = attention(*inputs, bounds, {**default, **each}, return_lse=True)
            assert all(torch.equal(*pair) for pair in zip(found, wanted, strict=True)), (case, each)


@pytest.mark.parametrize(("head_dim", "changes"), [(128, {}), (128, SHORT), (192, {}), (256, {})])
def test_buffers_of_short_histories_are_not_filled_before_they_are_read(head_dim, changes):
    """Tiles of one or two blocks let go of their buffers with loads under way: without a fence, rows were wrong."""
    case = (4, 2500, 16, 4, [[0, 64, 64, 2500], [0, 40, 40, 2500], [7, 64, 64, 2500], [0, 100, 100, 2500]])
    poisoned, clean, bounds = make(case, BF16, head_dim)
    found = attention(*poisoned, bounds, changes, return_lse=True)
    assert_right(found, reference(*clean, bounds, 1 / math.sqrt(head_dim)), (head_dim, changes))
    assert all(torch.equal(found[0], attention(*poisoned, bounds, changes)) for _ in range(60))


@pytest.mark.parametrize("head_dim", [64, 128])
@pytest.mark.parametrize("cap", [2.0, 30.0])
def test_capped_logits(head_dim, cap):
    scale = 4 / math.sqrt(head_dim)
    for seed, case in enumerate([*EDGES, *random_rows(8)]):
        poisoned, clean, bounds = make(case, torch.bfloat16, head_dim, seed)
        found = attention(*poisoned, bounds, {}, softmax_scale=scale, logit_cap=cap, return_lse=True)
        wanted = reference(*clean, bounds, scale, cap=cap)
        # The hardware's tanh is right to 11 bits of a logit, which may be as large as the cap.
        assert_right(found, wanted, (case, head_dim, cap), out={"rtol": 0.02, "atol": 0.03}, lse=cap / 1000)


def rows_of(inputs, rows, history):
    """Output of some rows by themselves: a long sequence's scores do not fit at once."""
    q, k, v = (x.float() for x in inputs)
    scores = torch.einsum("bihd,bjhd->bhij", q[:, rows], k[:, :history]) / math.sqrt(q.shape[-1])
    own = torch.einsum("bihd,bihd->bhi", q[:, rows], k[:, rows]) / math.sqrt(q.shape[-1])
    own = own.masked_fill(rows < history, -math.inf)
    weights = torch.cat([scores, own[..., None]], -1).softmax(-1)
    return torch.einsum("bhij,bjhd->bihd", weights[..., :-1], v[:, :history]) + (
        weights[..., -1].transpose(1, 2)[..., None] * v[:, rows]
    )


@pytest.mark.parametrize("changes", [{}, {"schedule": "longest_first", "balanced": True}], ids=str)
def test_131072_tokens(changes):
    seqlen, history = 131072, 130001
    inputs = [torch.randn(1, seqlen, 2, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    bounds = torch.tensor([[0, history, history, seqlen]], dtype=torch.int32, device="cuda")
    out = attention(*inputs, bounds, changes)
    rows = torch.cat([torch.randint(seqlen, (100,), device="cuda"), torch.tensor([0, history, seqlen - 1]).cuda()])
    torch.testing.assert_close(out[:, rows].float(), rows_of(inputs, rows, history), rtol=0.02, atol=0.003)


def test_batch_rows_more_than_2_to_the_31_elements_apart():
    if torch.cuda.mem_get_info()[0] < 20 << 30:
        pytest.skip("needs 20 GiB of GPU memory")
    seqlen, heads, apart = 500, 4, 2**31 + 8
    shape = (2, seqlen, heads, 128)
    far = [
        torch.empty(apart + seqlen * heads * 128, device="cuda", dtype=torch.bfloat16).as_strided(
            shape, (apart, heads * 128, 128, 1)
        )
        for _ in range(3)
    ]
    near = [torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3)]
    for x, y in zip(far, near, strict=True):
        x.copy_(y)
    bounds = torch.tensor([[0, 300, 300, 500], [7, 450, 460, 499]], dtype=torch.int32, device="cuda")
    assert torch.equal(attention(*far, bounds, {}), attention(*near, bounds, {}))


def test_scores_that_rise_along_the_history():
    """Each block's maximum exceeds those before it: sums and outputs are corrected every time."""
    q, k, v = (torch.randn(1, 1024, 1, 128, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    q, k = q.abs(), k.abs() * torch.linspace(40, 0, 1024, device="cuda", dtype=torch.bfloat16)[None, :, None, None]
    bounds = torch.tensor([[0, 900, 900, 1024]], dtype=torch.int32, device="cuda")
    out, lse = attention(q, k, v, bounds, {}, return_lse=True)
    wanted, wanted_lse = reference(q, k, v, bounds, 1 / math.sqrt(128))
    torch.testing.assert_close(out.float(), wanted, rtol=0.02, atol=0.02)
    torch.testing.assert_close(lse, wanted_lse, rtol=1e-4, atol=1e-2)


def expanded(*shape):
    """One value for all along the dimensions with a minus, as ``expand`` gives it."""
    single = torch.randn([1 if size < 0 else size for size in shape], device="cuda").to(BF16)
    return single.expand([abs(size) for size in shape])


@pytest.mark.parametrize(
    "shapes",
    [
        ((2, 256, 4, 64), (2, 256, -4, 64), (2, 256, 4, 64)),
        ((2, 256, 4, 64), (-2, 256, 4, 64), (-2, 256, 4, 64)),
        ((2, -256, 4, 64), (2, 256, 4, 64), (2, 256, 4, 64)),
    ],
)
def test_expanded_tensors(shapes):
    inputs, bounds = [expanded(*shape) for shape in shapes], torch.tensor([[0, 150, 150, 250]] * 2, dtype=torch.int32)
    wanted = attention(*(x.contiguous() for x in inputs), bounds.cuda(), {})
    assert torch.equal(attention(*inputs, bounds.cuda(), {}), wanted)


def test_strides_of_dimensions_with_one_element():
    whole = [torch.randn(1, 256, 4, 64, device="cuda").to(BF16) for _ in range(3)]
    odd = [x.as_strided(x.shape, (7, 256, 64, 1)) for x in whole]
    bounds = torch.tensor([[0, 150, 150, 250, 9]], dtype=torch.int32, device="cuda")
    assert torch.equal(attention(*odd, bounds[:, :4], {}), attention(*whole, bounds[:, :4].clone(), {}))


def test_slices_of_a_larger_tensor():
    """Strides that are not those of a contiguous tensor."""
    qkv = torch.randn(2, 500, 3, 4, 128, device="cuda", dtype=torch.bfloat16)
    bounds = torch.tensor([[0, 300, 300, 500], [10, 20, 0, 10]], dtype=torch.int32, device="cuda")
    parts = qkv.unbind(2)
    assert torch.equal(attention(*parts, bounds, {}), attention(*(x.contiguous() for x in parts), bounds, {}))


@pytest.mark.parametrize("config", [{}, {"schedule": "longest_first", "balanced": True}], ids=str)
def test_graph_and_compiled_program_give_the_same(config):
    _, (q, k, v), bounds = make((2, 600, 4, 2, [[0, 400, 400, 600], [0, 10, 20, 600]]), torch.bfloat16, 128)
    wanted = attention(q, k, v, bounds, config)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = attention(q, k, v, bounds, config)
    bounds.copy_(torch.tensor([[0, 10, 20, 600], [0, 400, 400, 600]]))  # the order of tiles follows in a replay, too
    other = attention(q, k, v, bounds, config)
    out.zero_()
    graph.replay()
    assert torch.equal(out, other)
    compiled = torch.compile(attention, fullgraph=True)(q, k, v, bounds, config)
    assert torch.equal(compiled, other)
    assert not torch.equal(wanted, other)


def test_without_a_config_it_is_the_tuned_one_or_the_default(tmp_path, monkeypatch):
    from attnctl.profile.runtime import NotTuned, forget

    monkeypatch.setenv("ATTNCTL_CONFIG_DIR", str(tmp_path))
    forget()
    (q, k, v), _, bounds = make((1, 321, 2, 2, [[0, 200, 200, 321]]), torch.bfloat16, 128)
    with pytest.warns(NotTuned, match=r"s321-.*: nothing is tuned for it on .*; the kernel's default is used"):
        found = attention(q, k, v, bounds)
    assert torch.equal(found, attention(q, k, v, bounds, {}))
    compiled = torch.compile(attention, fullgraph=True)
    assert torch.equal(compiled(q, k, v, bounds), found)

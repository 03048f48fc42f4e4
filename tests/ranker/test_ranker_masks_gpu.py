"""Rows that see one range of keys each, against float32 attention. Needs a Hopper GPU."""

import math
import random

import pytest

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.ranker.launch")

from ranker_ahead import compile_ahead, forward  # noqa: E402
from ranker_oracle import assert_right, masked  # noqa: E402

from attnctl_kernels.contract import Mask  # noqa: E402
from attnctl_kernels.masks import visible  # noqa: E402
from attnctl_kernels.ranker import attention, visible_ranges  # noqa: E402
from attnctl_kernels.ranker.config import HEAD_DIMS, default_config  # noqa: E402

MISSING = launch.LAUNCHER.available("sm_90")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

BF16, F16 = torch.bfloat16, torch.float16
CHANGES = [
    {"schedule": "longest_first"},
    {"balanced": True},
    {"schedule": "longest_first", "balanced": True, "tile_m": 128, "tile_n": 64},
    {"persistent": False, "tile_m": 64},
    {"turns": False, "tile_n": 48},
]
ORDERS = [{"schedule": schedule, "balanced": cut} for schedule in ("linear", "longest_first") for cut in (False, True)]


@pytest.fixture(scope="module", autouse=True)
def kernels_on_disk():
    every = [forward(head_dim, dtype, ranges=True) for head_dim in HEAD_DIMS for dtype in (BF16, F16)]
    every += [forward(128, BF16, changes, ranges=True) for changes in CHANGES]
    every += [forward(64, BF16, order, ranges=True) for order in ORDERS]
    compile_ahead([*every, forward(128, F16, ranges=True, capped=True)])


def masks(draw, seqlen_q, seqlen_k):
    yield Mask(pattern="dense")
    yield Mask(pattern="causal")
    yield Mask(pattern="sliding_window", window=draw.randint(1, seqlen_k))
    yield Mask(pattern="document", document_len=draw.randint(1, seqlen_k))
    yield Mask(pattern="document", document_len=draw.randint(1, seqlen_k), causal=True)
    yield Mask(pattern="prefix_lm", prefix_len=draw.randint(0, seqlen_k))


def cases(count, seed=3):
    draw = random.Random(seed)
    shapes = [(1, 1, 1, 1, 1), (2, 1000, 1000, 4, 1), (1, 100, 900, 8, 8), (1, 900, 100, 2, 2), (2, 130, 64, 8, 1)]
    while len(shapes) < count:
        heads = draw.randint(1, 2)
        lengths = draw.randint(1, 900), draw.randint(1, 900)
        shapes.append((draw.randint(1, 2), *lengths, heads * draw.choice([1, 4]), heads))
    for shape in shapes:
        yield from ((shape, mask) for mask in masks(draw, *shape[1:3]))


def inputs_of(shape, head_dim, dtype, seed):
    batch_size, seqlen_q, seqlen_k, heads_q, heads_kv = shape
    torch.manual_seed(seed)
    lengths = ((seqlen_q, heads_q), (seqlen_k, heads_kv), (seqlen_k, heads_kv))
    return [torch.randn(batch_size, *each, head_dim, device="cuda", dtype=dtype) for each in lengths]


def sees(mask, seqlen_q, seqlen_k):
    rows, columns = torch.arange(seqlen_q)[:, None].numpy(), torch.arange(seqlen_k).numpy()
    return torch.from_numpy(visible(mask, rows, columns, seqlen_q, seqlen_k)).cuda()[None]


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_it_is_the_reference_over_masks_of_every_kind(dtype, head_dim):
    scale = 1.3 / math.sqrt(head_dim)
    for seed, (shape, mask) in enumerate(cases(12)):
        inputs = inputs_of(shape, head_dim, dtype, seed)
        found = attention(*inputs, config={}, mask=mask, softmax_scale=scale, return_lse=True)
        assert_right(found, masked(*inputs, sees(mask, *shape[1:3]), scale), (shape, mask, dtype, head_dim, seed))
        again = attention(*inputs, config={}, mask=mask, softmax_scale=scale)
        assert torch.equal(found[0], again), (shape, mask)


@pytest.mark.parametrize("changes", CHANGES, ids=str)
def test_other_configs(changes):
    config = {**default_config(128, ranges=True), **changes}
    for seed, (shape, mask) in enumerate(cases(8, seed=4)):
        inputs = inputs_of(shape, 128, torch.bfloat16, seed)
        found = attention(*inputs, config=config, mask=mask, return_lse=True)
        wanted = masked(*inputs, sees(mask, *shape[1:3]), 1 / math.sqrt(128))
        assert_right(found, wanted, (shape, mask, config, seed))


def test_a_long_window_in_every_order():
    """More tiles than SMs, in three rounds and a last one."""
    mask, shape = Mask(pattern="sliding_window", window=300), (2, 4096, 4096, 16, 4)
    inputs = inputs_of(shape, 64, torch.bfloat16, 0)
    wanted = masked(*(x[:, :, :1] for x in inputs), sees(mask, 4096, 4096), 1 / 8)
    for order in ORDERS:
        config = {**default_config(64, ranges=True), **order}
        out, lse = attention(*inputs, config=config, mask=mask, return_lse=True)
        assert_right((out[:, :, :1], lse[:, :1]), wanted, config)
        assert lse.isfinite().all()


def test_tables_that_differ_between_batch_rows_and_a_compiled_program():
    shape = (2, 500, 500, 2, 1)
    inputs = inputs_of(shape, 128, torch.float16, 0)
    both = [Mask(pattern="causal"), Mask(pattern="sliding_window", window=33)]
    table = torch.cat([visible_ranges(mask, 500, 500, inputs[0].device) for mask in both])
    wanted = masked(*inputs, torch.cat([sees(mask, 500, 500) for mask in both]), 1 / math.sqrt(128), cap=20.0)
    found = attention(*inputs, config={}, mask=table, logit_cap=20.0, return_lse=True)
    torch.testing.assert_close(found[0].float(), wanted[0], rtol=0.01, atol=0.01)
    compiled = torch.compile(attention, fullgraph=True)
    assert torch.equal(compiled(*inputs, config={}, mask=table, logit_cap=20.0), found[0])

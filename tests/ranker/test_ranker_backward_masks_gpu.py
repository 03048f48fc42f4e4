"""Gradients where each row sees one range of keys, against formulas in float32. Needs a Hopper GPU."""

import itertools
import math

import pytest

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.ranker.launch")

from ranker_ahead import backward, compile_ahead, forward  # noqa: E402
from ranker_graph import captured  # noqa: E402
from ranker_mask_gradients import Call, expected, faults  # noqa: E402
from ranker_tables import tables  # noqa: E402
from test_ranker_backward_gpu import configs  # noqa: E402

from attnctl_kernels.contract import Mask  # noqa: E402
from attnctl_kernels.ranker import attention, backward_call, visible_ranges  # noqa: E402
from attnctl_kernels.ranker import backward_config as own  # noqa: E402
from attnctl_kernels.ranker.config import HEAD_DIMS  # noqa: E402

MISSING = launch.LAUNCHER.available("sm_90")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

BF16, F16 = torch.bfloat16, torch.float16
SHAPES = [  # batch_size, seqlen_q, seqlen_k, num_heads_q, num_heads_kv
    (1, 1, 1, 1, 1),
    (2, 1000, 1000, 4, 1),
    (1, 100, 900, 8, 8),
    (1, 900, 100, 2, 2),
    (2, 130, 64, 8, 1),
    (3, 513, 777, 4, 2),
]


@pytest.fixture(scope="module", autouse=True)
def kernels_on_disk(request):
    """Those of the tests that were chosen: all configs only where each is tried."""
    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    every = [backward(each["head_dim"], BF16, each["config"], ranges=True) for each in chosen if "config" in each]
    for head_dim, dtype, capped in itertools.product(HEAD_DIMS, (BF16, F16), (False, True)):
        every += [backward(head_dim, dtype, own.default_config(head_dim), ranges=True, capped=capped)]
        every += [forward(head_dim, dtype, ranges=True, capped=capped)]
    compile_ahead(every)


@pytest.fixture(autouse=True)
def poisoned_memory(monkeypatch):
    """Scratch is NaN, and so is what the allocator hands out for the gradients."""
    plain, plain_spans = backward_call.scratch, backward_call.spans
    monkeypatch.setattr(backward_call, "scratch", lambda *given: [x.fill_(math.nan) for x in plain(*given)])
    monkeypatch.setattr(backward_call, "spans", lambda *given: plain_spans(*given).fill_(math.nan))
    torch.full((1 << 26,), math.nan, device="cuda")


def gradients(call, inputs, config=None, function=attention, mask=None):
    q, k, v, dout = inputs
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]
    mask = call.table.cuda() if mask is None else mask
    how = {"softmax_scale": call.scale, "logit_cap": call.cap, "backward_config": config or {}}
    return torch.autograd.grad(function(*leaves, config={}, mask=mask, **how), leaves, dout)


def assert_right(call, config=None, function=attention, mask=None):
    inputs = call.tensors("cuda")
    lines = faults(call, gradients(call, inputs, config, function, mask), expected(call, *inputs))
    assert not lines, "\n".join(lines)


def window_call(head_dim=128, dtype=BF16, length=1000, window=300, **changes):
    table = visible_ranges(Mask(pattern="sliding_window", window=window), length, length, torch.device("cpu"))
    return Call(table, length, 2, 4, 2, head_dim, dtype, name="window", **changes)


@pytest.mark.parametrize("dtype", [BF16, F16])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_they_are_the_formulas_over_tables_of_every_kind(shape, head_dim, dtype):
    """Of patterns, and of rows that see nothing, keys that nobody sees, and steps of all heights."""
    batch_size, seqlen, keys, heads_q, heads_kv = shape
    for seed, (name, table) in enumerate(tables(seqlen, keys, 6, seed=sum(shape))):
        call = Call(torch.from_numpy(table)[None].int(), keys, batch_size, heads_q, heads_kv, head_dim, dtype, seed)
        assert_right(call._replace(name=name))


PATTERNS = [
    Mask(pattern="dense"),
    Mask(pattern="causal"),
    Mask(pattern="sliding_window", window=100),
    Mask(pattern="document", document_len=150),
    Mask(pattern="document", document_len=150, causal=True),
    Mask(pattern="prefix_lm", prefix_len=77),
]


@pytest.mark.parametrize("mask", PATTERNS, ids=lambda mask: f"{mask.pattern}{' causal' if mask.causal else ''}")
def test_a_pattern_is_its_table(mask):
    table = visible_ranges(mask, 600, 600, torch.device("cpu"))
    assert_right(Call(table, 600, 2, 4, 2, 128, BF16, name=mask.pattern), mask=mask)


@pytest.mark.parametrize("cap", [2.0, 30.0])
@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_capped_logits(head_dim, cap):
    for dtype, window in itertools.product((BF16, F16), (64, 300)):
        assert_right(window_call(head_dim, dtype, window=window, cap=cap))


@pytest.mark.parametrize(
    ("head_dim", "config"), [(head_dim, config) for head_dim in HEAD_DIMS for config in configs(head_dim)]
)
def test_every_config_that_the_rules_let_through_is_right(head_dim, config):
    assert_right(window_call(head_dim), config)


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_gradients_of_keys_are_the_same_in_every_run(head_dim):
    """Those of queries are sums in any order, and may differ in a last bit."""
    call = window_call(head_dim)
    inputs = call.tensors("cuda")
    first = gradients(call, inputs)
    for _ in range(5):
        dq, dk, dv = gradients(call, inputs)
        assert torch.equal(dk, first[1])
        assert torch.equal(dv, first[2])
        torch.testing.assert_close(dq, first[0], rtol=0.02, atol=0.002)


def test_tables_that_differ_between_batch_rows():
    masks = Mask(pattern="causal"), Mask(pattern="sliding_window", window=33)
    table = torch.cat([visible_ranges(mask, 500, 500, torch.device("cpu")) for mask in masks])
    for head_dim in HEAD_DIMS:
        assert_right(Call(table, 500, 2, 2, 1, head_dim, BF16, name="two tables"))


def test_a_compiled_program_gives_the_same():
    assert_right(window_call(), function=torch.compile(attention, fullgraph=True))


def test_a_graph_gives_the_same_and_reads_its_table_when_it_runs():
    call = window_call()
    q, k, v, dout = call.tensors("cuda")
    table = call.table.cuda()
    leaves = [x.detach().requires_grad_() for x in (q, k, v)]

    def step():
        out = attention(*leaves, config={}, mask=table, softmax_scale=call.scale, backward_config={})
        return torch.autograd.grad(out, leaves, dout)

    graph, outputs = captured(step)
    for window in (300, 50):
        other = window_call(window=window)
        table.copy_(other.table)
        for x in outputs:
            x.fill_(math.nan)
        graph.replay()
        lines = faults(other, outputs, expected(other, q, k, v, dout))
        assert not lines, "\n".join(lines)


def test_a_long_sequence():
    assert_right(window_call(length=20000, window=1500)._replace(batch_size=1, num_heads_q=1, num_heads_kv=1))


def test_without_a_config_it_is_the_tuned_one_or_the_default(tmp_path, monkeypatch):
    from attnctl.profile.runtime import NotTuned, forget

    monkeypatch.setenv("ATTNCTL_CONFIG_DIR", str(tmp_path))
    forget()
    call, mask = window_call(length=323, window=50), Mask(pattern="sliding_window", window=50)
    inputs = call.tensors("cuda")
    leaves = [x.detach().requires_grad_() for x in inputs[:3]]
    with pytest.warns(NotTuned, match=r"backward.*nothing is tuned for it on .*; the kernel's default is used"):
        out = attention(*leaves, config={}, mask=mask, softmax_scale=call.scale)
    lines = faults(call, torch.autograd.grad(out, leaves, inputs[3]), expected(call, *inputs))
    assert not lines, "\n".join(lines)


@pytest.mark.parametrize("first", range(3))
def test_batch_rows_further_apart_than_32_bits_reach(first):
    """One of the tensors begins where an allocation does, and perhaps all mapped memory: TMA must not see before it."""
    call = window_call(64, length=300, window=70)._replace(num_heads_q=2)
    apart, heads, length = (1 << 31) + 4096, 2, 300
    base = torch.empty(apart + 8 * length * heads * 64, dtype=BF16, device="cuda")
    inputs = call.tensors("cuda")
    far = []
    for n, x in enumerate(inputs[:3]):
        begin = (n - first) % 3 * 2 * length * heads * 64
        far.append(base.as_strided(x.shape, (apart, heads * 64, 64, 1), begin).copy_(x))
    lines = faults(call, gradients(call, [*far, inputs[3]]), expected(call, *inputs))
    assert not lines, "\n".join(lines)

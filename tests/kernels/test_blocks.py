import math

import pytest
import torch
from brute_force import mask_cases
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from attnctl_kernels import masks, reference
from attnctl_kernels.blocks.launch import LAUNCHER
from attnctl_kernels.blocks.tiles import classify
from attnctl_kernels.contract import Candidate, Inputs, Mask, Problem, Task

torch.set_num_threads(1)  # tensors here are small: on a busy machine their threads would wait for each other

EPS = {"float32": 2**-23, "bfloat16": 2**-8, "float16": 2**-11}
DTYPES = st.sampled_from(sorted(EPS))
TILES = st.tuples(*[st.sampled_from([16, 32, 48])] * 2)
HEADS = st.sampled_from([(1, 1), (2, 2), (4, 2), (3, 1)])


def make_problem(mask, seqlen_q, seqlen_k, **changes):
    facts = {"batch_size": 2, "num_heads_q": 2, "num_heads_kv": 2, "head_dim": 8, "head_dim_v": 8, "dtype": "float32"}
    return Problem(mask=mask, seqlen_q=seqlen_q, seqlen_k=seqlen_k, **{**facts, **changes})


def make_inputs(problem, seed=0):
    generator = torch.Generator().manual_seed(seed)

    def normal(seqlen, heads, dim):
        values = torch.randn(problem.batch_size, seqlen, heads, dim, generator=generator)
        return values.to(getattr(torch, problem.dtype))

    q = normal(problem.seqlen_q, problem.num_heads_q, problem.head_dim)
    k = normal(problem.seqlen_k, problem.num_heads_kv, problem.head_dim)
    v = normal(problem.seqlen_k, problem.num_heads_kv, problem.head_dim_v)
    dout = normal(problem.seqlen_q, problem.num_heads_q, problem.head_dim_v)
    out, lse = reference.forward(q, k, v, problem.mask, problem.softmax_scale)
    return Inputs(q=q, k=k, v=v, out=out.to(q.dtype), lse=lse.float(), dout=dout)


def bind(problem, pass_name, tile, inputs, sparse_block=None):
    task = Task(family="blocks", version="1", arch=None, pass_name=pass_name, problem=problem)
    candidate = Candidate(config={"block_q": tile[0], "block_kv": tile[1]}, sparse_block=sparse_block)
    return LAUNCHER.bind(task, candidate, inputs)


def run(problem, pass_name, tile, inputs, sparse_block=None):
    call = bind(problem, pass_name, tile, inputs, sparse_block)
    call.poison()
    assert all(torch.isnan(output).all() for output in call.outputs().values())
    call.run()
    return call.outputs()


def expected_outputs(problem, inputs):
    q, k, v, mask, scale = inputs.q, inputs.k, inputs.v, problem.mask, problem.softmax_scale
    out, lse = reference.forward(q, k, v, mask, scale)
    dq, dk, dv = reference.backward(q, k, v, inputs.dout, mask, scale)
    return {"forward": {"out": out, "lse": lse}, "backward": {"dq": dq, "dk": dk, "dv": dv}}


def assert_right(actual, expected, dtype, *, roundings=64):
    """``roundings`` of float32 on the way to an output, and a few of its own dtype."""
    assert actual.keys() == expected.keys()
    for name, want in expected.items():
        got = actual[name]
        assert got.shape == want.shape
        own = "float32" if name == "lse" else dtype
        assert got.dtype == getattr(torch, own), name
        finite = torch.isfinite(want)
        assert torch.equal(got[~finite], want[~finite].to(got.dtype)), name
        error = (got.double() - want.double())[finite]
        largest = max([1.0, *want[finite].abs().flatten().tolist()])
        assert (error.abs() <= (4 * EPS[own] + roundings * EPS["float32"]) * largest).all(), name


@given(mask_cases(largest=100), DTYPES, HEADS, TILES, st.sampled_from([8, 16]), st.sampled_from([None, 0.25]))
@settings(max_examples=150)
def test_outputs_and_gradients_are_the_references(  # noqa: PLR0917
    case, dtype, heads, tile, head_dim_v, scale
):
    mask, seqlen_q, seqlen_k = case
    problem = make_problem(
        mask,
        seqlen_q,
        seqlen_k,
        dtype=dtype,
        num_heads_q=heads[0],
        num_heads_kv=heads[1],
        head_dim_v=head_dim_v,
        softmax_scale=scale,
    )
    inputs = make_inputs(problem)
    for pass_name, expected in expected_outputs(problem, inputs).items():
        assert_right(run(problem, pass_name, tile, inputs), expected, dtype)


def test_rows_without_keys():
    problem = make_problem(Mask(pattern="causal"), 50, 20)  # rows 0 to 29 sit before the first key
    inputs = make_inputs(problem)
    forward = run(problem, "forward", (16, 16), inputs)
    assert (forward["out"][:, :30] == 0).all()
    assert (forward["lse"][:, :, :30] == -math.inf).all()
    backward = run(problem, "backward", (16, 16), inputs)
    assert (backward["dq"][:, :30] == 0).all()
    assert all(torch.isfinite(gradient).all() for gradient in backward.values())


def test_a_bound_call_reads_its_inputs_when_it_runs():
    problem = make_problem(Mask(pattern="causal"), 40, 40)
    inputs = make_inputs(problem)
    call = bind(problem, "forward", (16, 32), inputs)
    call.run()
    other = make_inputs(problem, seed=1)
    for mine, theirs in ((inputs.q, other.q), (inputs.k, other.k), (inputs.v, other.v)):
        mine.copy_(theirs)
    call.run()
    assert_right(call.outputs(), expected_outputs(problem, other)["forward"], "float32")


@pytest.mark.parametrize("pass_name", ["forward", "backward"])
def test_large_scores_of_either_sign(pass_name):
    """A tail that is not masked, or a maximum that does not follow, shows here and hides on small scores."""
    problem = make_problem(Mask(pattern="sliding_window", window=9), 70, 70, softmax_scale=20.0)
    inputs = make_inputs(problem)
    expected = expected_outputs(problem, inputs)[pass_name]
    # A score of 500 is itself rounded by 500 * EPS, and so is the logarithm of its weight.
    assert_right(run(problem, pass_name, (16, 16), inputs), expected, "float32", roundings=1000)


class CountProducts(TorchDispatchMode):
    """How many batched matrix products run, and over how many (row, key) pairs."""

    def __init__(self):
        super().__init__()
        self.products = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket in (torch.ops.aten.bmm, torch.ops.aten.baddbmm, torch.ops.aten.baddbmm_):
            self.products += 1
        return func(*args, **(kwargs or {}))


PRODUCTS = {"forward": 2, "backward": 5}


@pytest.mark.parametrize("pass_name", ["forward", "backward"])
@given(case=mask_cases(largest=100), tile=TILES)
@settings(max_examples=40)
def test_exactly_the_listed_tiles_run(pass_name, case, tile):
    mask, seqlen_q, seqlen_k = case
    problem = make_problem(mask, seqlen_q, seqlen_k)
    call = bind(problem, pass_name, tile, make_inputs(problem))
    with CountProducts() as counted:
        call.run()
    lists = masks.block_lists(masks.classify(mask, seqlen_q, seqlen_k, *tile))
    listed = int(lists.partial_count.sum() + lists.full_count.sum())
    assert counted.products == PRODUCTS[pass_name] * listed


def test_full_tiles_are_not_masked(monkeypatch):
    problem = make_problem(Mask(pattern="causal"), 128, 128)
    call = bind(problem, "forward", (16, 16), make_inputs(problem))
    looked_at = []
    sees = masks.Causal.sees
    monkeypatch.setattr(masks.Causal, "sees", lambda self, q, k, table: looked_at.append(1) or sees(self, q, k, table))
    call.run()
    assert len(looked_at) == 8  # the tiles of the diagonal; the 28 below it are full


@pytest.mark.parametrize("pass_name", ["forward", "backward"])
def test_keys_of_empty_tiles_are_not_read(pass_name):
    mask = Mask(pattern="blocks", block_size=(32, 32), rows=((0,), (3,), (0, 3)))
    problem = make_problem(mask, 96, 128)
    inputs = make_inputs(problem)
    expected = run(problem, pass_name, (32, 32), inputs)
    inputs.k[:, 32:96] = math.nan
    inputs.v[:, 32:96] = math.nan
    actual = run(problem, pass_name, (32, 32), inputs)
    for name, output in actual.items():
        seen = [*range(32), *range(96, 128)] if name in {"dk", "dv"} else slice(None)
        assert torch.equal(output[:, seen], expected[name][:, seen])


@given(mask_cases(largest=100), st.sampled_from([(16, 16), (32, 16)]), st.integers(1, 3), st.integers(1, 3))
@settings(max_examples=60)
def test_a_sparse_block_of_several_tiles_has_one_class(case, tile, factor_q, factor_kv):
    mask, seqlen_q, seqlen_k = case
    problem = make_problem(mask, seqlen_q, seqlen_k)
    block = tile[0] * factor_q, tile[1] * factor_kv
    coarse = masks.classify(mask, seqlen_q, seqlen_k, *block)
    fine = classify(problem, tile, block)
    assert fine.shape == (math.ceil(seqlen_q / tile[0]), math.ceil(seqlen_k / tile[1]))
    for row in range(fine.shape[0]):
        for key in range(fine.shape[1]):
            assert fine[row, key] == coarse[row // factor_q, key // factor_kv]
    inputs = make_inputs(problem)
    for pass_name, expected in expected_outputs(problem, inputs).items():
        assert_right(run(problem, pass_name, tile, inputs, sparse_block=block), expected, "float32")


def test_versions_name_torch_and_the_sources():
    versions = LAUNCHER.versions()
    assert versions["torch"] == torch.__version__
    assert len(versions["blocks-sources"]) == 16
    assert LAUNCHER.available(None) is None

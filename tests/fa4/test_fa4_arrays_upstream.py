"""Shapes of block arrays against `normalize_block_sparse_config` and its backward twin, on fake tensors.

Where the verdicts differ, by rule:

- FA4-B007: upstream stretches one row of the backward arrays over all key blocks, and the gradient is that of another
  mask. An error here.
- G201: where one size alone fits and it is not the tile, the arrays are for another block than the profile would run.
"""

from dataclasses import replace

import pytest
from fa4_cases import CAUSAL, THOROUGH, make_case, make_problem
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from attnctl.rules.check import check_case
from attnctl_kernels.contract import Layout
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.rule import Severity

torch = pytest.importorskip("torch")
sparsity = pytest.importorskip("flash_attn.cute.block_sparsity")

SHAPES = {"FA4-S004", "FA4-S006", "FA4-S013", "FA4-B007", "G201"}
BLOCKS = {"FA4-S007", "FA4-S008", "FA4-S009", "FA4-S010", "FA4-S012", "FA4-B003", "FA4-B004"}


def blocks_in(length, block):
    return -(-length // block)


def near(value):
    """A size that is right, or next to it."""
    return st.sampled_from([value, value, value, value, max(1, value - 1), value + 1, 1])


def arrays(batch, heads, rows, width, block):
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        counts = torch.empty(batch, heads, rows, dtype=torch.int32, device="cuda")
        indices = torch.empty(batch, heads, rows, width, dtype=torch.int32, device="cuda")
        return sparsity.BlockSparseTensorsTorch(counts, indices, counts, indices, block_size=block)


def refusal(call):
    try:
        call()
    except ValueError as error:
        return str(error)
    return None


def errors(case):
    return {rule.code for rule, _ in check_case(case) if rule.severity is Severity.ERROR}


@st.composite
def forward_calls(draw):
    arch = draw(st.sampled_from(["sm_90", "sm_100"]))
    batch, heads = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 4]))
    seqlen_q, seqlen_k = (draw(st.sampled_from([100, 128, 1000, 1024, 4096])) for _ in "qk")
    block = (draw(st.sampled_from([64, 128, 192, 256, 384])), draw(st.sampled_from([64, 128, 256])))
    problem = make_problem(seqlen_q, seqlen_k, heads=heads, heads_kv=heads, mask=CAUSAL)
    problem = problem.model_copy(update={"batch_size": batch})
    case = make_case(problem, arch=arch, block=block)
    layout = Layout(
        num_blocks=draw(near(blocks_in(seqlen_q, block[0]))),
        batch_size=draw(near(batch)),
        num_heads=draw(near(heads)),
        index_width=draw(near(blocks_in(seqlen_k, block[1]))),
    )
    return replace(case, layout=layout)


@settings(deadline=None, max_examples=250 * THOROUGH, suppress_health_check=[HealthCheck.too_slow])
@given(forward_calls())
def test_forward_shapes_are_refused_where_upstream_refuses_them(case):
    problem, layout, tile = case.problem, case.layout, (case.config["tile_m"], case.config["tile_n"])
    tensors = arrays(layout.batch_size, layout.num_heads, layout.num_blocks, layout.index_width, case.sparse_block)
    refused = refusal(
        lambda: sparsity.normalize_block_sparse_config(
            tensors,
            batch_size=problem.batch_size,
            num_head=problem.num_heads_q,
            seqlen_q=problem.seqlen_q,
            seqlen_k=problem.seqlen_k,
            block_size=tile,
            q_stage=Call(case).q_stage,
            allow_kv_subtile=case.arch == "sm_100",
        )
    )
    assert bool(errors(case) & (SHAPES | BLOCKS)) == (refused is not None), (refused, errors(case))


@settings(deadline=None, max_examples=250 * THOROUGH)
@given(
    st.sampled_from([100, 128, 256, 1000, 1024, 4096, 16512, 20000]),
    st.integers(1, 200),
    st.sampled_from(["sm_90", "sm_100"]),
)
def test_a_block_size_that_is_left_out_is_ambiguous_where_upstream_says_so(seqlen, rows, arch):
    problem = make_problem(seqlen, mask=CAUSAL)
    case = replace(make_case(problem, arch=arch), layout=Layout(num_blocks=rows))
    tensors = arrays(1, 1, rows, 1, None)
    refused = refusal(
        lambda: sparsity.infer_block_sparse_expected_shapes(
            tensors,
            batch_size=1,
            num_head=problem.num_heads_q,
            seqlen_q=seqlen,
            seqlen_k=problem.seqlen_k,
            m_block_size=case.config["tile_m"],
            n_block_size=case.config["tile_n"],
            q_stage=Call(case).q_stage,
            context="",
        )
    )
    found = errors(case) & {"FA4-S013", "G201"}
    if refused is None or "does not match" in refused:
        assert found <= {"G201"}, found
    else:
        assert found, refused
        assert "FA4-S013" in found or "multiple" not in refused


@st.composite
def backward_calls(draw):
    batch, heads = draw(st.integers(1, 3)), draw(st.sampled_from([1, 2, 4]))
    seqlen_q, seqlen_k = (draw(st.sampled_from([100, 128, 1000, 1024, 4096])) for _ in "qk")
    problem = make_problem(seqlen_q, seqlen_k, heads=heads, heads_kv=heads, head_dim=64, mask=CAUSAL)
    problem = problem.model_copy(update={"batch_size": batch})
    case = make_case(problem, "backward", block=(128, 128))
    layout = Layout(
        batch_size=draw(near(batch)),
        num_heads=draw(near(heads)),
        num_n_blocks=draw(near(blocks_in(seqlen_k, 128))),
        backward_index_width=draw(near(blocks_in(seqlen_q, 128))),
        backward_arrays=True,
    )
    return replace(case, layout=layout)


@settings(deadline=None, max_examples=250 * THOROUGH, suppress_health_check=[HealthCheck.too_slow])
@given(backward_calls())
def test_backward_shapes_are_refused_where_upstream_refuses_them(case):
    problem, layout = case.problem, case.layout
    tile_m = case.config["tile_m"]
    tensors = arrays(
        layout.batch_size, layout.num_heads, layout.num_n_blocks, layout.backward_index_width, case.sparse_block
    )
    refused = refusal(
        lambda: sparsity.normalize_block_sparse_config_bwd(
            tensors,
            batch_size=problem.batch_size,
            num_head=problem.num_heads_q,
            seqlen_q=problem.seqlen_q,
            seqlen_k=problem.seqlen_k,
            block_size=(tile_m, case.config["tile_n"]),
            q_subtile_factor=case.sparse_block[0] // tile_m,
        )
    )
    found = errors(case) & (SHAPES | BLOCKS)
    stretched = layout.num_n_blocks == 1 < blocks_in(problem.seqlen_k, 128)
    if refused is not None or not (stretched and found == {"FA4-B007"}):
        assert bool(found) == (refused is not None), (refused, found, layout)

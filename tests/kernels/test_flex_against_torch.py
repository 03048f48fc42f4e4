"""FlexAttention's rules against the installed torch: its entry, its choice of kernel, and its tables of tiles.

What they disagree on, by rule, and why:

- FLEX-004: the entry never looks at the batch and heads of the mask; the kernels wrap around.
- FLEX-005, FLEX-010, FLEX-015 (`return_lse`): raised later, while inductor lowers the call.
- FLEX-018: a warning there as here.
"""

from types import SimpleNamespace

import pytest
from flex_cases import CAUSAL, THOROUGH, case_of, errors
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Problem
from attnctl_kernels.flex import options, tiles

torch = pytest.importorskip("torch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

if not torch.__version__.startswith("2.13."):
    pytest.skip("the rules follow torch 2.13", allow_module_level=True)

AT_THE_ENTRY = {"FLEX-003", "FLEX-006", "FLEX-007", "FLEX-009", "FLEX-015"}
REFUSALS = (ValueError, RuntimeError, AssertionError, NotImplementedError)


class Accepted(Exception):
    pass


def tensor(batch, heads, length, dim, dtype="float32"):
    """Of any size, in a few bytes."""
    return torch.empty(1, dtype=getattr(torch, dtype)).expand(batch, heads, length, dim)


def causal(b, h, q, k):
    return q >= k


@pytest.fixture(scope="module")
def entry():
    """`flex_attention`, up to where it hands over to the compiler: why it refuses, or None."""

    def accepted(*args, **kwargs):
        raise Accepted

    patch = pytest.MonkeyPatch()
    patch.setattr(flex, "flex_attention_hop", accepted)
    patch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)

    def call(*args, **kwargs):
        try:
            flex.flex_attention(*args, **kwargs)
        except Accepted:
            return None
        except REFUSALS as error:
            return error
        raise AssertionError

    yield call
    patch.undo()


@st.composite
def calls(draw):
    """A case, and what a program would pass."""
    lengths = st.sampled_from([1, 64, 100, 128, 200, 256])
    seqlen_q, seqlen_k = draw(lengths), draw(lengths)
    batch, batch_kv = draw(st.integers(1, 3)), draw(st.sampled_from([None, None, 1, 2]))
    heads_q = draw(st.integers(1, 8))
    heads_kv = draw(st.sampled_from([heads_q, heads_q, 1, 2, 5]))
    masked = draw(st.booleans())
    layout = {
        "seqlen_q": draw(st.sampled_from([seqlen_q, seqlen_q, seqlen_q, 64, 256])),
        "seqlen_k": draw(st.sampled_from([seqlen_k, seqlen_k, seqlen_k, 64, 256])),
        "batch_size": draw(st.sampled_from([1, batch])),
        "num_heads": draw(st.sampled_from([1, heads_q])),
    }
    written = {
        "enable_gqa": draw(st.booleans()),
        "BACKEND": draw(st.sampled_from(["AUTO", "TRITON", "FLASH", "TRITON_DECODE", "triton"])),
        "FORCE_USE_FLEX_ATTENTION": draw(st.booleans()),
        "OUTPUT_LOGSUMEXP": True,
        "OUTPUT_MAX": True,
        "return_max_scores": draw(st.booleans()),
        "sliced_mask": masked and draw(st.booleans()),
    }
    kept = draw(st.sets(st.sampled_from(sorted(written)), max_size=2))
    written = {name: value for name, value in written.items() if name in kept}
    case = case_of(
        arch=None,
        mask=CAUSAL if masked else case_of().problem.mask.model_copy(update={"pattern": "dense"}),
        block=(128, 128) if masked else None,
        written=written,
        layout=layout if masked else None,
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k,
        batch_size=batch,
        batch_size_kv=batch_kv,
        num_heads_q=heads_q,
        num_heads_kv=heads_kv,
        head_dim=32,
        dtype="float32",
    )
    return case, layout if masked else None


def arguments(case, layout):
    problem, config = case.problem, case.config
    mask = None
    if layout:
        sizes = (layout[name] for name in ("batch_size", "num_heads", "seqlen_q", "seqlen_k"))
        mask = flex.create_block_mask(causal, *sizes, device="cpu", BLOCK_SIZE=case.sparse_block)
        if config.get("sliced_mask"):
            mask = mask[:, :]
    given_options = {name: config[name] for name in ("BACKEND", "FORCE_USE_FLEX_ATTENTION") if name in config}
    given_options |= {name: config[name] for name in ("OUTPUT_LOGSUMEXP", "OUTPUT_MAX") if name in config}
    batch_kv = problem.batch_size_kv or problem.batch_size
    keys = tensor(batch_kv, problem.num_heads_kv, problem.seqlen_k, problem.head_dim)
    query = tensor(problem.batch_size, problem.num_heads_q, problem.seqlen_q, problem.head_dim)
    return (query, keys, keys), {
        "block_mask": mask,
        "enable_gqa": config.get("enable_gqa", problem.num_heads_q != problem.num_heads_kv),
        "kernel_options": given_options,
        "return_aux": flex.AuxRequest(max_scores=True) if config.get("return_max_scores") else None,
    }


@settings(deadline=None, max_examples=500 * THOROUGH)
@given(call=calls())
def test_the_entry_refuses_what_the_rules_refuse(entry, call):
    case, layout = call
    args, kwargs = arguments(case, layout)
    refusal, found = entry(*args, **kwargs), errors(case) & AT_THE_ENTRY
    if refusal is None and found == {"FLEX-006"} and case.problem.batch_size_kv is not None:
        # the entry lets any two batches pass that the mask tells apart; the lowering asserts that keys have one
        assert case.problem.batch_size_kv != 1
        return
    assert bool(refusal) == bool(found), (refusal, found)


@pytest.mark.parametrize(
    ("query", "keys", "part"),
    [
        ((1, 4, 64, 32), (1, 3, 64, 32), "Expect number of query heads to be a multiple of kv heads for GQA"),
        ((1, 4, 64, 32), (1, 4, 64, 16), "Expect query and key/value to have the same embedding dimension"),
        ((4, 4, 64, 32), (2, 4, 64, 32), "Expect query and key/value to have the same batch size"),
    ],
)
def test_messages_are_those_that_explain_knows(entry, query, keys, part):
    from attnctl_kernels.families import get_family

    refusal = entry(tensor(*query), tensor(*keys), tensor(*keys), enable_gqa=True)
    assert part in str(refusal)
    patterns = [pattern for rule in get_family("flex").rules() for pattern in rule.upstream]
    assert any(pattern.split("{}", maxsplit=1)[0] in str(refusal) for pattern in patterns)


@pytest.mark.parametrize(
    ("seqlen_q", "seqlen_k", "block"), [(300, 180, (128, 128)), (300, 180, (60, 60)), (512, 1024, (64, 128))]
)
def test_masks_keep_true_lengths_and_round_blocks_up(seqlen_q, seqlen_k, block):
    mask = flex.create_block_mask(causal, 1, 1, seqlen_q, seqlen_k, device="cpu", BLOCK_SIZE=block)
    assert mask.shape[-2:] == (seqlen_q, seqlen_k)
    assert mask.kv_indices.shape[-2:] == (-(-seqlen_q // block[0]), -(-seqlen_k // block[1]))
    assert block == mask.BLOCK_SIZE


class Sizes:
    """What the decision needs of a tensor of inductor's graph."""

    def __init__(self, *sizes):
        self.sizes = sizes

    def get_size(self):
        import sympy

        return [sympy.Integer(each) for each in self.sizes]


@settings(deadline=None, max_examples=300 * THOROUGH)
@given(
    seqlen_q=st.sampled_from([1, 16, 100, 127, 128, 4096]),
    heads=st.tuples(st.integers(1, 16), st.integers(1, 8)),
    mask_heads=st.sampled_from([1, 2, 8]),
    forced=st.booleans(),
    max_scores=st.booleans(),
)
def test_the_decoding_kernel_is_taken_for_the_same_calls(seqlen_q, heads, mask_heads, forced, max_scores):
    from torch._inductor.kernel.flex.flex_decoding import _use_flex_decoding
    from torch._inductor.sizevars import SizeVarAllocator
    from torch._inductor.virtualized import V
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    heads_q, heads_kv = heads[0] * heads[1] if heads[0] % 3 else heads[0], heads[1]
    if heads_q % heads_kv:
        return
    case = case_of(
        seqlen_q=seqlen_q,
        num_heads_q=heads_q,
        num_heads_kv=heads_kv,
        layout={"num_heads": mask_heads},
        written={"FORCE_USE_FLEX_ATTENTION": forced, "return_max_scores": max_scores},
    )
    graph = SimpleNamespace(sizevars=SizeVarAllocator(ShapeEnv()))
    with V.set_graph_handler(graph):
        used = _use_flex_decoding(
            Sizes(1, heads_q, seqlen_q, 128),
            Sizes(1, mask_heads, 1, 1),
            Sizes(1, heads_kv, 4096, 128),
            {"FORCE_USE_FLEX_ATTENTION": forced, "OUTPUT_MAX": max_scores},
            heads_q != heads_kv,
        )
    assert bool(used) is options.decodes(case)


CAPABILITIES = {name: divmod(int(name.removeprefix("sm_")), 10) for name in ARCHES}


@pytest.fixture(scope="module")
def heuristics():
    from torch._inductor.template_heuristics.triton import CUDAConfigHeuristic

    return CUDAConfigHeuristic()


@pytest.mark.parametrize("arch", CAPABILITIES)
def test_tiles_are_those_of_inductor(heuristics, monkeypatch, arch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *args: CAPABILITIES[arch])
    for head_dim in (16, 32, 48, 64, 80, 96, 128, 160, 192, 224, 256, 320, 512):
        for dtype in ("float16", "bfloat16", "float32"):
            facts = {"batch_size": 1, "seqlen_q": 4096, "seqlen_k": 4096, "num_heads_q": 1, "num_heads_kv": 1}
            problem = Problem(**facts, head_dim=head_dim, head_dim_v=head_dim, dtype=dtype)
            (forward,) = heuristics.get_flex_attn_fwd_configs(head_dim, getattr(torch, dtype))
            expected = tiles.ForwardTile(forward.block_m, forward.block_n, forward.num_stages, forward.num_warps)
            assert tiles.forward_default(problem, arch, "2.13") == expected, (head_dim, dtype)
            (backward,) = heuristics.get_flex_attn_bwd_configs(head_dim, getattr(torch, dtype))
            names = ("block_m1", "block_n1", "block_m2", "block_n2", "num_stages", "num_warps")
            expected = tiles.BackwardTile(*(getattr(backward, name) for name in names))
            assert tiles.backward_default(problem, arch, "2.13") == expected, (head_dim, dtype)
            (decode,) = heuristics.get_flex_decode_configs(head_dim, getattr(torch, dtype))
            assert tiles.decode_block_n(arch, 1 << 30) == decode.block_n


def test_autotuned_tiles_are_those_of_inductor(heuristics):
    forward = {(each.block_m, each.block_n) for each in heuristics.flex_attn_fwd_autotune_configs}
    assert forward == set(tiles.AUTOTUNED_FORWARD)
    names = ("block_m1", "block_n1", "block_m2", "block_n2")
    backward = {tuple(getattr(each, name) for name in names) for each in heuristics.flex_attn_bwd_autotune_configs}
    assert backward == set(tiles.AUTOTUNED_BACKWARD)


def test_backends_and_options_are_those_of_torch():
    from typing import get_args

    from attnctl_kernels.flex.rules.kernel_options import BACKENDS
    from attnctl_kernels.flex.spec import FlexConfig

    assert set(get_args(flex._Backend)) == set(BACKENDS)
    ours = {name.removeprefix("fwd_").removeprefix("bwd_") for name in FlexConfig.model_fields}
    of_amd = {"kpack", "matrix_instr_nonkdim", "waves_per_eu"}
    assert set(flex.FlexKernelOptions.__annotations__) - of_amd <= ours

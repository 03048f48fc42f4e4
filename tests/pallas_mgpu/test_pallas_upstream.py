"""The rules against the installed JAX: its TuningConfig, and its attention in abstract evaluation.

What they disagree on, by rule, and why, is `UNCHECKED`; each entry holds only where its condition does.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pallas_cases import BACKWARD_BLOCKS, CAUSAL, errors, make_case, make_config, make_problem, told_by

from attnctl_kernels.contract import Mask

jax = pytest.importorskip("jax")
attention_mgpu = pytest.importorskip("jax.experimental.pallas.ops.gpu.attention_mgpu")
pytest.importorskip("attnctl_kernels.pallas_mgpu.launch")

import jax.numpy as jnp  # noqa: E402 - only where there is jax
from pallas_jax import refusal  # noqa: E402 - likewise

BLOCKS = ("block_q", "block_kv", *BACKWARD_BLOCKS)


def positive(case):
    return all(case.config.get(name) is None or case.config[name] > 0 for name in BLOCKS)


def unequal_values(case):
    return case.problem.head_dim_v != case.problem.head_dim


# What only lowering refuses, or nothing at all: rule -> where upstream's entry accepts it nevertheless, and why.
UNCHECKED = {
    "PAL-C001": lambda case: not positive(case),  # `block % 64` lets 0 and negative multiples through
    "PAL-C004": lambda case: True,  # the dataclass does not look at the backward blocks
    "PAL-F001": unequal_values,  # the check of V looks at K's shape again
    "PAL-F002": lambda case: case.problem.dtype == "bfloat16",  # let through, while all buffers are float16
    "PAL-F004": lambda case: case.problem.head_dim > 256,
    "PAL-F005": lambda case: case.config.get("pipeline_emitter"),  # it rounds the number of tiles down
    "PAL-F008": lambda case: True,  # lengths under a causal mask are not compared
    "PAL-H001": lambda case: True,  # tiles too wide and too large fail while they are lowered
    "PAL-H002": lambda case: True,
}


@pytest.fixture(scope="module")
def shapes_only():
    """Upstream's checks without its kernels: a kernel is only what comes out of it."""

    def kernel(_body, *, out_type, **_):
        return lambda *_: jax.tree.map(lambda each: jnp.zeros(each.shape, each.dtype), out_type)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention_mgpu.plgpu, "kernel", kernel)
        jax.clear_caches()
        yield
    jax.clear_caches()


def arrays(problem):
    def shape(length, heads, dim):
        return jax.ShapeDtypeStruct((problem.batch_size, length, heads, dim), problem.dtype)

    q = shape(problem.seqlen_q, problem.num_heads_q, problem.head_dim)
    k = shape(problem.seqlen_k, problem.num_heads_kv, problem.head_dim)
    return q, k, shape(problem.seqlen_k, problem.num_heads_kv, problem.head_dim_v)


def tuning(problem, config):
    known = {name: value for name, value in config.items() if name != "pipeline_emitter"}
    return attention_mgpu.TuningConfig(**known, causal=problem.mask.pattern == "causal")


def attend(problem, config, *, gradient):
    """The call that a program makes, as a function of its arrays."""
    entry = attention_mgpu.attention
    if config.get("pipeline_emitter"):
        entry = attention_mgpu.attention_with_pipeline_emitter
    if not gradient:
        return lambda q, k, v: entry(q, k, v, tuning(problem, config), save_residuals=True)
    return lambda q, k, v: jax.vjp(lambda *inputs: entry(*inputs, tuning(problem, config)), q, k, v)[1](q)


def require_same_verdict(cases, refused):
    """``refused`` by a rule that we report, and by none that we do not."""
    found = {code: case for case in cases for code in errors(case)}
    if refused is None:
        surprising = [code for code, case in found.items() if not UNCHECKED.get(code, lambda _: False)(case)]
        assert surprising == [], f"upstream accepts what {surprising} forbid"
        return
    assert found, f"upstream refuses what no rule forbids:\n{refused}"
    if all(positive(case) for case in cases):
        assert told_by(refused) & found.keys(), f"not explained by {sorted(found)}:\n{refused}"


blocks = st.sampled_from([-64, 0, 32, 64, 96, 128, 192, 256, 320])
steps = st.integers(0, 4)
configs = st.fixed_dictionaries(
    {"block_q": blocks, "block_kv": blocks, "max_concurrent_steps": steps, "compute_wgs_bwd": st.integers(1, 3)},
    optional={**dict.fromkeys(BACKWARD_BLOCKS, blocks), "use_schedule_barrier": st.booleans()},
)


@settings(max_examples=1000, deadline=None)
@given(configs)
def test_tuning_config(config):
    case = make_case(make_problem(), config)
    refused = refusal(tuning, case.problem, config)
    ours = {code for code in errors(case) if code in {"PAL-C001", "PAL-C002", "PAL-C003"}}
    if refused is None:
        assert not ours or (ours == {"PAL-C001"} and not positive(case))
    else:
        told = told_by(refused)
        assert told
        assert told <= ours


# Mostly right, so that single faults are seen and not only the first of many.
lengths = st.one_of(st.sampled_from([256, 512, 768, 1024, 1152]), st.integers(1, 1200))
right_blocks = st.sampled_from([64, 64, 128, 128, 192, 256])
dims = st.sampled_from([64, 64, 128, 128, 192, 256, 96, 320])
kinds = st.sampled_from(["float16", "float16", "float16", "bfloat16", "float32"])


@st.composite
def calls(draw):
    """A problem and a complete config, near what works."""
    seqlen_k, head_dim = draw(lengths), draw(dims)
    heads_kv = draw(st.integers(1, 3))
    problem = make_problem(
        draw(st.one_of(st.just(seqlen_k), lengths)),
        seqlen_k,
        heads=draw(st.one_of(st.just(heads_kv), st.just(2 * heads_kv), st.integers(1, 6))),
        heads_kv=heads_kv,
        head_dim=head_dim,
        head_dim_v=draw(st.sampled_from([head_dim] * 5 + [64])),
        dtype=draw(kinds),
        mask=draw(st.sampled_from([Mask(), Mask(), Mask(), CAUSAL])),
    )
    one = st.one_of(right_blocks, right_blocks, right_blocks, blocks)
    backward = draw(st.one_of(st.none(), st.tuples(one, one, one, one)))
    wgs = draw(st.sampled_from([1, 1, 2, 2, 3, 0]))
    return problem, make_config(draw(one), draw(one), draw(st.integers(2, 4)), wgs=wgs, backward=backward)


@pytest.mark.usefixtures("shapes_only")
@pytest.mark.parametrize("emitter", [False, True])
@settings(max_examples=700, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(call=calls())
def test_forward_entry(emitter, call):
    problem, config = call
    config |= {"pipeline_emitter": emitter}
    case = make_case(problem, {**config, "compute_wgs_bwd": config["compute_wgs_bwd"] or 1})
    refused = refusal(jax.eval_shape, attend(problem, config, gradient=False), *arrays(problem))
    require_same_verdict([case], refused)


@pytest.mark.usefixtures("shapes_only")
@settings(max_examples=700, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(call=calls())
def test_forward_and_backward(call):
    """As a training step runs them; ours are the findings of both passes."""
    problem, config = call
    cases = [make_case(problem, config, each, ("forward", "backward")) for each in ("forward", "backward")]
    refused = refusal(jax.eval_shape, attend(problem, config, gradient=True), *arrays(problem))
    require_same_verdict(cases, refused)

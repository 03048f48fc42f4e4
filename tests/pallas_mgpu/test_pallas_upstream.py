"""The rules against the installed JAX: its TuningConfig, its attention in abstract evaluation, and lowered kernels.

What they disagree on, by rule, and why, is `UNCHECKED`; each entry holds only where its condition does.
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pallas_cases import BACKWARD_BLOCKS, CAUSAL, make_candidate, make_case, make_config, make_problem, make_task

from attnctl.rules.messages import find_messages
from attnctl_kernels.contract import Mask
from attnctl_kernels.families import get_family
from attnctl_kernels.pallas_mgpu.resources import kernels
from attnctl_kernels.rule import Severity, check

jax = pytest.importorskip("jax")
attention_mgpu = pytest.importorskip("jax.experimental.pallas.ops.gpu.attention_mgpu")
launch = pytest.importorskip("attnctl_kernels.pallas_mgpu.launch")

import jax.numpy as jnp  # noqa: E402
from jax.experimental.mosaic.gpu import core as mosaic  # noqa: E402

RULES = get_family("pallas_mgpu").rules()
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


@pytest.fixture(scope="module", autouse=True)
def cuda_versions():
    """The kernel asks which CUDA it is compiled for; a JAX without CUDA cannot say."""
    with pytest.MonkeyPatch.context() as patch:
        if attention_mgpu.cuda_versions is None:
            patch.setattr(attention_mgpu, "cuda_versions", launch._TargetVersions)
        yield


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


def errors(case):
    return {rule.code for rule, _ in check(case, RULES) if rule.severity is Severity.ERROR}


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


def refusal(call, *args):
    """What upstream says where it refuses, below the module's name as in a traceback; None if it does not refuse."""
    try:
        call(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is
        return f"{attention_mgpu.__file__}\n{type(error).__name__}: {error}"
    return None


def require_same_verdict(cases, refused):
    """``refused`` by a rule that we report, and by none that we do not."""
    found = {code: case for case in cases for code in errors(case)}
    if refused is None:
        surprising = [code for code, case in found.items() if not UNCHECKED.get(code, lambda _: False)(case)]
        assert surprising == [], f"upstream accepts what {surprising} forbid"
        return
    assert found, f"upstream refuses what no rule forbids:\n{refused}"
    if all(positive(case) for case in cases):
        told = {rule.code for match in find_messages([refused]) for rule in match.rules}
        assert told & found.keys(), f"{told} explain upstream's message, not {found.keys()}:\n{refused}"


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
        told = {rule.code for match in find_messages([refused]) for rule in match.rules}
        assert told <= ours
        assert told


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


class Lowered:
    """Lowers a call for CUDA and keeps what shared memory its kernels ask for."""

    def __init__(self, monkeypatch):
        self.smem_bytes = []
        counted = mosaic._smem_tree_size
        monkeypatch.setattr(mosaic, "_smem_tree_size", lambda tree: self._keep(counted(tree)))

    def _keep(self, size):
        self.smem_bytes.append(size)
        return size

    def refusal(self, case):
        """What upstream says, if it refuses; ``smem_bytes`` are those of this call's kernels, until one is refused."""
        self.smem_bytes.clear()
        shapes = launch._shapes(case.problem)
        inputs, outputs = (tuple(shapes[name] for name in names) for names in launch._NAMES[case.pass_name])
        task = make_task(case.problem, case.pass_name)
        candidate = make_candidate(case.config)
        return refusal(lambda: launch._lower(task, candidate, inputs, outputs, lowering_platforms=("cuda",)))


@pytest.fixture(scope="module")
def lowered():
    with pytest.MonkeyPatch.context() as patch:
        yield Lowered(patch)


tile = st.sampled_from([64, 128, 192, 256, 320])


@st.composite
def tiled(draw, pass_name):
    """Lengths that the tiles divide, so that only what the device has to offer decides."""
    config = make_config(64, 64, draw(st.integers(2, 4)), wgs=draw(st.integers(1, 3)))
    names = ("block_q", "block_kv") if pass_name == "forward" else BACKWARD_BLOCKS
    config |= {name: draw(tile) for name in names}
    if pass_name == "forward":
        config["pipeline_emitter"] = draw(st.booleans())
    else:
        config |= {draw(st.sampled_from(names)): draw(st.sampled_from([96, 64, 64]))}
    problem = make_problem(
        draw(st.integers(1, 3)) * 5760,  # 2 and 3 groups of every tile; 96, too
        draw(st.integers(1, 3)) * 5760,
        heads=2,
        heads_kv=draw(st.sampled_from([1, 2])),
        head_dim=draw(st.sampled_from([64, 64, 128, 128, 256, 320])),
        dtype=draw(st.sampled_from(["float16"] * 5 + ["bfloat16"])),
    )
    return make_case(problem, config, pass_name)


def require_same_lowering(lowered, case):
    refused = lowered.refusal(case)
    predicted = [each.smem_bytes(case.problem, case.config) for each in kernels(case)]
    if case.problem.dtype == "float16" and "PAL-C004" not in errors(case):
        assert lowered.smem_bytes == predicted[: len(lowered.smem_bytes)]
    require_same_verdict_of_lowering(case, refused)


def require_same_verdict_of_lowering(case, refused):
    found = errors(case)
    if refused is None:
        assert found == set()
        return
    told = {rule.code for match in find_messages([refused]) for rule in match.rules}
    assert told & found, f"{told} explain upstream's message, not {found}:\n{refused}"


@settings(max_examples=24, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=tiled("forward"))
def test_lowered_forward(lowered, case):
    require_same_lowering(lowered, case)


@settings(max_examples=16, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(case=tiled("backward"))
def test_lowered_backward(lowered, case):
    require_same_lowering(lowered, case)

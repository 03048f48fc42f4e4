"""Rules about the device against kernels that the installed JAX lowers for CUDA: verdicts, and bytes of shared memory.

Lowering needs no GPU. The tiles divide the lengths here, so that only what the device has to offer decides.
"""

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pallas_cases import (
    BACKWARD_BLOCKS,
    errors,
    make_candidate,
    make_case,
    make_config,
    make_problem,
    make_task,
    told_by,
)

from attnctl_kernels.pallas_mgpu.resources import kernels

pytest.importorskip("jax")
launch = pytest.importorskip("attnctl_kernels.pallas_mgpu.launch")

from lowered_calls import Lowered  # noqa: E402 - only where there is jax
from pallas_jax import refusal  # noqa: E402 - likewise


@pytest.fixture(scope="module")
def lowered():
    with pytest.MonkeyPatch.context() as patch:
        yield Lowered(patch, launch.LAUNCHER)


# Seconds per example: no shrinking.
SLOW = settings(
    deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
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
    task, candidate = make_task(case.problem, case.pass_name), make_candidate(case.config)
    refused = refusal(lowered.lower, task, candidate)
    predicted = [each.smem_bytes(case.problem, case.config) for each in kernels(case)]
    assert lowered.smem_bytes == predicted[: len(lowered.smem_bytes)]
    found = errors(case)
    if refused is None:
        assert found == set()
    else:
        assert told_by(refused) & found, f"not explained by {sorted(found)}:\n{refused}"


@settings(SLOW, max_examples=12)
@given(case=tiled("forward"))
def test_lowered_forward(lowered, case):
    require_same_lowering(lowered, case)


@settings(SLOW, max_examples=8)
@given(case=tiled("backward"))
def test_lowered_backward(lowered, case):
    require_same_lowering(lowered, case)

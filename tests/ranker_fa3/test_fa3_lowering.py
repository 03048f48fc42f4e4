"""The rules against the kernels as the installed JAX lowers them for CUDA: verdicts, and bytes of shared memory."""

import pytest
from fa3_cases import BACKWARD_BLOCKS, errors, make_candidate, make_case, make_config, make_problem, make_task
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from attnctl_kernels.pallas_mgpu.resources import kernels

pytest.importorskip("jax")
launch = pytest.importorskip("attnctl_kernels.ranker_fa3.launch")

from lowered_calls import Lowered  # noqa: E402 - only where there is jax

from attnctl_kernels.ranker_fa3 import attention  # noqa: E402 - likewise


@pytest.fixture(scope="module")
def lowered():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "_require", lambda *_: None)  # lowering decides, not the rules
        yield Lowered(patch, launch.LAUNCHER)


def refusal(lowered, case):
    """What is said where it is refused."""
    try:
        lowered.lower(make_task(case.problem, case.pass_name), make_candidate(case.config))
    except Exception as error:  # noqa: BLE001 - whatever it is
        return str(error)
    return None


# Seconds per example: no shrinking.
SLOW = settings(
    deadline=None, phases=[Phase.generate], suppress_health_check=[HealthCheck.function_scoped_fixture], database=None
)
tile = st.sampled_from([64, 64, 128, 192, 256, 320])


@st.composite
def tiled(draw, pass_name):
    """Lengths that the tiles divide, so that only what the device has to offer decides."""
    config = make_config(steps=draw(st.integers(2, 4)), wgs=draw(st.integers(1, 3)), backward=None)
    names = ("block_q", "block_kv") if pass_name == "forward" else BACKWARD_BLOCKS
    config |= {name: draw(tile) for name in names}
    if pass_name == "forward":
        config["use_schedule_barrier"] = draw(st.booleans())
    problem = make_problem(
        23040,
        draw(st.integers(0, 23040)),
        heads_kv=draw(st.sampled_from([1, 2])),
        head_dim=draw(st.sampled_from([64, 64, 128, 128, 256])),
        dtype=draw(st.sampled_from(["float16", "bfloat16"])),
    )
    return make_case(problem, config, pass_name)


def require_same_lowering(lowered, case):
    refused = refusal(lowered, case)
    predicted = [each.smem_bytes(case.problem, case.config) for each in kernels(case)]
    assert lowered.smem_bytes == predicted[: len(lowered.smem_bytes)]
    assert (refused is None) == (not errors(case)), f"{sorted(errors(case))} and {refused}"
    assert refused or len(lowered.smem_bytes) == len(predicted)


@settings(SLOW, max_examples=10)
@given(case=tiled("forward"))
def test_lowered_forward(lowered, case):
    require_same_lowering(lowered, case)


@settings(SLOW, max_examples=8)
@given(case=tiled("backward"))
def test_lowered_backward(lowered, case):
    require_same_lowering(lowered, case)

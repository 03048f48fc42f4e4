"""JAX's kernels on a real Hopper GPU: through the worker's own checks, and the stream that both frameworks share."""

import pytest
from pallas_cases import CAUSAL, make_candidate, make_config, make_problem, make_task

from attnctl.gpu.protocol import Hello, Measure, Prepare
from attnctl_kernels.contract import Outcome
from attnctl_kernels.families import get_family

torch = pytest.importorskip("torch")
jax = pytest.importorskip("jax")
launch = pytest.importorskip("attnctl_kernels.pallas_mgpu.launch")
session_module = pytest.importorskip("attnctl.worker.session")

MISSING = launch.LAUNCHER.available("sm_90")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

SMALL = (64, 64, 64, 64)
FORWARD = {
    "head_dim 64": (make_problem(batch_size=2), make_config()),
    "head_dim 128": (make_problem(1024, head_dim=128), make_config(64, 128)),
    "head_dim 256": (make_problem(head_dim=256), make_config(64, 64)),
    "wide tiles": (make_problem(768), make_config(128, 256)),
    "grouped heads": (make_problem(heads=6, heads_kv=2), make_config(64, 128)),
    "fewer queries than keys": (make_problem(256, 1024), make_config(64, 128)),
    "causal": (make_problem(1024, mask=CAUSAL), make_config(64, 128)),
    "one tile of keys": (make_problem(256, 64), make_config()),
    "softmax_scale 1": (make_problem(softmax_scale=1.0), make_config()),
    "emitter": (make_problem(), make_config(64, 128, pipeline_emitter=True)),
    "emitter without barrier": (
        make_problem(head_dim=128),
        make_config(64, 64, 3, pipeline_emitter=True, use_schedule_barrier=False),
    ),
}
BACKWARD = {
    "head_dim 64": (make_problem(batch_size=2), make_config(backward=SMALL)),
    "head_dim 128, two warp groups": (make_problem(head_dim=128), make_config(wgs=2, backward=SMALL)),
    "head_dim 256": (make_problem(head_dim=256), make_config(backward=SMALL)),
    "grouped heads": (make_problem(heads=6, heads_kv=2), make_config(backward=(128, 64, 64, 128))),
    "fewer queries than keys": (make_problem(256, 768), make_config(steps=3, backward=(64, 128, 128, 64))),
    "softmax_scale 1": (make_problem(softmax_scale=1.0), make_config(backward=SMALL)),
}


@pytest.fixture(scope="module")
def session():
    """One worker's session in this process; PyTorch gets its own stream back afterwards."""
    family = get_family("pallas_mgpu")
    session = session_module.Session(family, family.launcher(), lambda *_: None)
    session.hello(Hello(family="pallas_mgpu", arch="sm_90", device="cuda:0"))
    yield session
    torch.cuda.synchronize()
    torch.cuda.set_stream(torch.cuda.default_stream())


def measure(session, problem, config, pass_name):
    session.prepare(Prepare(task=make_task(problem, pass_name)))
    return session.measure(Measure(candidate=make_candidate(config), max_samples=4))


@pytest.mark.parametrize("name", FORWARD)
def test_forward_passes_every_check(session, name):
    result = measure(session, *FORWARD[name], "forward")
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert set(result.check.error) == {"out", "lse"}
    assert result.timing.count == 4


@pytest.mark.parametrize("name", BACKWARD)
def test_backward_passes_every_check(session, name):
    result = measure(session, *BACKWARD[name], "backward")
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert set(result.check.error) == {"dq", "dk", "dv"}


def test_too_much_shared_memory_is_out_of_resources(session):
    """PAL-H002 forbids it; here is what lowering says, and the worker lives on."""
    problem = make_problem(1024, head_dim=128)
    result = measure(session, problem, make_config(64, 256), "forward")
    assert result.outcome is Outcome.OUT_OF_RESOURCES
    assert "298072" in result.reason
    assert not result.poisoned
    assert measure(session, problem, make_config(64, 128), "forward").outcome is Outcome.OK


@pytest.fixture
def bound(session):
    session.prepare(Prepare(task=make_task(make_problem(1024, head_dim=128))))
    setup = session._attempt.setup
    return setup, setup.bind(launch.LAUNCHER, make_candidate(make_config(64, 128)))


def pointers(call):
    return {name: each.unsafe_buffer_pointer() for name, each in call.outputs().items() if name != "lse"}


def test_outputs_are_written_where_the_poison_is(bound):
    setup, call = bound
    before = pointers(call)
    call.poison()
    assert torch.isnan(setup.device.to_torch(call.outputs()["out"])).all()
    call.run()
    assert pointers(call) == before
    assert torch.isfinite(setup.device.to_torch(call.outputs()["out"])).all()


def test_inputs_are_shared_and_in_order_without_waiting(bound):
    """1000 runs with changing inputs: each sees what was written just before it, and not what is written after."""
    setup, call = bound
    assert all(
        array.unsafe_buffer_pointer() == tensor.data_ptr()
        for array, tensor in zip(call._inputs, (setup.live.q, setup.live.k, setup.live.v), strict=True)
    )
    seen = []
    for step in range(1000):
        setup.live.v.fill_(step)
        call.run()
        seen.append(setup.device.to_torch(call.outputs()["out"]).float().mean())
    assert torch.stack(seen).round().tolist() == list(range(1000))


def test_torch_works_on_the_stream_that_jax_launches_on(session):
    from attnctl.worker.xla_stream import launch_stream

    assert torch.cuda.current_stream().cuda_stream == launch_stream(jax.devices("cuda")[0])
    assert torch.cuda.current_stream() != torch.cuda.default_stream()

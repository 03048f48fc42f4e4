"""The kernels on a real Hopper GPU: through the worker's own checks, and as a function with bounds of all kinds."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip("jax")
import jax
import jax.numpy as jnp
from fa3_cases import (
    gradients,
    make_arrays,
    make_candidate,
    make_config,
    make_problem,
    make_task,
    reference,
    require_close,
)

from attnctl.gpu.protocol import Hello, Measure, Prepare
from attnctl_kernels.contract import Mask, Outcome
from attnctl_kernels.families import get_family
from attnctl_kernels.ranker_fa3.attention import attention, default_config

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.ranker_fa3.launch")
session_module = pytest.importorskip("attnctl.worker.session")

MISSING = launch.LAUNCHER.available("sm_90")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

WIDE = make_config(64, 128, backward=(64, 64, 64, 64))
MEASURED = {
    "head_dim 64": (make_problem(batch_size=2), make_config()),
    "head_dim 128": (make_problem(1024, 700, head_dim=128), WIDE),
    "head_dim 256": (make_problem(head_dim=256), make_config(wgs=1)),
    "float16, grouped heads": (make_problem(768, 500, heads=6, heads_kv=2, dtype="float16"), WIDE),
    "dense": (make_problem(1024, head_dim=128, mask=Mask()), WIDE),
    "no history": (make_problem(512, 0), make_config(128, 64, 3, wgs=1, backward=(128, 64, 128, 64))),
    "no barrier": (make_problem(1024, 321, head_dim=128), make_config(64, 128, use_schedule_barrier=False)),
}


@pytest.fixture(scope="module")
def session():
    """One worker's session in this process; PyTorch gets its own stream back afterwards."""
    family = get_family("ranker_fa3")
    session = session_module.Session(family, family.launcher(), lambda *_: None)
    session.hello(Hello(family="ranker_fa3", arch="sm_90", device="cuda:0"))
    yield session
    torch.cuda.synchronize()
    torch.cuda.set_stream(torch.cuda.default_stream())


@pytest.mark.parametrize("pass_name", ["forward", "backward"])
@pytest.mark.parametrize("name", MEASURED)
def test_passes_every_check(session, name, pass_name):
    problem, config = MEASURED[name]
    session.prepare(Prepare(task=make_task(problem, pass_name)))
    result = session.measure(Measure(candidate=make_candidate(config), max_samples=4))
    assert (result.outcome, result.reason) == (Outcome.OK, "")
    assert result.timing.count == 4


def random_bounds(seed, rows, seqlen):
    return np.sort(np.random.default_rng(seed).integers(0, seqlen + 1, (rows, 4)), axis=1).astype(np.int32)


FIXED = [
    [0, 512, 512, 512],
    [0, 0, 0, 512],
    [5, 70, 75, 480],
    [511, 512, 512, 512],
    [0, 0, 63, 64],
    [0, 0, 0, 0],
]


def compare(bound, config, *, heads=2, heads_kv=2, head_dim=64, dtype="bfloat16", seed=0, z_loss_weight=0.0, **how):
    arrays = make_arrays(seed, (len(bound), 512, head_dim), heads, heads_kv, dtype)
    scale = how.pop("softmax_scale", head_dim**-0.5)
    own = partial(attention, bound=bound, config=config, softmax_scale=scale, return_lse=True, **how)
    got = jax.jit(partial(gradients, partial(own, z_loss_weight=z_loss_weight)))(*arrays)
    with jax.default_matmul_precision("highest"):
        want = gradients(
            partial(reference, bound=np.asarray(bound), scale=scale, **how), *arrays, z_loss_weight=z_loss_weight
        )
    require_close(got, want, np.asarray(bound))
    return got


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("group", [1, 4, 8])
def test_bounds_of_all_kinds(session, group, dtype):
    compare(np.array(FIXED, np.int32), make_config(), heads=8, heads_kv=8 // group, dtype=dtype)


@pytest.mark.parametrize("seed", range(12))
def test_random_bounds_and_blocks(session, seed):
    rng = np.random.default_rng(seed)
    wgs, rows = int(rng.integers(1, 3)), [int(each) for each in rng.choice([64, 128], 6)]
    config = make_config(*rows[:2], int(rng.integers(2, 4)), wgs=wgs, backward=rows[2:])
    compare(random_bounds(seed, 3, 512), config, seed=seed)


@pytest.mark.parametrize("cap_method", ["tanh", "soft_sign"])
def test_caps_and_z_loss(session, cap_method):
    how = {"cap": 2.0, "cap_method": cap_method, "softmax_scale": 0.3, "z_loss_weight": 0.05}
    compare(random_bounds(3, 3, 512), default_config(128), head_dim=128, **how)


def test_bounds_known_only_on_the_device(session):
    """Out of order, they mean what they mean when each is raised to its predecessor."""
    arrays = make_arrays(0, (1, 512, 64), 2, 2)[:3]
    run = jax.jit(partial(attention, config=make_config(), return_lse=True))
    for given, meant in (([[0, 300, 200, 900]], [[0, 300, 300, 512]]), ([[-5, 100, 50, 80]], [[0, 100, 100, 100]])):
        out, lse = run(*arrays, jnp.array(given, jnp.int32))
        want, want_lse = attention(*arrays, np.array(meant, np.int32), make_config(), return_lse=True)
        assert (out == want).all()
        assert ((lse == want_lse) | (jnp.isneginf(lse) & jnp.isneginf(want_lse))).all()


def test_runs_are_identical(session):
    bound = random_bounds(5, 2, 512)
    first = compare(bound, make_config(), heads=4, heads_kv=1)
    for _ in range(5):
        again = compare(bound, make_config(), heads=4, heads_kv=1)
        assert all((again[name] == first[name]).all() for name in ("out", "dq", "dk", "dv"))

"""The kernels on a real Hopper GPU: through the worker's own checks, and as a function with bounds of all kinds.

Nearly all of the time is spent in compilers, a core for each program: ``pytest -n 8``.
"""

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
    "head_dim 192": (make_problem(640, 400, head_dim=192), make_config(wgs=1)),
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


SEQLEN = 512
FIXED = [
    [0, 512, 512, 512],
    [0, 0, 0, 512],
    [5, 70, 75, 480],
    [511, 512, 512, 512],
    [0, 0, 63, 64],
    [0, 0, 0, 0],
]
CPU = jax.devices("cpu")[0]


def random_bounds(seed, rows):
    return np.sort(np.random.default_rng(seed).integers(0, SEQLEN + 1, (rows, 4)), axis=1).tolist()


class Compared:
    """One program for whatever bounds, beside the fp32 reference as XLA compiles it for the CPU, which is quicker."""

    def __init__(self, config, *, heads=2, heads_kv=2, head_dim=64, dtype="bfloat16", z_loss_weight=0.0, **how):
        self.shape = heads, heads_kv, head_dim, dtype
        how = {"softmax_scale": head_dim**-0.5} | how
        own = partial(attention, config=config, return_lse=True, z_loss_weight=z_loss_weight, **how)
        self.own = jax.jit(lambda *arrays, bound: gradients(partial(own, bound=bound), *arrays))
        exact = partial(reference, scale=how.pop("softmax_scale"), **how)
        self.reference = jax.jit(
            lambda *arrays, bound: gradients(partial(exact, bound=bound), *arrays, z_loss_weight=z_loss_weight)
        )

    def require_close(self, given, meant=None, *, seed=0):
        """``meant``: the bounds in order, where those that are given are not."""
        heads, heads_kv, head_dim, dtype = self.shape
        given, meant = np.array(given, np.int32), np.array(meant or given, np.int32)
        with jax.default_device(CPU):
            arrays = tuple(map(np.asarray, make_arrays(seed, (len(given), SEQLEN, head_dim), heads, heads_kv, dtype)))
            want = self.reference(*arrays, bound=meant)
        got = jax.tree.map(np.asarray, self.own(*arrays, bound=given))
        with jax.default_device(CPU):
            require_close(got, want, meant)
        return got


@pytest.mark.parametrize(("group", "dtype"), [(1, "bfloat16"), (4, "float16"), (8, "bfloat16"), (8, "float16")])
def test_bounds_of_all_kinds(group, dtype):
    compared = Compared(make_config(), heads=8, heads_kv=8 // group, dtype=dtype)
    compared.require_close(FIXED)
    compared.require_close(random_bounds(group, len(FIXED)), seed=1)


@pytest.mark.parametrize(
    "config",
    [
        make_config(64, 64, 3, backward=(64, 64, 128, 128)),
        make_config(64, 128, 2, wgs=1, backward=(64, 128, 128, 128)),
        make_config(128, 64, 2, backward=(64, 128, 128, 128)),
        make_config(128, 64, 2, backward=(128, 64, 128, 128)),
        make_config(128, 128, 2, backward=(128, 128, 128, 128)),
        make_config(128, 128, 3, wgs=1, backward=(128, 64, 64, 128)),
    ],
    ids=lambda config: "-".join(map(str, config.values())),
)
def test_random_bounds(config):
    compared = Compared(config)
    for seed in range(8):
        compared.require_close(random_bounds(seed, 3), seed=seed)


@pytest.mark.parametrize("cap_method", ["tanh", "soft_sign"])
def test_caps_and_z_loss(cap_method):
    how = {"cap": 2.0, "cap_method": cap_method, "softmax_scale": 0.3, "z_loss_weight": 0.05}
    Compared(default_config(128), head_dim=128, **how).require_close(random_bounds(3, 3))


def test_bounds_out_of_order_and_runs_that_are_identical():
    """Bounds mean what they mean when each is raised to its predecessor."""
    compared = Compared(make_config(), heads=4, heads_kv=1)
    compared.require_close([[0, 300, 200, 900], [-5, 100, 50, 80]], [[0, 300, 300, 512], [0, 100, 100, 100]])
    bounds = random_bounds(5, 2)
    first = compared.require_close(bounds)
    for _ in range(5):
        again = compared.require_close(bounds)
        assert all((again[name] == first[name]).all() for name in ("out", "dq", "dk", "dv"))


def bfloat16(seed, *shapes):
    """Arrays that are made where they are used: on the device."""
    keys = jax.random.split(jax.random.key(seed), len(shapes))
    return [jax.random.normal(key, shape, jnp.bfloat16) for key, shape in zip(keys, shapes, strict=True)]


def test_131072_tokens():
    """Output, LSE and dQ of some rows, against all that these see."""
    seqlen, history, scale = 131072, 130001, 0.125
    bound = np.array([[0, history, history, seqlen - 3]], np.int32)
    arrays = bfloat16(0, *[(1, seqlen, 1, 64)] * 4)
    own = partial(attention, bound=bound, config=make_config(), softmax_scale=scale, return_lse=True)
    got = jax.jit(partial(gradients, own))(*arrays)
    rows = np.array([0, 77777, history - 1, history, seqlen - 4])
    q, k, v, dout = (each[0, :, 0].astype(jnp.float32) for each in arrays)
    seen = jnp.arange(seqlen) < history
    with jax.default_matmul_precision("highest"):
        scores = jnp.where(seen | (jnp.arange(seqlen) == rows[:, None]), scale * q[rows] @ k.T, -jnp.inf)
        weights = jax.nn.softmax(scores, axis=-1)
        out = weights @ v
        ds = weights * (dout[rows] @ v.T - (out * dout[rows]).sum(-1, keepdims=True))
        wanted = {"out": out, "dq": scale * ds @ k}
    for name, exact in wanted.items():
        ours, theirs = np.asarray(got[name][0, rows, 0], np.float32), np.asarray(exact)
        assert np.abs(ours - theirs).max() < 0.02 * np.abs(theirs).max(), name
    lse = np.asarray(jax.nn.logsumexp(scores, axis=-1))
    assert np.abs(np.asarray(got["lse"][0, 0, rows]) - lse).max() < 1e-3
    assert not any(got[name][0, -3:].any() for name in ("out", "dq", "dk", "dv"))


def test_batch_rows_that_begin_2_to_the_31_elements_apart():
    shape = 2, 131072, 128, 128
    if torch.cuda.mem_get_info()[0] < 48 << 30:
        pytest.skip("needs 48 GiB of GPU memory")
    bound, few = np.array([[0, 70, 70, 300], [5, 200, 210, 700]], np.int32), (slice(1, 2), slice(1024), slice(126, 128))
    own = partial(attention, config=make_config(), softmax_scale=0.1)
    arrays = bfloat16(0, *[shape] * 3)
    out = jax.jit(partial(own, bound=bound))(*arrays)
    near = jax.jit(partial(own, bound=bound[1:]))(*(each[few] for each in arrays))
    assert jnp.array_equal(out[few], near)
    assert not out[1, 700:].any()

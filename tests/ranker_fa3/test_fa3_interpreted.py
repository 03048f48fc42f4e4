"""The kernels as JAX's interpreter runs them on the CPU, races and barriers watched, against the fp32 reference."""

from functools import partial

import numpy as np
import pytest

pytest.importorskip("jax")

from fa3_cases import gradients, make_arrays, make_config, reference, require_close
from fa3_interpreter import interpreted

from attnctl_kernels.ranker_fa3.attention import attention

pytestmark = pytest.mark.filterwarnings("ignore:core.Jaxpr is missing a DebugInfo:DeprecationWarning")

EDGES = [
    [0, 128, 128, 128],  # history only
    [0, 0, 0, 128],  # no history
    [5, 70, 75, 120],  # ragged, with padding before, between and after
    [127, 128, 128, 128],  # one token
    [0, 0, 63, 64],  # one candidate
    [0, 0, 0, 0],  # padding only
]
WIDE = [[3, 301, 301, 380]]


def require_right(bound, config, *, heads=1, heads_kv=1, seqlen=128, head_dim=64, dtype="bfloat16", z_loss=0.0, **how):
    arrays = make_arrays(len(bound) + heads, (len(bound), seqlen, head_dim), heads, heads_kv, dtype)
    bound = np.array(bound, np.int32)
    scale = how.pop("softmax_scale", head_dim**-0.5)
    own = partial(attention, bound=bound, config=config, softmax_scale=scale, return_lse=True, **how)
    got = interpreted(partial(gradients, partial(own, z_loss_weight=z_loss)), *arrays)
    want = gradients(partial(reference, bound=bound, scale=scale, **how), *arrays, z_loss_weight=z_loss)
    require_close(got, want, bound)


def test_bounds_of_all_kinds():
    require_right(EDGES, make_config())


def test_rings_that_go_round():
    require_right(WIDE, make_config(), seqlen=384)


@pytest.mark.parametrize(
    "config",
    [
        make_config(64, 128, backward=(128, 128, 64, 128), wgs=1),
        make_config(128, 64, 3, backward=(64, 64, 128, 64), wgs=1, use_schedule_barrier=False),
    ],
    ids=["wide steps", "more own keys than stages hold"],
)
def test_blocks_of_other_sizes(config):
    require_right([[70, 170, 170, 256]], config, seqlen=256)


def test_grouped_heads():
    require_right([[0, 40, 40, 110]], make_config(), heads=8)


@pytest.mark.parametrize("cap_method", ["tanh", "soft_sign"])
def test_caps_and_z_loss(cap_method):
    how = {"cap": 2.0, "cap_method": cap_method, "softmax_scale": 0.3}
    require_right([[10, 90, 90, 128]], make_config(), dtype="float16", z_loss=0.05, **how)

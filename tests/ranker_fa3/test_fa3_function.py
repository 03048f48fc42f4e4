"""What `attention` says of arguments that do not fit, and which blocks it visits."""

import itertools
from functools import partial

import pytest

pytest.importorskip("jax")

import jax
import jax.numpy as jnp
import numpy as np
from fa3_cases import make_config
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl_kernels.ranker_fa3.attention import attention
from attnctl_kernels.ranker_fa3.sm90.walk import Bounds, HistoryWalk, QueryWalk, own_blocks


def arrays(seqlen=256, heads=2, heads_kv=1, head_dim=64, dtype="bfloat16"):
    q = jax.ShapeDtypeStruct((1, seqlen, heads, head_dim), dtype)
    k = jax.ShapeDtypeStruct((1, seqlen, heads_kv, head_dim), dtype)
    return q, k, k


def traced(*args, bound=((0, 100, 100, 256),), config=None, gradient=False, **how):
    def loss(q, k, v):
        return attention(q, k, v, np.array(bound, np.int32), config, **how).astype(jnp.float32).sum()

    return jax.eval_shape(jax.grad(loss, argnums=(0, 1, 2)) if gradient else loss, *args)


REFUSED = {
    "a length": ({"seqlen": 1088}, {"config": make_config()}, "PAL-F006: seqlen_q=1088.*seqlen_q=1024.*seqlen_q=1152"),
    "a length for the keys": (
        {"seqlen": 640},
        {"config": make_config(64, 256)},
        "PAL-F005: seqlen_k=640.*seqlen_k=512.*seqlen_k=768",
    ),
    "heads": ({"heads": 3, "heads_kv": 2}, {}, "PAL-F003"),
    "head_dim": ({"head_dim": 96}, {}, "PAL-F004"),
    "shared memory": ({"head_dim": 128, "seqlen": 1024}, {"config": make_config(64, 256, backward=None)}, "PAL-H002"),
    "no backward blocks": ({}, {"config": make_config(backward=None), "gradient": True}, "PAL-B002"),
    "a block": ({}, {"config": make_config(96)}, "PAL-C001: .*block_q=64 or block_q=128"),
    "causal": ({}, {"config": {"causal": True}}, "no parameter causal"),
    "another kernel's parameter": ({}, {"config": {"pipeline_emitter": True}}, "no parameter pipeline_emitter"),
    "float32": ({"dtype": "float32"}, {}, "q is float32; it must be bfloat16 or float16"),
    "a cap": ({}, {"cap": 30.0, "cap_method": "softsign"}, "cap_method is 'softsign'; it must be tanh or soft_sign"),
    "a cap of 0": ({}, {"cap": 0.0}, "cap is 0.0"),
    "a scale": ({}, {"softmax_scale": -1.0}, "softmax_scale is -1.0"),
    "a z-loss": ({}, {"z_loss_weight": -1.0}, "z_loss_weight is -1.0"),
    "bounds behind the end": ({}, {"bound": [[0, 257, 257, 257]]}, r"row 0 is \[0, 257, 257, 257\]; .* 0 to 256"),
    "bounds out of order": ({}, {"bound": [[0, 100, 90, 256]]}, "must ascend"),
    "one bound for all": ({}, {"bound": [0, 100, 100, 256]}, r"of shape \(1, 4\)"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    given_arrays, how, words = REFUSED[name]
    given_arrays = {"seqlen": 256, **given_arrays}
    if "bound" not in how:
        how = {**how, "bound": [[0, 100, 100, given_arrays["seqlen"]]]}
    with pytest.raises(ValueError, match=words):
        traced(*arrays(**given_arrays), **how)


def test_k_of_another_length_is_refused():
    q, _, v = arrays()
    k = jax.ShapeDtypeStruct((1, 128, 1, 64), q.dtype)
    with pytest.raises(ValueError, match=r"k is \(1, 128, 1, 64\); beside q of .* it must be \(1, 256, 1, 64\)"):
        traced(q, k, v)


def test_gradients_have_the_shapes_of_their_inputs():
    given_arrays = arrays()
    assert [each.shape for each in traced(*given_arrays, gradient=True)] == [each.shape for each in given_arrays]


@st.composite
def ascending(draw):
    return sorted(draw(st.lists(st.integers(0, 512), min_size=4, max_size=4)))


blocks = st.sampled_from([64, 128])


@partial(jax.jit, static_argnums=1)
def walks(bounds, block, begin, end):
    """What the three kernels walk through, as far as 16 steps."""
    bounds = Bounds(*bounds)
    steps = jnp.arange(16)
    keys, queries = HistoryWalk.of(bounds, block, True), QueryWalk.of(bounds, block)
    own = own_blocks(bounds, begin, end, block)
    return keys, jax.vmap(keys.block)(steps), queries, jax.vmap(queries.block)(steps), own


@settings(deadline=None, max_examples=200)
@given(ascending(), blocks, st.integers(0, 3))
def test_every_block_is_visited_once(bound, block, tile):
    """Against sets of tokens: no block twice, none in vain, and a block without a mask holds history only."""
    begin, end = tile * 128, tile * 128 + 128
    keys, key_blocks, queries, query_blocks, (first, count) = walks(jnp.array(bound, jnp.int32), block, begin, end)
    history, candidates = set(range(*bound[:2])), set(range(*bound[2:]))

    def holding(tokens):
        return sorted({token // block for token in tokens})

    visited = key_blocks[: int(keys.steps)].tolist()
    assert sorted(visited) == holding(history)
    for step, number in enumerate(visited):
        assert (set(range(number * block, number * block + block)) <= history) == (step >= int(keys.ragged))
    assert sorted(query_blocks[: int(queries.steps)].tolist()) == holding(history | candidates)
    own = candidates & set(range(begin, end))
    assert list(itertools.islice(itertools.count(int(first)), int(count))) == holding(own)

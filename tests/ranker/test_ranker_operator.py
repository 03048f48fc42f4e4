"""What the operator says about inputs that do not fit. Fake tensors: no device is needed."""

import pytest

torch = pytest.importorskip("torch")
from torch._subclasses.fake_tensor import FakeTensorMode, unset_fake_temporarily  # noqa: E402

from attnctl_kernels import ranker  # noqa: E402
from attnctl_kernels.contract import Mask  # noqa: E402
from attnctl_kernels.ranker import gradient, op  # noqa: E402
from attnctl_kernels.ranker.backward_config import default_config  # noqa: E402
from attnctl_kernels.ranker.checks import aligned, check_numbers, read_config, write_config  # noqa: E402
from attnctl_kernels.ranker.config import HEAD_DIMS  # noqa: E402


def make(*, seqlen=100, num_heads=4, head_dim=128, dtype=torch.bfloat16, device="cuda"):
    return torch.empty(2, seqlen, num_heads, head_dim, dtype=dtype, device=device)


def test_a_mask_may_have_other_lengths_of_queries_and_keys():
    table = torch.empty(1, 100, 2, dtype=torch.int32, device="cuda")  # for all batch rows
    out = call(bounds=None, mask=table, k=make(seqlen=300), v=make(seqlen=300), logit_cap=30.0)
    assert out.shape == (2, 100, 4, 128)


def call(**changes):
    arguments = {name: make() for name in "qkv"} | {"bounds": torch.empty(2, 4, dtype=torch.int32, device="cuda")}
    return ranker.attention(**(arguments | changes))


@pytest.fixture(autouse=True)
def fake():
    with FakeTensorMode():
        yield


def test_outputs_have_the_shapes_of_the_inputs():
    out, lse = call(return_lse=True)
    assert (out.shape, out.dtype) == ((2, 100, 4, 128), torch.bfloat16)
    assert (lse.shape, lse.dtype) == ((2, 4, 100), torch.float32)


FAULTS = {
    "rank": (lambda: {"q": torch.empty(2, 100, 512)}, r"q has shape \(2, 100, 512\); it must be \(batch_size"),
    "dtype": (lambda: {"k": make(dtype=torch.float32)}, r"k is torch.float32; q, k and v must all be bfloat16"),
    "mixed": (lambda: {"v": make(dtype=torch.float16)}, r"v is torch.float16"),
    "device": (lambda: {"q": make(device="cpu")}, r"q is on cpu; q, k and v must be on one CUDA device"),
    "strides": (
        lambda: {"k": torch.empty_strided((2, 100, 4, 128), (51300, 513, 128, 1), dtype=torch.bfloat16, device="cuda")},
        r"k has strides \(51300, 513, 128, 1\).*pass k.contiguous\(\)",
    ),
    "head_dim": (
        lambda: {name: make(head_dim=80) for name in "qkv"},
        r"head_dim is 80; the kernel takes 64, 96, 128",
    ),
    "length": (lambda: {"k": make(seqlen=99), "v": make(seqlen=99)}, r"both must be \(batch_size=2, seqlen=100"),
    "heads": (lambda: {"k": make(num_heads=3), "v": make(num_heads=3)}, r"4 query heads do not divide into 3"),
    "bounds": (lambda: {"bounds": torch.empty(2, 4, device="cuda")}, r"bounds is \(2, 4\) torch.float32 .* \(2, 4\)"),
    "config": (lambda: {"config": {"tile_m": 96}}, r"tile_m is 96; it must be one of 64, 128, 192"),
    "unknown": (lambda: {"config": {"tile_k": 96}}, r"unknown tile_k; known are tile_m, tile_n"),
    "memory": (lambda: {"config": {"tile_m": 128, "tile_n": 256, "stages": 4}}, r"bytes of shared memory"),
    "schedule": (
        lambda: {"config": {"schedule": "last"}},
        r"schedule is last; it must be one of linear, ",
    ),
    "neither": (lambda: {"bounds": None}, r"give either bounds, for history and candidates, or mask"),
    "both": (lambda: {"mask": Mask(pattern="causal")}, r"give either bounds"),
    "gaps": (
        lambda: {"bounds": None, "mask": Mask(pattern="blocks", block_size=(50, 50), rows=((0, 1), (0,)))},
        r"mask pattern blocks: its rows do not see one range",
    ),
    "table": (
        lambda: {"bounds": None, "mask": torch.empty(2, 99, 2, dtype=torch.int32, device="cuda")},
        r"mask is \(2, 99, 2\) torch.int32 .* \(2, 100, 2\)",
    ),
    "batches of the table": (
        lambda: {"bounds": None, "mask": torch.empty(3, 100, 2, dtype=torch.int32, device="cuda")},
        r"mask is \(3, 100, 2\) torch.int32 .* \(2, 100, 2\)",
    ),
    "no tensor": (lambda: {"k": None}, r"k is a NoneType; q, k and v must be tensors"),
    "bounds as a list": (lambda: {"bounds": [[0, 50, 50, 100]] * 2}, r"bounds is a list; .* \(2, 4\) torch.int32"),
    "a mask's name": (lambda: {"bounds": None, "mask": "causal"}, r"mask is a str; .* \(2, 100, 2\) torch.int32"),
    "rank beside a mask": (
        lambda: {"q": torch.empty((), device="cuda"), "bounds": None, "mask": Mask(pattern="causal")},
        r"q has shape \(\); it must be \(batch_size",
    ),
    "bounds for all rows": (
        lambda: {"bounds": torch.empty(1, 4, dtype=torch.int32, device="cuda").expand(2, 4)},
        r"bounds has strides \(0, 1\): pass bounds.clone\(\).contiguous\(\)",
    ),
    "config of two passes": (lambda: {"config": {"forward": {"tile_m": 128}}}, r"config: forward is .* of one pass"),
    "config as text": (lambda: {"config": "tile_m=128"}, r"config is a str; it must be a mapping"),
    "two values in one": (lambda: {"config": {"schedule": "linear tile_m=192"}}, r"schedule is linear tile_m=192; it"),
    "a word for a switch": (
        lambda: {"config": {"persistent": "no"}},
        r"persistent is no; it must be one of False, True",
    ),
    "keys for three groups": (
        lambda: {"config": {"tile_m": 192, "tile_n": 208}},
        r"tile_n is 208; with tile_m 192 it is at most 192",
    ),
    "cap": (lambda: {"logit_cap": 0.0}, r"logit_cap is 0.0; it must be positive and finite"),
    "scale": (lambda: {"softmax_scale": 0.0}, r"softmax_scale is 0.0; it must be positive and finite"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named_with_what_would_work(name):
    changes, message = FAULTS[name]
    with pytest.raises(ValueError, match=message):
        call(**changes())


BACKWARD_FAULTS = {
    "tile": ({"tile_m": 80}, r"backward_config: tile_m is 80; it must be one of 64, 128"),
    "unknown": ({"tile_k": 80}, r"backward_config: unknown tile_k; known are tile_m, tile_n, stages"),
    "memory": ({"stages": 6}, r"take 364544 bytes of shared memory, the limit is 232448"),
}


@pytest.mark.parametrize("name", BACKWARD_FAULTS)
def test_fault_of_the_backward_config_is_named(name):
    config, message = BACKWARD_FAULTS[name]
    with pytest.raises(ValueError, match=message):
        call(backward_config=config)


def test_backward_config_that_leaves_a_warp_group_without_work():
    inputs = {name: make(head_dim=64) for name in "qkv"}
    with pytest.raises(ValueError, match=r"tile_m 64 is too small for tile_n 128 at head_dim 64"):
        call(backward_config={"tile_m": 64}, **inputs)


def test_backward_config_with_more_keys_than_two_warp_groups_share():
    inputs = {name: make(head_dim=192) for name in "qkv"}
    with pytest.raises(ValueError, match=r"tile_n is 128; it must be one of 64$"):
        call(backward_config={"tile_n": 128}, **inputs)


ONE = {  # of what one element are the strides odd
    "batch row": ((1, 100, 4, 128), (7, 512, 128, 1)),
    "row": ((1, 1, 4, 128), (7, 9, 128, 1)),
    "head": ((2, 100, 1, 128), (12800, 128, 7, 1)),
}


@pytest.mark.parametrize("name", ONE)
def test_strides_that_mean_nothing_do_not_matter(name):
    """PyTorch calls such tensors contiguous: a caller could not mend them."""
    shape, strides = ONE[name]
    x = torch.empty_strided(shape, strides, dtype=torch.bfloat16, device="cuda")
    assert x.is_contiguous()
    bounds = torch.empty_strided((shape[0], 4), (5 if shape[0] == 1 else 4, 1), dtype=torch.int32, device="cuda")
    assert call(q=x, k=x, v=x, bounds=bounds).shape == shape
    assert all(stride % 8 == 0 for stride in aligned(x).stride()[:-1])


@pytest.mark.parametrize("shape", [(0, 100, 4, 64), (2, 0, 4, 64), (2, 100, 4, 64)])
def test_where_there_is_no_key_no_kernel_runs(shape):
    with unset_fake_temporarily():
        q, k = torch.ones(shape, dtype=torch.bfloat16), torch.ones(shape[0], 0, 4, 64, dtype=torch.bfloat16)
        table = torch.zeros(*shape[:2], 2, dtype=torch.int32)
        out, lse = op._forward._init_fn(q, k, k, table, 0.125, None, "", None)
        assert (out.shape, out.any().item()) == (shape, False)
        assert torch.isneginf(lse).all()
        given = (q, k, k, out, torch.ones_like(q), lse, None, table, 0.125, None, "")
        assert not any(x.any() for x in gradient.backward._init_fn(*given))


def test_keys_that_no_query_meets_have_gradients_of_zero():
    with unset_fake_temporarily():
        q, k = torch.ones(2, 0, 4, 64, dtype=torch.bfloat16), torch.ones(2, 9, 4, 64, dtype=torch.bfloat16)
        table, lse = torch.zeros(2, 0, 2, dtype=torch.int32), torch.zeros(2, 4, 0)
        dq, *others = gradient.backward._init_fn(q, k, k, q, q, lse, None, table, 0.125, None, "")
        assert dq.shape == q.shape
        assert all(x.shape == k.shape and not x.any() for x in others)


def test_strides_that_mean_something_are_left_alone():
    x = make().transpose(1, 2)
    assert aligned(x) is x


@pytest.mark.parametrize("head_dim", HEAD_DIMS)
def test_every_head_dim_has_a_backward_pass(head_dim):
    assert read_config(gradient.complete(head_dim, "")) == default_config(head_dim)


def test_gradients_of_masks_have_the_shapes_of_the_inputs():
    q, k, table = make(), make(seqlen=300, num_heads=2), torch.empty(1, 100, 2, dtype=torch.int32, device="cuda")
    out, lse = call(bounds=None, mask=table, q=q, k=k, v=k, return_lse=True)
    found = gradient.backward(q, k, k, out, out, lse, None, table.expand(2, -1, -1), 0.1, None, None)
    assert [each.shape for each in found] == [q.shape, k.shape, k.shape]


def test_a_config_can_be_written_in_a_compiled_program():
    def length(x, config):
        check_numbers(softmax_scale=0.1, logit_cap=None)
        return x + len(write_config(config))

    config = {"tile_n": 64, "schedule": "longest_first", "balanced": True}
    assert read_config(write_config(config)) == config
    with unset_fake_temporarily():
        compiled = torch.compile(length, backend="eager", fullgraph=True)
        assert int(compiled(torch.zeros(1), config)) == len(write_config(config))

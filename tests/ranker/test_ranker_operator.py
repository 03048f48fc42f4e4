"""What the operator says about inputs that do not fit. Fake tensors: no device is needed."""

import pytest

torch = pytest.importorskip("torch")
from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

from attnctl_kernels import ranker  # noqa: E402


def make(*, seqlen=100, num_heads=4, head_dim=128, dtype=torch.bfloat16, device="cuda"):
    return torch.empty(2, seqlen, num_heads, head_dim, dtype=dtype, device=device)


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
    "head_dim": (lambda: {name: make(head_dim=96) for name in "qkv"}, r"head_dim is 96; the kernel takes 64 and 128"),
    "length": (lambda: {"k": make(seqlen=99), "v": make(seqlen=99)}, r"both must be \(batch_size=2, seqlen=100"),
    "heads": (lambda: {"k": make(num_heads=3), "v": make(num_heads=3)}, r"4 query heads do not divide into 3"),
    "bounds": (lambda: {"bounds": torch.empty(2, 4, device="cuda")}, r"bounds is \(2, 4\) torch.float32 .* \(2, 4\)"),
    "config": (lambda: {"config": {"tile_m": 96}}, r"tile_m is 96; it must be one of 64, 128, 192"),
    "unknown": (lambda: {"config": {"tile_k": 96}}, r"unknown tile_k; known are tile_m, tile_n"),
    "memory": (lambda: {"config": {"tile_n": 256}}, r"bytes of shared memory"),
    "scale": (lambda: {"softmax_scale": 0.0}, r"softmax_scale is 0.0; it must be positive and finite"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_fault_is_named_with_what_would_work(name):
    changes, message = FAULTS[name]
    with pytest.raises(ValueError, match=message):
        call(**changes())


def test_gradients_are_refused():
    with pytest.raises(RuntimeError, match="no backward pass yet"):
        call(q=make().requires_grad_())
    with torch.no_grad():
        call(q=make().requires_grad_())

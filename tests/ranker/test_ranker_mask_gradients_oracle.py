"""The formulas that GPU tests of masks hold gradients against, and what they say of wrong ones. No device is needed."""

import math

import pytest

torch = pytest.importorskip("torch")

from ranker_mask_gradients import Call, expected, faults  # noqa: E402
from ranker_tables import tables  # noqa: E402

TABLES = dict(tables(150, 130, 3))


def call_of(name, cap=None):
    table = torch.from_numpy(TABLES[name])[None]
    return Call(table, 130, 2, 4, 2, 64, torch.bfloat16, cap=cap, name=name)


def by_autograd(call, inputs):
    leaves = [x.double().requires_grad_() for x in inputs[:3]]
    k, v = (x.repeat_interleave(2, dim=2) for x in leaves[1:])
    scores = torch.einsum("bihd,bjhd->bhij", leaves[0], k) * call.scale
    if call.cap is not None:
        scores = call.cap * torch.tanh(scores / call.cap)
    seen = call.sees("cpu")[:, None]
    weights = scores.exp() * seen
    weights = weights / weights.sum(-1, keepdim=True).clamp(min=1e-300)
    out = torch.einsum("bhij,bjhd->bihd", weights, v)
    return torch.autograd.grad((out * inputs[3].double()).sum(), leaves)


@pytest.mark.parametrize("cap", [None, 3.0])
@pytest.mark.parametrize("name", TABLES)
def test_they_are_the_gradients_of_attention(name, cap):
    call = call_of(name, cap)
    inputs = call.tensors("cpu")
    for found, wanted in zip(expected(call, *inputs), by_autograd(call, inputs), strict=True):
        torch.testing.assert_close(found.double(), wanted, rtol=1e-4, atol=1e-5)


def test_gradients_that_are_rounded_pass_and_others_do_not():
    call = call_of("causal")
    wanted = expected(call, *call.tensors("cpu"))
    rounded = [x.to(call.dtype) for x in wanted]
    assert not faults(call, rounded, wanted)
    for n, name in enumerate(("dq", "dk", "dv")):
        wrong = [x.clone() for x in rounded]
        wrong[n][1, 64:100, 0] *= 2
        assert any(line.startswith(name) for line in faults(call, wrong, wanted))
        wrong[n] = torch.full_like(rounded[n], math.nan)
        assert any(f"{wrong[n].numel()} NaN" in line for line in faults(call, wrong, wanted))


def test_a_key_that_is_seen_by_mistake_is_found():
    """The diagonal of a causal mask, one too far."""
    call = call_of("causal")
    wanted = expected(call, *call.tensors("cpu"))
    table = call.table.clone()
    table[:, :, 1] += 1
    found = [x.to(call.dtype) for x in expected(call._replace(table=table), *call.tensors("cpu"))]
    assert all(any(line.startswith(name) for line in faults(call, found, wanted)) for name in ("dq", "dk", "dv"))


def test_what_nobody_sees_has_to_be_zero():
    call = call_of("window of one")
    wanted = expected(call, *call.tensors("cpu"))
    found = [x.to(call.dtype) for x in wanted]
    blind = int((~call.sees("cpu")[0].any(1)).nonzero()[0, 0])
    found[0][0, blind] = 1e-3
    assert faults(call, found, wanted)[1:] == ["dq: not 0 where nobody sees anything"]

"""The operators as they are traced, run eagerly: both passes under every mask against the reference.

Eagerly PyTorch computes them densely from the predicate; block lists are held against `create_block_mask` elsewhere.
"""

import math

import pytest
from flex_runs import MASKS, make_problem, make_work

torch = pytest.importorskip("torch")
pytest.importorskip("attnctl_kernels.flex.launch")

from attnctl.worker.inputs import random_inputs  # noqa: E402 - needs torch
from attnctl_kernels import reference  # noqa: E402
from attnctl_kernels.flex.launch.block_mask import flex_mask  # noqa: E402
from attnctl_kernels.flex.launch.graph import OPERANDS, by_head, trace  # noqa: E402

CPU = torch.device("cpu")
PROBLEMS = {name: make_problem(heads_kv=2, head_dim=16, dtype="float32", mask=mask) for name, mask in MASKS.items()} | {
    "causal, more queries": make_problem(300, 200, dtype="float32"),
    "window, fewer queries": make_problem(200, 300, dtype="float32", mask=MASKS["window"]),
    "softmax_scale, other head_dim_v": make_problem(
        100, head_dim=24, head_dim_v=16, dtype="float32", softmax_scale=0.3
    ),
}


def run(problem, pass_name, values):
    """What the traced graph gives, with heads after rows."""
    task, candidate = make_work(problem, pass_name, arch="sm_90", block=(128, 128))
    mask = flex_mask(problem, (128, 128))
    graph = trace(task, candidate, mask, CPU)
    operands = [by_head(each) if each.ndim == 4 else each for each in (values[name] for name in OPERANDS[pass_name])]
    arrays = [torch.from_numpy(array) for array in (*mask.lists.values(), *mask.tables)]
    return [by_head(each) if each.ndim == 4 else each for each in graph.module(*operands, *arrays)]


@pytest.mark.parametrize("name", PROBLEMS)
def test_both_passes_are_those_of_the_reference(name):
    problem = PROBLEMS[name]
    inputs = random_inputs(problem, 0, CPU, gradient=True)
    q, k, v, dout = inputs.q, inputs.k, inputs.v, inputs.dout
    out, lse = reference.forward(q, k, v, problem.mask, problem.softmax_scale)
    gradients = reference.backward(q, k, v, dout, problem.mask, problem.softmax_scale)
    saved = {"out": out.float(), "lse": lse.float() / math.log(2)}  # the operator's is to base 2
    values = {"q": q, "k": k, "v": v, "dout": dout, **saved}
    found = {"out": run(problem, "forward", values)[0]}
    found |= zip(("dq", "dk", "dv"), run(problem, "backward", values), strict=True)
    for each, want in zip(found, (out, *gradients), strict=True):
        torch.testing.assert_close(found[each], want.float(), rtol=1e-4, atol=1e-4, msg=f"{each} differs")

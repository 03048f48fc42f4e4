"""``python fa4_process.py compile|bind``: candidates from stdin, results to stdout, as a worker process would.

Reads a list of (task, candidate), writes one object per candidate: ``error``, or what compiling told; for ``bind``
the largest error of the output against the reference.
"""

import json
import sys
from dataclasses import replace

import torch

from attnctl_kernels import reference
from attnctl_kernels.contract import Candidate, CompileError, Inputs, Task
from attnctl_kernels.fa4.launch import LAUNCHER


def random_inputs(problem, seed=0):
    generator = torch.Generator("cuda").manual_seed(seed)
    queries = (problem.batch_size, problem.seqlen_q, problem.num_heads_q, problem.head_dim)
    keys = (problem.batch_size, problem.seqlen_k, problem.num_heads_kv, problem.head_dim)
    shapes = (queries, keys, (*keys[:3], problem.head_dim_v))
    dtype = getattr(torch, problem.dtype)
    return Inputs(*(torch.randn(shape, generator=generator, device="cuda").to(dtype) for shape in shapes))


def backward_inputs(problem, seed=0):
    """With what a right forward pass leaves."""
    inputs = random_inputs(problem, seed)
    out, lse = reference.forward(inputs.q, inputs.k, inputs.v, problem.mask, problem.softmax_scale)
    out = out.to(inputs.q.dtype).contiguous()
    generator = torch.Generator("cuda").manual_seed(seed + 1)
    dout = torch.randn(out.shape, generator=generator, device="cuda").to(out.dtype)
    return replace(inputs, out=out, lse=lse.float().contiguous(), dout=dout)


def bound(task, candidate):
    problem = task.problem
    inputs = backward_inputs(problem) if task.pass_name == "backward" else random_inputs(problem)
    call = LAUNCHER.bind(task, candidate, inputs)
    call.poison()
    call.run()
    if task.pass_name == "backward":
        expected = reference.backward(inputs.q, inputs.k, inputs.v, inputs.dout, problem.mask)
    else:
        expected = reference.forward(inputs.q, inputs.k, inputs.v, problem.mask)[:1]
    worst = max(
        (got.float() - want).abs().max().item() for got, want in zip(call.outputs().values(), expected, strict=False)
    )
    return {"error": None, "difference": worst}


def compiled(task, candidate):
    result = LAUNCHER.compile(task, candidate)
    return {"error": None, "binary": result.binary, "resources": result.resources}


def main():
    work = {"compile": compiled, "bind": bound}[sys.argv[1]]
    results = []
    for task, candidate in json.load(sys.stdin):
        try:
            results.append(work(Task.model_validate(task), Candidate.model_validate(candidate)))
        except CompileError as error:
            results.append({"error": str(error)})
    json.dump(results, sys.stdout)


if __name__ == "__main__":
    main()

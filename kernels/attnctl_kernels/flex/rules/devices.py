"""FLEX-015, FLEX-016 and FLEX-018: CPU, Apple GPUs, and calls that are not compiled."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.flex import options, tiles
from attnctl_kernels.flex.rules.values import REBUILD, ROWS
from attnctl_kernels.rule import Fix, Severity, Violation, nearest_multiples, rule

METAL_ROWS = 32  # queries per thread group
_CUDA = Fix("config.device", "cuda")


@rule(
    "FLEX-015",
    why="the C++ kernel has a forward pass and one output",
    upstream=(
        (
            "FlexAttention does not support backward on CPU. Please set the input requires_grad to False or use "
            "another device."
        ),
        "torch.compile on CPU only supports inference and `return_lse` is not supported yet.",
        "torch.compile on current platform is not supported for CPU.",
        "Returning max scores is not supported on CPU/MPS.",
        "`torch.float` , `torch.float16` and `torch.bfloat16` are supported in FlexAttention for CPU device.",
        "Q seqlen must be smaller than the block_mask size in the Q dimension, considering pass a larger block_mask.",
        "KV seqlen must be smaller than the block_mask size in the KV dimension, considering pass a larger block_mask.",
    ),
)
def not_supported_on_cpu(case: Case) -> Iterator[Violation]:
    """The call needs something that the CPU kernel does not have.

    What: On `device: cpu`, which is what a profile without an arch means, there is no backward pass, no log-sum-exp
    and no max_scores, and all tensors have one element type. torch 2.5 has no CPU kernel at all.

    Why: The C++ template computes the output of one forward pass. It needs a processor with AVX2.

    Fix: Name an `arch` and run on CUDA, take `passes: [forward]` under `torch.no_grad()`, or pad tensors so that all
    have one type.
    """
    if options.device(case) == "cpu":
        yield from _host(case, "the CPU kernel")


@rule(
    "FLEX-016",
    why="the Metal kernel has a forward pass and one output",
    upstream=(
        (
            "FlexAttention does not support backward on MPS. Please set the input requires_grad to False or use "
            "another device."
        ),
        "flex_attention on MPS requires SPARSE_Q_BLOCK_SIZE to be a positive multiple of {}, got {}",
        "flex_attention on MPS supports float32/float16/bfloat16, got {}",
        "Mixed dtypes for query, key, value not supported on MPS",
        "flex_attention backward (return_lse=True) is not yet supported on MPS.",
        (
            "flex_attention on MPS does not yet support batch broadcasting between query and key/value (Bq != Bkv); "
            "got Bq={} Bkv={}"
        ),
        "flex_attention on MPS requires Hq to be a positive multiple of Hkv, got Hq={} Hkv={}",
        "flex_attention on MPS requires query and key to share head dim, got d_qk={} d_k={}",
    ),
)
def not_supported_on_mps(case: Case) -> Iterator[Violation]:
    """The call needs something that the Metal kernel does not have.

    What: On `device: mps` there is no backward pass, no log-sum-exp and no max_scores; all tensors have one element
    type and one batch size; the first value of `sparse_block` is a multiple of 32. torch 2.5 has no Metal kernel at
    all.

    Why: A thread group takes 32 queries and looks up one row of the block lists for all of them.

    Fix: Query blocks of 48 -> 32 or 64. Gradients need CUDA.
    """
    if options.device(case) != "mps":
        return
    yield from _host(case, "the Metal kernel")
    problem, block = case.problem, case.sparse_block
    if problem.batch_size_kv not in (None, problem.batch_size):
        message = f"the Metal kernel does not share batch_size_kv {problem.batch_size_kv} among {problem.batch_size}"
        yield Violation("problem.batch_size_kv", message, (Fix("problem.batch_size_kv", problem.batch_size),))
    if block is not None and block[ROWS] % METAL_ROWS:
        near = nearest_multiples(block[ROWS], METAL_ROWS)
        fixes = tuple(Fix("sparse_block", (each, block[1]), REBUILD) for each in near)
        yield Violation("sparse_block", f"query blocks of {block[ROWS]} are not a multiple of {METAL_ROWS}", fixes)


def _host(case: Case, name: str) -> Iterator[Violation]:
    problem = case.problem
    if not options.is_forward(case):
        yield Violation("passes", f"{name} has no backward pass", (Fix("passes", ("forward",)), _CUDA))
    if case.version == tiles.OLD and options.switch(case, "compiled", default=True):
        yield Violation(
            "version", f"{name} is not in torch 2.5", (Fix("version", "2.13"), Fix("config.compiled", value=False))
        )
    for option, what in (("return_lse", "the log-sum-exp"), ("return_max_scores", "max_scores")):
        if options.switch(case, option):
            yield Violation(
                f"config.{option}", f"{name} does not return {what}", (Fix(f"config.{option}", value=False), _CUDA)
            )
    if problem.dtype_kv not in (None, problem.dtype):
        message = f"{name} does not mix dtype {problem.dtype} with dtype_kv {problem.dtype_kv}"
        yield Violation("problem.dtype_kv", message, (Fix("problem.dtype_kv", problem.dtype),))


@rule(
    "FLEX-018",
    severity=Severity.WARNING,
    why="the scores of all queries and keys are then written to memory",
    upstream=(
        (
            "flex_attention called without torch.compile() - this will use an unfused implementation that "
            "materializes the "
            "full scores matrix instead of generating a fused kernel."
        ),
        "flex_attention requires dynamo support",
    ),
)
def not_compiled(case: Case) -> Iterator[Violation]:
    """The call is not compiled.

    What: `compiled` is true: `torch.compile(flex_attention)` is called, not `flex_attention` itself.

    Why: Without the compiler FlexAttention computes all scores and masks them afterwards: 8192 tokens with 16 heads
    make a matrix of 4 GiB in float32, and no block is skipped. The same happens without any flag when one process
    compiles more than 8 variants: dynamo reaches its recompile limit and runs eagerly, 74 ms instead of 0.44 ms on one
    H200.

    Fix: `torch.compile(flex_attention)`; raise `torch._dynamo.config.recompile_limit` where many shapes are used.
    """
    if not options.switch(case, "compiled", default=True):
        yield Violation("config.compiled", "flex_attention runs eagerly", (Fix("config.compiled", value=True),))

"""PAL-B: what the two backward kernels demand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from attnctl_kernels.contract import Case, PassName
from attnctl_kernels.pallas_mgpu.resources import SMEM_LIMIT, kernels
from attnctl_kernels.pallas_mgpu.rules.values import BACKWARD_BLOCKS, number, ragged, trains
from attnctl_kernels.rule import Fix, Violation, rule

BACKWARD: tuple[PassName, ...] = ("backward",)
SUGGESTED_BLOCKS = ((128, 64, 128, 64), (64, 64, 64, 64))  # in the order of BACKWARD_BLOCKS


@rule(
    "PAL-B001",
    passes=BACKWARD,
    why="the backward kernels have no causal mask",
    upstream=("Causal attention not supported in the backwards pass yet.",),
)
def causal_backward(case: Case) -> Iterator[Violation]:
    """The backward pass is asked for a causal mask.

    What: A profile with `passes: [..., backward]` does not have `pattern: causal`.

    Why: Upstream raises NotImplementedError: only the forward kernel masks causally.

    Fix: Keep `passes: [forward]`, or train with another mask.
    """
    if case.problem.mask.pattern == "causal":
        yield Violation("mask.pattern", "the backward pass cannot be causal", (Fix("passes", ("forward",)),))


@rule(
    "PAL-B002",
    passes=BACKWARD,
    why="upstream assumes no default for them",
    upstream=("Need to specify backward blocks.",),
)
def backward_blocks_missing(case: Case) -> Iterator[Violation]:
    """The backward pass is wanted, but its blocks are not given.

    What: With `backward` in `passes`, all of `block_q_dkv`, `block_kv_dkv`, `block_q_dq` and `block_kv_dq` are
    given.

    Why: The dQ kernel and the dKV kernel are tiled apart from the forward kernel, and nothing is derived from
    `block_q` and `block_kv`. Upstream raises only when the gradient is taken, after a forward pass that worked.

    Fix: Four multiples of 64: 128/64/128/64 with one warp group, 64/64/64/64 with two (128 would spill: a dKV
    thread needs 256 registers, and two groups have 232 each).
    """
    if all(case.config.get(name) is None for name in BACKWARD_BLOCKS):
        blocks = dict(zip(BACKWARD_BLOCKS, _suggestion(case), strict=True))
        yield Violation(
            "config",
            "backward is in passes, but block_q_dkv, block_kv_dkv, block_q_dq and block_kv_dq are missing",
            advice="add " + ", ".join(f"{name}: {value}" for name, value in blocks.items()),
        )


@rule(
    "PAL-B003",
    passes=BACKWARD,
    why="the dQ kernel gives each warp group whole tiles of queries",
    upstream=("q_seq_len={} must be a multiple of config.block_q_dq={} * compute_wgs={}",),
)
def ragged_queries_in_dq(case: Case) -> Iterator[Violation]:
    """The query tiles of the dQ kernel do not cover the queries evenly.

    What: `seqlen_q % (block_q_dq * compute_wgs_bwd) == 0`. 1000 queries leave 232 over at 128 * 2 = 256.

    Why: A program of the dQ kernel handles one tile per warp group and has no ragged tile.

    Fix: Pad to 1024 (2.4 % more tokens) or cut to 768. 1152 also works as it is with `block_q_dq: 64` (64 * 2 =
    128) or one warp group.
    """
    yield from ragged(case, "seqlen_q", "block_q_dq", number(case, "compute_wgs_bwd"), "compute_wgs_bwd")


@rule(
    "PAL-B004",
    passes=BACKWARD,
    why="the dKV kernel gives each warp group whole tiles of keys",
    upstream=("kv_seq_len={} must be a multiple of config.block_kv_dkv={} * compute_wgs={}",),
)
def ragged_keys_in_dkv(case: Case) -> Iterator[Violation]:
    """The key tiles of the dKV kernel do not cover the keys evenly.

    What: `seqlen_k % (block_kv_dkv * compute_wgs_bwd) == 0`. 1152 keys leave 128 over at 128 * 2 = 256.

    Why: A program of the dKV kernel handles one tile per warp group and has no ragged tile.

    Fix: Pad to 1280 or cut to 1024; or `block_kv_dkv: 64`, since 64 * 2 = 128 divides 1152.
    """
    yield from ragged(case, "seqlen_k", "block_kv_dkv", number(case, "compute_wgs_bwd"), "compute_wgs_bwd")


@rule(
    "PAL-B005",
    passes=BACKWARD,
    why="the dKV kernel streams whole tiles of queries",
    upstream=("q_seq_len={} must be a multiple of config.block_q_dkv={}",),
)
def ragged_queries_in_dkv(case: Case) -> Iterator[Violation]:
    """The query tiles of the dKV kernel do not cover the queries evenly.

    What: `seqlen_q % block_q_dkv == 0`. 1000 queries leave 40 over at `block_q_dkv: 64`.

    Why: The kernel walks `seqlen_q / block_q_dkv` whole tiles for each tile of keys.

    Fix: Pad to 1024 or cut to 960; or a smaller block where one divides the length (1088 works with 64, not 128).
    """
    yield from ragged(case, "seqlen_q", "block_q_dkv")


@rule(
    "PAL-B006",
    passes=BACKWARD,
    why="the dQ kernel streams whole tiles of keys",
    upstream=("kv_seq_len={} must be a multiple of config.block_kv_dq={}",),
)
def ragged_keys_in_dq(case: Case) -> Iterator[Violation]:
    """The key tiles of the dQ kernel do not cover the keys evenly.

    What: `seqlen_k % block_kv_dq == 0`. 1000 keys leave 40 over at `block_kv_dq: 64`.

    Why: The kernel walks `seqlen_k / block_kv_dq` whole tiles for each tile of queries.

    Fix: Pad to 1024 or cut to 960; or a smaller block where one divides the length (1088 works with 64, not 128).
    """
    yield from ragged(case, "seqlen_k", "block_kv_dq")


@rule("PAL-B007", why="only the other entry has a gradient")
def pipeline_emitter_has_no_gradient(case: Case) -> Iterator[Violation]:
    """A program that trains is to use the pipeline emitter.

    What: With `backward` in `passes`, `pipeline_emitter` is false or left out, for the forward pass too.

    Why: `attention_with_pipeline_emitter` has no rule for its gradient: `jax.grad` fails inside the kernel.

    Fix: `pipeline_emitter: false`; `attention` has both passes.
    """
    if case.config.get("pipeline_emitter") and trains(case):
        fixes = (Fix("config.pipeline_emitter", False),)
        yield Violation("config.pipeline_emitter", "the pipeline emitter has no backward pass", fixes)


def _suggestion(case: Case) -> tuple[int, ...]:
    """The first suggestion that divides the lengths and fits; the smallest where none does."""
    return next((blocks for blocks in SUGGESTED_BLOCKS if _works(case, blocks)), SUGGESTED_BLOCKS[-1])


def _works(case: Case, blocks: tuple[int, ...]) -> bool:
    problem = case.problem
    config: dict[str, Any] = {**case.config, **dict(zip(BACKWARD_BLOCKS, blocks, strict=True))}
    return all(
        kernel.sized(config)
        and kernel.smem_bytes(problem, config) <= SMEM_LIMIT
        and kernel.registers(problem, config) <= kernel.register_limit(config)
        and rows_length % (config[kernel.rows] * kernel.wgs(config)) == 0
        and columns_length % config[kernel.columns] == 0
        for kernel, rows_length, columns_length in zip(
            kernels(case), (problem.seqlen_q, problem.seqlen_k), (problem.seqlen_k, problem.seqlen_q), strict=True
        )
    )

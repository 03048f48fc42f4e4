"""PAL-N: the ranker's history and candidate ranges. Nothing upstream checks them: the numbers come out wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import lcm

from attnctl_kernels.contract import Case, PassName, join_words
from attnctl_kernels.pallas_mgpu.rules.values import largest_block, number, trains
from attnctl_kernels.rule import Fix, Violation, nearest_multiples, rule

TRAINING_BLOCKS: Mapping[PassName, tuple[str, ...]] = {
    "forward": ("block_kv",),
    "backward": ("block_kv_dq", "block_q_dkv"),
}


@rule("PAL-N003", why="the history loop and the candidate loop both visit the shared block, so its keys count twice")
def history_ends_inside_a_training_block(case: Case) -> Iterator[Violation]:
    """In training, the history ends inside a block.

    What: With `backward` in `passes`, `history_len` is a multiple of `block_kv`, `block_kv_dq` and `block_q_dkv`,
    unless it is 0 or the whole sequence.

    Why: History and candidates are two loops over whole blocks. A block that holds the end of the history and the
    first candidates is visited by both, and its keys are counted twice; no message says so. 1 prefix token with
    1024 of history at blocks of 64 counts 191 pairs twice in the forward pass and 65663 in dKV.

    Fix: Prefix and history together make a multiple of the block: 1 + 1023 = 1024, not 1 + 1024 = 1025.
    """
    if trains(case):
        yield from _split_block(case, TRAINING_BLOCKS[case.pass_name], "counted twice")


@rule(
    "PAL-N004",
    passes=("forward",),
    why="the history loop applies no mask, so candidates in its last block see each other",
)
def history_ends_inside_an_inference_block(case: Case) -> Iterator[Violation]:
    """In inference, the history ends inside a block.

    What: With `passes: [forward]`, `history_len` is a multiple of `block_kv`, unless it is 0 or the whole sequence.

    Why: The history loop takes its blocks for fully visible and skips the mask. Candidates in the last of them leak
    into each other; no message says so. 1025 tokens of history at `block_kv: 128` leak 146304 pairs.

    Fix: 1025 -> 1024 (1 prefix token with 1023 of history).
    """
    if not trains(case):
        yield from _split_block(case, ("block_kv",), "read without a mask")


def _split_block(case: Case, names: tuple[str, ...], fate: str) -> Iterator[Violation]:
    history, length = case.problem.mask.history_len, case.problem.seqlen_k
    if case.problem.mask.pattern != "history_candidate" or history is None or history >= length:
        return
    split = {name: number(case, name) for name in names if number(case, name) and history % number(case, name)}
    if not split:
        return
    whole = lcm(*(number(case, name) or 1 for name in names))
    fixes = [Fix("mask.history_len", each) for each in nearest_multiples(history, whole) if each <= length]
    if len(split) == 1:
        ((name, block),) = split.items()
        smaller = largest_block(block, lambda each: history % each == 0)
        fixes += [Fix(f"config.{name}", smaller)] if smaller else []
    widest = max(split.values())
    first, last = history // widest * widest, min(history // widest * widest + widest, length) - 1
    blocks = join_words([f"{name}={block}" for name, block in split.items()], "and")
    yield Violation(
        "mask.history_len",
        f"history_len={history} ends inside a block of {blocks}: keys {first} to {last} are {fate}",
        tuple(fixes),
    )

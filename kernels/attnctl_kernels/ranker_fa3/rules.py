"""PAL-N, PAL-F011: the ranker's history and candidate ranges, and its cap. Most of it nothing upstream checks.

What only x-algorithm's kernel gets wrong is about version ``xai``.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import lcm

from attnctl_kernels.contract import Case, PassName, join_words
from attnctl_kernels.pallas_mgpu.resources import XAI
from attnctl_kernels.pallas_mgpu.rules.values import block, largest_block, trains
from attnctl_kernels.rule import Fix, Violation, nearest_multiples, rule

CAP_METHODS = ("tanh", "soft_sign", "none")
TRAINING_BLOCKS: Mapping[PassName, tuple[str, ...]] = {
    "forward": ("block_kv",),
    "backward": ("block_kv_dq", "block_q_dkv"),
}


@rule(
    "PAL-N003",
    versions=(XAI,),
    why="the history loop and the candidate loop both visit the shared block, so its keys count twice",
)
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
    versions=(XAI,),
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


@rule(
    "PAL-N001",
    why="the kernel computes its block ranges from them, unchecked",
    upstream=("Expected bound to have shape (4,), got {}",),
)
def bound_out_of_order(case: Case) -> Iterator[Violation]:
    """The ranges of history and candidates are not ascending, or leave the sequence.

    What: `bound` is four numbers, hist_lo, hist_hi, cand_lo and cand_hi, with 0 <= hist_lo <= hist_hi <= cand_lo <=
    cand_hi <= seqlen_k.

    Why: Only the count of four is checked. Ranges that overlap count keys twice, and one behind the end attends to
    keys that do not exist.

    Fix: 896 tokens of history in 1024: `bound: [0, 896, 896, 1024]`.
    """
    bound, length = case.config.get("bound"), case.problem.seqlen_k
    if not isinstance(bound, tuple):
        return
    history = case.problem.mask.history_len
    history = length if history is None else min(history, length)
    fix = Fix("config.bound", (0, history, history, length))
    if len(bound) != 4:
        yield Violation("config.bound", f"bound has {len(bound)} numbers, not 4", (fix,))
    elif sorted(bound) != list(bound) or bound[0] < 0 or bound[3] > length:
        yield Violation("config.bound", f"bound {list(bound)} does not ascend within 0 to {length}", (fix,))


@rule(
    "PAL-N002",
    versions=(XAI,),
    why="the default ends one key behind the sequence, and that key is attended to as zeros",
)
def bound_left_to_its_default(case: Case) -> Iterator[Violation]:
    """The call passes no bound.

    What: `bound` is passed; a profile says with `default_bound: true` that it is not.

    Why: Without it the range is (0, S + 1, S + 1, S + 1): every query also attends to a key of zeros at index S. At S =
    1024 these are 1024 extra pairs, each of which adds to the denominator of the softmax.

    Fix: `bound: [0, 1024, 1024, 1024]` where all keys are history.
    """
    if case.config.get("default_bound") and case.config.get("bound") is None:
        message = f"without a bound every query attends to key {case.problem.seqlen_k}, which does not exist"
        yield Violation("config.default_bound", message, (Fix("config.default_bound", False),), "pass a bound")


@rule(
    "PAL-N005",
    versions=(XAI,),
    why="only then do blocks of any size end with the history",
    upstream=("history length must be of the form (2^n-1)", "user prefix + history ({}) must be a power of 2"),
)
def prefix_and_history_are_no_power_of_two(case: Case) -> Iterator[Violation]:
    """The ranker's sizes are not those that its configuration accepts.

    What: `num_user_prefix_tokens` and `history_seq_len` together are a power of two; `emb_size` is a multiple of 128.

    Why: The configuration refuses the rest. It is what makes PAL-N003 and PAL-N004 hold.

    Fix: 1 prefix token: `history_seq_len` 1024 -> 1023.
    """
    prefix, history = (case.config.get(name) for name in ("num_user_prefix_tokens", "history_seq_len"))
    if isinstance(prefix, int) and isinstance(history, int):
        total = prefix + history
        if total < 1 or total & (total - 1):
            powers = (1 << max(total, 1).bit_length() - 1, 1 << max(total, 1).bit_length())
            fixes = tuple(Fix("config.history_seq_len", each - prefix) for each in powers if each > prefix)
            message = f"num_user_prefix_tokens={prefix} and history_seq_len={history} make {total}, no power of two"
            yield Violation("config.history_seq_len", message, fixes)
    size = case.config.get("emb_size")
    if isinstance(size, int) and (size % 128 or size < 1):
        fixes = tuple(Fix("config.emb_size", each) for each in nearest_multiples(max(size, 1), 128))
        yield Violation("config.emb_size", f"emb_size={size} is not a multiple of 128", fixes)


@rule(
    "PAL-F011",
    why="training refuses it, inference leaves the logits as they are",
    upstream=("cap_method must be in [tanh, soft_sign, none], got {}",),
)
def cap_method_unknown(case: Case) -> Iterator[Violation]:
    """The way to cap logits does not exist.

    What: With `cap` above 0, `cap_method` is `tanh`, `soft_sign` or `none`.

    Why: Training raises. Inference has another path, which applies no cap for a name that it
    does not know: scores differ from those in training without a message.

    Fix: `softsign` -> `soft_sign`.
    """
    method, cap = case.config.get("cap_method"), case.config.get("cap")
    if isinstance(cap, int | float) and cap > 0 and isinstance(method, str) and method not in CAP_METHODS:
        plain = method.replace("_", "").replace("-", "").lower()
        near = [each for each in CAP_METHODS if each.replace("_", "") == plain] or list(CAP_METHODS)
        message = f"cap_method {method} is not one of {join_words(CAP_METHODS, 'and')}"
        yield Violation("config.cap_method", message, tuple(Fix("config.cap_method", each) for each in near))


@rule("PAL-N006", why="a candidate sees the key with its own number, counted from the first")
def ranker_lengths_differ(case: Case) -> Iterator[Violation]:
    """The ranker is given fewer queries than keys, or more.

    What: Under a `history_candidate` mask, `seqlen_q == seqlen_k`.

    Why: The kernel compares the numbers of query and key as they are. A profile's masks are aligned at the end, so that
    with 128 queries on 1024 keys query 0 is token 896; for the kernel it is token 0, and history.

    Fix: Give all tokens as queries.
    """
    problem = case.problem
    if problem.mask.pattern == "history_candidate" and problem.seqlen_q != problem.seqlen_k:
        yield Violation(
            "problem.seqlen_q",
            f"seqlen_q={problem.seqlen_q} differs from seqlen_k={problem.seqlen_k} under a history_candidate mask",
            (Fix("problem.seqlen_q", problem.seqlen_k),),
        )


@rule(
    "PAL-N007",
    versions=(XAI,),
    why="a row that sees nothing divides 0 by 0, and its NaN reaches all gradients",
)
def tile_of_rows_partly_outside_the_bounds(case: Case) -> Iterator[Violation]:
    """Rows outside history and candidates share a tile with rows inside.

    What: Tiles of `2 * block_q` rows lie wholly inside the ranges of `bound`, or wholly outside.

    Why: Only a tile without any row in a range is filled with zeros. In the others a row that sees no key has a sum
    of 0 and becomes NaN. In training its delta is NaN as well, even where its gradient is 0, and 0 * NaN is added to
    dK.

    Fix: 1000 tokens padded to 1024, `block_q: 64`: `bound: [0, 896, 896, 1024]` instead of `[0, 896, 896, 1000]`; the
    padding is then a candidate that nobody else sees.
    """
    bound, length, tile = case.config.get("bound"), case.problem.seqlen_q, 2 * block(case, "block_q")
    if not (isinstance(bound, tuple) and len(bound) == 4 and sorted(bound) == list(bound) and tile):
        return
    ranges = [pair for pair in (bound[:2], bound[2:]) if pair[0] < pair[1]]
    edges = [0, *(edge for pair in ranges for edge in pair), length]
    gaps = [gap for gap in zip(edges[::2], edges[1::2], strict=True) if gap[0] < gap[1]]
    mixed = next((gap for gap in gaps if any(edge % tile and edge < length for edge in gap)), None)
    if mixed:
        yield Violation(
            "config.bound",
            f"rows {mixed[0]} to {mixed[1] - 1} are in no range and share a tile of {tile} rows with some that are",
            (Fix("config.bound", (0, bound[2], bound[2], length)),),
        )


def _split_block(case: Case, names: tuple[str, ...], fate: str) -> Iterator[Violation]:
    history, length = case.problem.mask.history_len, case.problem.seqlen_k
    if case.problem.mask.pattern != "history_candidate" or history is None or history >= length:
        return
    blocks = {name: block(case, name) for name in names}
    split = {name: size for name, size in blocks.items() if size and history % size}
    if not split:
        return
    whole = lcm(*(size or 1 for size in blocks.values()))
    fixes = [Fix("mask.history_len", each) for each in nearest_multiples(history, whole) if each <= length]
    if len(split) == 1:
        ((name, size),) = split.items()
        smaller = largest_block(size, lambda each: history % each == 0)
        fixes += [Fix(f"config.{name}", smaller)] if smaller else []
    widest = max(split.values())
    first, last = history // widest * widest, min(history // widest * widest + widest, length) - 1
    listed = join_words([f"{name}={size}" for name, size in split.items()], "and")
    yield Violation(
        "mask.history_len",
        f"history_len={history} ends inside a block of {listed}: keys {first} to {last} are {fate}",
        tuple(fixes),
        "" if fixes else f"make the history a multiple of {whole} keys",
    )

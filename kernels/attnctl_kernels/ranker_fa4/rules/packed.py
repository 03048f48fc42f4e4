"""RFA4-010 and RFA4-011: rows packed from users of different lengths (version xai-v2)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from attnctl_kernels.contract import Case
from attnctl_kernels.ranker_fa4.spec import BLOCK
from attnctl_kernels.rule import Fix, Violation, nearest_multiples, rule

SIZES = ("user_lens", "hist_sizes", "cand_sizes")


@rule(
    "RFA4-010",
    versions=("xai-v2",),
    why="a block of a packed row belongs to one user, and to the history or the candidates alone",
    upstream=(
        "All per-user lengths must be block-aligned",
        "Candidate sequence length must be block-aligned",
        "num_blocks={} too small for hist_sizes (need {})",
        "hist_sizes must be multiples of block_size={}, got {}",
        "cand_sizes must be multiples of block_size={}, got {}",
        "max_hist_blocks={} too small (max h={})",
        "max_cand_blocks={} too small (max c={})",
    ),
)
def packed_sizes_not_aligned_to_blocks(case: Case) -> Iterator[Violation]:
    """Users of a packed row end inside a block, or have more candidates than there is room for.

    What: `user_lens`, `hist_sizes`, `cand_sizes` and `candidate_seq_len` are multiples of 128; each of `cand_sizes` is
    at most `candidate_seq_len`; `num_user_prefix_tokens` is 0 to 128.

    Why: The layout of a packed row lists blocks of 128. A user of 200 tokens would share a block with the next one.

    Fix: Pad each user: 200 -> 256.
    """
    config: Mapping[str, Any] = case.config
    for name in SIZES:
        value: Any = config.get(name)
        for size in value if isinstance(value, tuple) else ():
            if size % BLOCK:
                rounded = tuple(-(-each // BLOCK) * BLOCK for each in value)
                message = f"{name} holds {size}, which is not a multiple of {BLOCK}"
                yield Violation(f"config.{name}", message, (Fix(f"config.{name}", rounded),))
                break
    room, candidates = config.get("candidate_seq_len"), config.get("cand_sizes")
    if isinstance(room, int) and room % BLOCK:
        fixes = tuple(Fix("config.candidate_seq_len", each) for each in nearest_multiples(room, BLOCK))
        message = f"candidate_seq_len={room} is not a multiple of {BLOCK}"
        yield Violation("config.candidate_seq_len", message, fixes)
    elif isinstance(room, int) and isinstance(candidates, tuple) and max(candidates, default=0) > room:
        largest = -(-max(candidates) // BLOCK) * BLOCK
        message = f"candidate_seq_len={room} has no room for {max(candidates)} candidates"
        yield Violation("config.candidate_seq_len", message, (Fix("config.candidate_seq_len", largest),))
    prefix = config.get("num_user_prefix_tokens")
    if isinstance(prefix, int) and not 0 <= prefix <= BLOCK:
        message = f"num_user_prefix_tokens={prefix} is not in 0 to {BLOCK}"
        field = "config.num_user_prefix_tokens"
        yield Violation(field, message, (Fix(field, BLOCK if prefix > BLOCK else 0),))


@rule(
    "RFA4-011",
    versions=("xai-v2",),
    why="the kernel walks whole blocks of the packed row, and nothing checks where its users end",
    upstream=(
        "packed_seq_len={} must be a multiple of block_size={}",
        "cu_seqlens claim more tokens than the physical row: {}",
        "valid_block_upper and valid_block_lower must be provided together",
        "Seqpack varlen attention expects one packed row per shard.",
    ),
)
def packed_row_does_not_hold_its_users(case: Case) -> Iterator[Violation]:
    """A packed row whose length is missing, ragged, or too short for its users.

    What: With `user_lens`, `packed_seq_len` is given, a multiple of 128 and at least their sum. `valid_block_upper` and
    `valid_block_lower` come together.

    Why: Without `packed_seq_len` the total of the first device is taken for all of them, and no message says so: shards
    with more tokens lose their last users.

    Fix: `user_lens: [256, 384]` needs `packed_seq_len: 640`, or more with padding behind.
    """
    config: Mapping[str, Any] = case.config
    users, packed = config.get("user_lens"), config.get("packed_seq_len")
    field = "config.packed_seq_len"
    needed = -(-sum(users) // BLOCK) * BLOCK if isinstance(users, tuple) else 0
    if isinstance(users, tuple) and packed is None:
        yield Violation("config.user_lens", "user_lens is given without packed_seq_len", (Fix(field, needed),))
    elif isinstance(packed, int) and packed % BLOCK:
        fitting = [each for each in nearest_multiples(packed, BLOCK) if each >= needed]
        message = f"packed_seq_len={packed} is not a multiple of {BLOCK}"
        yield Violation(field, message, tuple(Fix(field, each) for each in fitting), f"at least {needed}")
    elif isinstance(users, tuple) and isinstance(packed, int) and sum(users) > packed:
        yield Violation(field, f"user_lens hold {sum(users)} tokens, packed_seq_len is {packed}", (Fix(field, needed),))
    bounds = [name for name in ("valid_block_upper", "valid_block_lower") if config.get(name)]
    if len(bounds) == 1:
        other = "valid_block_lower" if bounds[0].endswith("upper") else "valid_block_upper"
        yield Violation(f"config.{bounds[0]}", f"{bounds[0]} is given without {other}", (Fix(f"config.{other}", True),))

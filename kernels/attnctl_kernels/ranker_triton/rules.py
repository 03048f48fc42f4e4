"""RTRI: what the ranker's Triton kernels need, most of which nothing upstream checks."""

from __future__ import annotations

from collections.abc import Iterator
from math import lcm

from attnctl_kernels.contract import Case
from attnctl_kernels.ranker_triton.spec import V1, V2, blocks, is_forward
from attnctl_kernels.rule import Fix, Violation, length_fixes, length_price, nearest_multiples, rule

CAP_METHODS = ("tanh", "soft_sign")
SPLIT = "triton_split"
SEGMENTS = {
    V1: {"history_segment_id": 0, "padding_segment_id": 2},
    V2: {"history_segment_id": 1, "padding_segment_id": 0},
}
_OF_V1 = ("block_q", "block_k")
_OF_V2 = (
    "block_q_fwd",
    "block_k_fwd",
    "block_q_bwd_dq",
    "block_k_bwd_dq",
    "block_q_bwd_dkv",
    "block_k_bwd_dkv",
    "inference",
)


def clamped(case: Case, name: str, size: int) -> int:
    """Upstream's `min(block, seq_len)`, which the backward pass of the second module makes too late."""
    late = case.version == V2 and "bwd" in name
    return size if late else min(size, case.problem.seqlen_q)


def is_causal(case: Case) -> bool:
    return case.problem.mask.pattern in ("causal", "sliding_window")


@rule(
    "RTRI-001",
    why="the kernels have no mask for a ragged last block",
    upstream=(
        "seq_len {} must be divisible by block_q_fwd {}",
        "seq_len {} must be divisible by block_k_fwd {}",
        "seq_len {} must be divisible by block_q_bwd_dq {}",
        "seq_len {} must be divisible by block_k_bwd_dq {}",
        "seq_len {} must be divisible by block_q_bwd_dkv {}",
        "seq_len {} must be divisible by block_k_bwd_dkv {}",
        "seq_len {} must be divisible by block_q {}",
        "seq_len {} must be divisible by block_k {}",
    ),
)
def length_is_not_whole_blocks(case: Case) -> Iterator[Violation]:
    """The sequence is not a whole number of blocks, or queries and keys differ in number.

    What: There are as many queries as keys, and every block of the pass divides that length. A block longer than the
    sequence becomes the sequence, except in the backward pass of `ranker_attention_v2`.

    Why: `ranker_attention` checks nothing: the last block reads and writes behind the end, into the next head.
    `ranker_attention_v2` asserts; its backward pass does so before it shortens the blocks, so that 64 tokens pass
    forward and fail backward.

    Fix: 1000 tokens in blocks of 128 -> 1024 (2.4 % more tokens) or 896; or blocks of 8, which are too small. Training
    on `ranker_attention_v2` takes at least 128 tokens.
    """
    problem = case.problem
    if problem.seqlen_k != problem.seqlen_q:
        fix = Fix("problem.seqlen_k", problem.seqlen_q)
        yield Violation(
            "problem.seqlen_k", f"seqlen_k {problem.seqlen_k} differs from seqlen_q {problem.seqlen_q}", (fix,)
        )
    length = problem.seqlen_q
    wrong = {name: clamped(case, name, size) for name, size in blocks(case).items()}
    wrong = {name: size for name, size in wrong.items() if length % size}
    if wrong:
        fixes = list(length_fixes("problem.seqlen_q", length, lcm(*blocks(case).values())))
        if len(wrong) == 1:
            ((name, size),) = wrong.items()
            smaller = next((each for each in (128, 64, 32, 16) if each < size and length % each == 0), None)
            fixes += [Fix(f"config.{name}", smaller)] if smaller else []
        listed = " and ".join(f"{name} {size}" for name, size in wrong.items())
        fate = "the last block is read behind the end" if case.version == V1 else "the kernel asserts"
        yield Violation("problem.seqlen_q", f"seqlen_q {length} is not a multiple of {listed}: {fate}", tuple(fixes))


@rule(
    "RTRI-002",
    why="arrays in a Triton kernel have a power of two of elements",
    upstream=(
        (
            "The Pallas Triton lowering currently requires that all operations have array arguments and results whose "
            "size is a power of 2. Encountered an array of shape {}"
        ),
    ),
)
def size_is_not_a_power_of_two(case: Case) -> Iterator[Violation]:
    """A block or the head dimension is not a power of two.

    What: All blocks, as shortened to the sequence, and `head_dim` are powers of two of at least 16; `head_dim_v`
    equals `head_dim`.

    Why: Blocks of queries and keys and their products are Triton tensors. O is declared with the shape of Q. A
    sequence of 96 tokens makes blocks of 96.

    Fix: head_dim 96 -> 128, with zeros. 96 tokens -> 128.
    """
    problem = case.problem
    for name, size in blocks(case).items():
        used = clamped(case, name, size)
        if used < size and not _is_power_of_two(used):
            padded = 1 << used.bit_length()
            fix = Fix("problem.seqlen_q", padded, length_price(used, padded))
            yield Violation("problem.seqlen_q", f"seqlen_q {used} is shorter than {name}, and no power of two", (fix,))
        elif not _is_power_of_two(size) or size < 16:
            field, above = f"config.{name}", max(1 << size.bit_length(), 16)
            near = [each for each in (above // 2, above) if each >= 16 and each != size]
            fixes = tuple(Fix(field, each) for each in near)
            yield Violation(field, f"{name} {size} is not a power of two of at least 16", fixes)
    if not _is_power_of_two(problem.head_dim) or problem.head_dim < 16:
        padded = max(1 << problem.head_dim.bit_length(), 16)
        fix = Fix("problem.head_dim", padded, "pad with zeros")
        message = f"head_dim {problem.head_dim} is not a power of two of at least 16"
        yield Violation("problem.head_dim", message, (fix,))
    if problem.head_dim_v != problem.head_dim:
        fix = Fix("problem.head_dim_v", problem.head_dim)
        message = f"head_dim_v {problem.head_dim_v} differs from head_dim {problem.head_dim}"
        yield Violation("problem.head_dim_v", message, (fix,))


@rule(
    "RTRI-003",
    passes=("backward",),
    why="the other implementations are gone",
    upstream=("Invalid backward pass implementation: {}",),
)
def backward_implementation_missing(case: Case) -> Iterator[Violation]:
    """The backward pass has no implementation of that name.

    What: `backward_pass_impl` is `triton_split`. In `ranker_attention` it has to be given, because the default,
    `triton`, is one that the module no longer has.

    Why: The forward pass ignores the argument, so that the fault shows when the first gradient is taken.

    Fix: `backward_pass_impl: triton_split`.
    """
    found = case.config.get("backward_pass_impl", "triton" if case.version == V1 else SPLIT)
    if found != SPLIT:
        default = "" if "backward_pass_impl" in case.config else " (the default)"
        name = "config.backward_pass_impl"
        yield Violation(name, f"backward_pass_impl {found}{default} does not exist", (Fix(name, SPLIT),))


@rule(
    "RTRI-004", versions=(V1,), why="the last key block of a query block is found from the index of its first row alone"
)
def causal_blocks_lose_keys(case: Case) -> Iterator[Violation]:
    """A causal mask with query blocks that do not lie inside one key block (`ranker_attention`).

    What: With a causal or windowed mask, `block_k` is a multiple of `block_q`, unless one block holds the sequence.

    Why: The key loop ends at block start_q * block_q // block_k, the one that holds the first row of the query block.
    Rows that reach into the next key block never see it. `block_q: 128` with `block_k: 64` loses keys of 512 of 1024
    rows, 48 with 64 of 240; no message says so.

    Fix: 64 with 128, or equal blocks.
    """
    sizes = blocks(case)
    if not is_causal(case) or len(sizes) < 2:
        return
    rows, keys = (clamped(case, name, sizes[name]) for name in _OF_V1)
    length = case.problem.seqlen_q
    if keys % rows and keys < length:
        lost = sum(
            min(start + rows, length) - max(start, (start // keys + 1) * keys)
            for start in _straddling(length, rows, keys)
        )
        smaller = next((each for each in (128, 64, 32, 16) if each <= rows and keys % each == 0), None)
        larger = next((each for each in (16, 32, 64, 128, 256) if each > keys and each % rows == 0), None)
        fixes = [Fix("config.block_q", smaller)] if smaller else []
        fixes.append(Fix("config.block_k", larger or rows))
        message = f"block_k {keys} is not a multiple of block_q {rows}: {lost} of {length} rows miss keys"
        yield Violation("config.block_k", message, tuple(fixes))


def _straddling(length: int, rows: int, keys: int) -> Iterator[int]:
    """First rows of the query blocks that reach into another key block."""
    for start in range(0, length, rows):
        if min(start + rows, length) > (start // keys + 1) * keys:
            yield start


@rule("RTRI-005", why="the first key block of a window is counted back from the last, rounded down")
def window_loses_keys(case: Case) -> Iterator[Violation]:
    """A sliding window that the blocks do not cover, or that the kernel ignores.

    What: In `ranker_attention`, (window + block_q) // block_k is at least ceil((window - 1) / block_k) + 1, and in the
    backward pass (window + block_k) // block_q at least (window + block_k - 2) // block_q + 1, unless so many blocks
    hold the whole sequence. `ranker_attention_v2` has no window.

    Why: The loops visit that many blocks and no more. With 128 x 128, windows of 128 and 129 work, 100 and 130 lose
    keys of some rows, and nothing says so; a `block_q` below `block_k` covers no window at all. The second module
    takes `window_len` and deletes it.

    Fix: 128 x 128: window 100 -> 128. 64 x 64: 200 -> 256.
    """
    problem, sizes = case.problem, blocks(case)
    window = problem.mask.window
    if problem.mask.pattern != "sliding_window" or window is None or window < 1:
        return
    if case.version == V2:
        yield Violation("mask.pattern", f"{V2} ignores the window", (Fix("mask.pattern", "causal"), Fix("version", V1)))
    elif len(sizes) == 2:
        rows, keys = (clamped(case, name, sizes[name]) for name in _OF_V1)
        if not covers(case, window, rows, keys):
            near = [each for each in _outwards(window, problem.seqlen_k) if covers(case, each, rows, keys)][:2]
            fixes = [Fix("mask.window", each) for each in near]
            if rows != keys and covers(case, window, keys, keys):
                fixes.append(Fix("config.block_q", keys))
            visited, needed = _blocks_visited(case, window, rows, keys)
            message = f"window {window} needs {needed} blocks of {rows} x {keys}, and the kernel visits {visited}"
            advice = "" if fixes else f"let block_q equal block_k, and take window {keys} or {2 * keys}"
            yield Violation("mask.window", message, tuple(fixes), advice)


def _blocks_visited(case: Case, window: int, rows: int, keys: int) -> tuple[int, int]:
    if is_forward(case):
        return (window + rows) // keys, -(-(window - 1) // keys) + 1
    # dQ walks keys as the forward pass does; dK and dV walk queries
    forward = (window + rows) // keys, -(-(window - 1) // keys) + 1
    return forward if forward[0] < forward[1] else ((window + keys) // rows, (keys + window - 2) // rows + 1)


def covers(case: Case, window: int, rows: int, keys: int) -> bool:
    """Whether every visible pair lies in a block that the kernels of the pass visit."""
    length = case.problem.seqlen_q
    visited = (window + rows) // keys
    if visited < min(-(-(window - 1) // keys) + 1, -(-length // keys)):
        return False
    if is_forward(case):
        return True
    visited = (window + keys) // rows
    return visited >= min((keys + window - 2) // rows + 1, -(-length // rows))


def _outwards(value: int, most: int) -> Iterator[int]:
    """Numbers by their distance from ``value``."""
    for distance in range(1, most + 1):
        if value - distance >= 1:
            yield value - distance
        if value + distance <= most:
            yield value + distance


@rule("RTRI-006", why="`mha` reads key head h for query head h")
def heads_not_repeated(case: Case) -> Iterator[Violation]:
    """Keys and values have fewer heads than the queries, or an inference block holds the end of the history.

    What: `num_heads_kv` equals `num_heads_q`, or `heads_repeated` says that keys and values are repeated before the
    call. `mha_inference_gqa` (`inference: true`, `ranker_attention_v2`) groups heads by itself; `num_heads_q` is a
    multiple of `num_heads_kv` there, `block_q_fwd` equals `block_k_fwd`, and `history_len` is a multiple of
    `block_k_fwd`.

    Why: `mha` takes the head index of the queries for the keys: heads behind the last one are other memory. The
    inference kernel visits history blocks without a mask, so that candidates in the last of them leak, and adds the
    diagonal of a candidate block by position inside the block.

    Fix: `jnp.repeat(k, num_heads_q // num_heads_kv, axis=2)` and `heads_repeated: true`. History 1025 -> 1024.
    """
    problem = case.problem
    inference = case.version == V2 and is_forward(case) and bool(case.config.get("inference"))
    queries, keys = problem.num_heads_q, problem.num_heads_kv
    groups = inference or bool(case.config.get("heads_repeated"))
    equal = Fix("problem.num_heads_kv", queries)
    if queries % keys:
        fixes = [equal]
        if groups:
            below = max(each for each in range(1, min(keys, queries) + 1) if queries % each == 0)
            fixes = [Fix("problem.num_heads_kv", below)]
            fixes += [Fix("problem.num_heads_q", each) for each in nearest_multiples(queries, keys)]
        message = f"num_heads_q {queries} is not a multiple of num_heads_kv {keys}"
        yield Violation("problem.num_heads_kv", message, tuple(fixes))
    elif queries != keys and not groups:
        message = f"{queries} query heads read beyond {keys} key heads"
        repeated = Fix("config.heads_repeated", value=True, price="repeats K and V in memory")
        yield Violation("problem.num_heads_kv", message, (repeated, equal))
    if not inference:
        return
    sizes = {name: clamped(case, name, size) for name, size in blocks(case).items()}
    if len(set(sizes.values())) > 1:
        rows, columns = sizes["block_q_fwd"], sizes["block_k_fwd"]
        message = f"block_k_fwd {columns} differs from block_q_fwd {rows} in the inference kernel"
        yield Violation("config.block_k_fwd", message, (Fix("config.block_k_fwd", rows),))
    history, block = problem.mask.history_len, sizes.get("block_k_fwd", 0)
    if (
        problem.mask.pattern == "history_candidate"
        and history
        and block
        and history % block
        and history < problem.seqlen_k
    ):
        near = [each for each in nearest_multiples(history, block) if each <= problem.seqlen_k]
        message = f"history_len {history} ends inside a block of {block}: its candidates are seen by all"
        yield Violation("mask.history_len", message, tuple(Fix("mask.history_len", each) for each in near))


@rule(
    "RTRI-007",
    why="the modules number segments differently, and read any other number as a candidate",
    upstream=("cap_method must be in [tanh, soft_sign], got {}", "cap_method must be in [tanh, soft_sign]"),
)
def cap_or_segments_misread(case: Case) -> Iterator[Violation]:
    """A cap without a method that exists, or segment ids of the other module.

    What: With `cap` above 0, `cap_method` is `tanh` or `soft_sign`. In `ranker_attention` history is segment 0 and
    padding 2; in `ranker_attention_v2`, as in `ranker_fa3`, history is 1, a candidate -1 and padding 0.

    Why: An id that a kernel does not know is a candidate. With the ids of the other module all history (1) is
    candidates, and padding (0) is history; no message says so. The inference kernel ignores an unknown method and
    applies no cap.

    Fix: `history_segment_id: 0, padding_segment_id: 2` for `ranker_attention`, or convert the ids.
    """
    cap, method = case.config.get("cap"), case.config.get("cap_method", CAP_METHODS[0])
    if isinstance(cap, float | int) and cap > 0 and method not in CAP_METHODS:
        fixes = tuple(Fix("config.cap_method", each) for each in CAP_METHODS)
        yield Violation("config.cap_method", f"there is no cap_method {method}", fixes)
    for name, wanted in SEGMENTS[case.version].items():
        found = case.config.get(name)
        if found is not None and found != wanted:
            message = f"{name} is {found}, which {case.version} reads as something else than {wanted}"
            yield Violation(f"config.{name}", message, (Fix(f"config.{name}", wanted),))


@rule(
    "RTRI-008",
    why="the argument belongs to the other module",
    upstream=("mha() got an unexpected keyword argument '{}'",),
)
def argument_of_the_other_module(case: Case) -> Iterator[Violation]:
    """A block is given under the name that the other module uses.

    What: `ranker_attention` takes `block_q` and `block_k`; `ranker_attention_v2` takes `block_q_fwd`, `block_k_fwd`,
    and four blocks of the backward pass.

    Why: Python refuses an argument that a function does not have. The other names keep their defaults, so that a check
    of what the profile says would check something else.

    Fix: `block_q: 64` -> `block_q_fwd: 64` in `ranker_attention_v2`.
    """
    foreign = _OF_V2 if case.version == V1 else _OF_V1
    for name in foreign:
        if name in case.given:
            other = V2 if case.version == V1 else V1
            fixes = (Fix(f"config.{name}", value=None), Fix("version", other))
            yield Violation(f"config.{name}", f"{case.version} has no argument {name}", fixes)


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0

"""RTRI-002, 003 and 006 to 008: sizes, heads and arguments."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.ranker_triton.rules.loops import clamped
from attnctl_kernels.ranker_triton.spec import V1, V2, blocks, is_forward
from attnctl_kernels.rule import Fix, Violation, divisors_around, length_price, nearest_multiples, rule

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
            fixes = [Fix("problem.num_heads_kv", each) for each in divisors_around(queries, keys)]
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

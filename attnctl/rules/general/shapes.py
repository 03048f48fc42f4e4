"""Shapes that no attention kernel can take, or that one should look at twice."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case, Problem
from attnctl_kernels.rule import Fix, Severity, Violation, divisors_around, nearest_multiples, rule

LARGEST_OFFSET = 2**31 - 1
LARGEST_USUAL_HEAD_DIM = 256


@rule(
    "G001",
    why="each key/value head serves a whole number of query heads",
    upstream=("num_head must be divisible by num_head_kv",),  # flash-attn-4
    aliases=("FA4-E005",),
)
def heads_do_not_divide(case: Case) -> Iterator[Violation]:
    """The query heads are not a multiple of the key/value heads.

    What: `num_heads_q` is a multiple of `num_heads_kv`.

    Why: In grouped-query attention query head h reads key/value head h // (num_heads_q / num_heads_kv). With 10 query
    heads on 4 key/value heads the group would be 2.5 heads.

    Fix: 10 query heads: 2 or 5 key/value heads. 4 key/value heads: 8 or 12 query heads.
    """
    queries, keys = case.problem.num_heads_q, case.problem.num_heads_kv
    if queries % keys:
        fixes = [Fix("problem.num_heads_kv", each) for each in divisors_around(queries, keys)]
        fixes += [Fix("problem.num_heads_q", each) for each in nearest_multiples(queries, keys)]
        yield Violation(
            "problem.num_heads_kv",
            f"num_heads_q {queries} is not a multiple of num_heads_kv {keys}",
            tuple(fixes),
        )


@rule("G002", severity=Severity.WARNING, why="kernels take head sizes up to 256 or less, and lengths far above")
def head_dim_equal_to_length(case: Case) -> Iterator[Violation]:
    """A large head size that equals a sequence length.

    What: `head_dim` or `head_dim_v` is above 256 and equal to `seqlen_q` or `seqlen_k`.

    Why: The axes of a tensor are easily swapped. A head size of 1024 needs 395520 bytes of shared memory where a
    Hopper block has 232448, and the message of the compiler does not point at the shape.

    Fix: Shapes are `(batch_size, seqlen, num_heads, head_dim)`; write the head size, `head_dim: 64` or `head_dim:
    128`.
    """
    problem = case.problem
    lengths = {problem.seqlen_k: "seqlen_k", problem.seqlen_q: "seqlen_q"}
    sizes = {"head_dim": problem.head_dim}
    if problem.head_dim_v != problem.head_dim:
        sizes["head_dim_v"] = problem.head_dim_v
    for name, size in sizes.items():
        if size > LARGEST_USUAL_HEAD_DIM and size in lengths:
            fixes = tuple(Fix(f"problem.{name}", each) for each in (64, 128))
            yield Violation(f"problem.{name}", f"{name} {size} equals {lengths[size]}: are the axes swapped?", fixes)


@rule("G003", severity=Severity.WARNING, why="kernels that count offsets in 32 bits read or write elsewhere")
def offset_beyond_32_bits(case: Case) -> Iterator[Violation]:
    """An offset into a tensor does not fit into 32 bits.

    What: batch_size x seqlen x heads x head size of each of Q, K, V and O is at most 2147483648, so that the offset
    of the last element is at most 2147483647. Where `layout.out_strides` states the strides of O or of a gradient, in
    elements, they count in place of the shape.

    Why: Many kernels count element offsets in signed 32-bit numbers. Past the limit they wrap: wrong gradients, or an
    illegal memory access, often in the backward pass alone and only from some batch size on. A view into a wider tensor
    has larger offsets than its shape tells: row 410922 of a gradient whose rows are 9728 elements apart begins at
    3997449216.

    Fix: 24000 tokens with 1 head of 128: batch size 699 gives 2147327999 and fits, 700 gives 2150399999. Split the
    batch, or make sure that the kernel counts in 64 bits.
    """
    problem = case.problem
    strides = case.layout.out_strides if case.layout else None
    if strides and len(strides) in (3, 4):
        yield from _strided_offset(problem, strides)
        return
    rows_q = problem.seqlen_q * problem.num_heads_q
    rows_k = problem.seqlen_k * problem.num_heads_kv
    per_batch = {
        "Q": rows_q * problem.head_dim,
        "K": rows_k * problem.head_dim,
        "V": rows_k * problem.head_dim_v,
        "O": rows_q * problem.head_dim_v,
    }
    name = max(per_batch, key=per_batch.__getitem__)
    largest = problem.batch_size * per_batch[name] - 1
    if largest > LARGEST_OFFSET:
        length = "seqlen_q" if name in "QO" else "seqlen_k"
        field, smallest = "problem.batch_size", per_batch[name]
        if smallest > LARGEST_OFFSET + 1:  # one sequence is too long already
            field, smallest = f"problem.{length}", problem.batch_size * per_batch[name] // getattr(problem, length)
        fitting = (LARGEST_OFFSET + 1) // smallest
        message = f"the last element of {name} has offset {largest}, above {LARGEST_OFFSET}"
        advice = "make sure that the kernel counts in 64 bits"
        yield Violation(field, message, (Fix(field, fitting),) if fitting else (), advice)


def _strided_offset(problem: Problem, strides: tuple[int, ...]) -> Iterator[Violation]:
    """(batch, row, head, element), or without the batch, whose sequences then stand behind each other."""
    rows = (problem.batch_size, problem.seqlen_q) if len(strides) == 4 else (problem.batch_size * problem.seqlen_q,)
    sizes = (*rows, problem.num_heads_q, problem.head_dim_v)
    parts = [(size - 1) * stride for size, stride in zip(sizes, strides, strict=True)]
    if sum(parts) > LARGEST_OFFSET:
        message = (
            f"out_strides {list(strides)} put the last of {rows[-1]} rows at offset {sum(parts[: len(rows)])}, "
            f"and its last element above {LARGEST_OFFSET}"
        )
        packed = (problem.num_heads_q * problem.head_dim_v, problem.head_dim_v, 1)
        whole = packed if len(strides) == 3 else (problem.seqlen_q * packed[0], *packed)
        fits = sum((size - 1) * stride for size, stride in zip(sizes, whole, strict=True)) <= LARGEST_OFFSET
        fixes = (Fix("layout.out_strides", whole, "make it contiguous"),) if fits else ()
        yield Violation("layout.out_strides", message, fixes, "make sure that the kernel counts in 64 bits")

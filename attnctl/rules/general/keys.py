"""Keys and values that differ from the queries in more than their length, and sequences that differ in theirs."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Fix, Violation, rule

_OF_KEYS = {"dtype_kv": "dtype", "batch_size_kv": "batch_size"}


@rule("G004", why="the kernel reads keys and values as it reads queries")
def keys_unlike_queries(case: Case) -> Iterator[Violation]:
    """Keys and values have another element type or batch size than the queries, and the family has no way to take that.

    What: `dtype_kv` and `batch_size_kv` are left out, or equal `dtype` and `batch_size`, unless the family says that it
    takes them. FlexAttention does: it casts keys to the type of the queries, and shares one sequence of keys among a
    batch of queries.

    Why: The other kernels have one element type and one batch index for all three tensors. A batch of 4 queries over 1
    sequence of keys would read three sequences behind the end.

    Fix: Cast keys and values, or expand them: `batch_size: 4` needs `batch_size_kv: 4`.
    """
    problem = case.problem
    if get_family(case.family).kv_may_differ:
        return
    for name, of_queries in _OF_KEYS.items():
        value, wanted = getattr(problem, name), getattr(problem, of_queries)
        if value not in (None, wanted):
            message = f"{name} {value} differs from {of_queries} {wanted}, which {case.family} does not take"
            yield Violation(f"problem.{name}", message, (Fix(f"problem.{name}", wanted),))


@rule("G005", why="the kernel would read the padding as if it were tokens")
def ragged_batch_not_taken(case: Case) -> Iterator[Violation]:
    """Sequences of different lengths in one batch, and the family has no way to take them.

    What: `problem.varlen` is left out unless the family takes a ragged batch; fa4 does.

    Why: Arrays such as `cu_seqlens_q` say where each sequence begins. A kernel without them sees one long sequence, or
    padding: of two sequences of 1000 and 24 tokens in rows of 1024, a thousand tokens of the second are padding.

    Fix: Leave `varlen` out and mask the padding (`pattern: document` for sequences behind each other); or `family:
    fa4`.
    """
    if case.problem.varlen and not get_family(case.family).varlen:
        message = f"varlen {', '.join(case.problem.varlen)} is not taken by {case.family}"
        yield Violation("problem.varlen", message, (Fix("problem.varlen", None),), "mask the padding instead")

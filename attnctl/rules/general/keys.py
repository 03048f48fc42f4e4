"""Keys and values that differ from the queries in more than their length."""

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

"""FLEX-005, 006 and 027: heads, batches and head dimensions."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.flex import options, tiles
from attnctl_kernels.flex.rules.values import REBUILD
from attnctl_kernels.rule import Fix, Severity, Violation, divisors_around, nearest_multiples, rule


@rule(
    "FLEX-005",
    why="a product of Triton is at least 16 deep",
    upstream=(
        "NYI: embedding dimension of the query, key, and value must be at least 16 but got E={} and Ev={}",
        "Expect query and key/value to have the same embedding dimension but got E={} and E={}.",
        "NYI: Currently non power of 2 embedding dimension are not supported. Got E={} and Ev={}.",
        (
            "NYI: Currently value embedding dimension must be less than or equal to query embedding dimension. Got "
            "Ev={} "
            "and E={}."
        ),
    ),
)
def head_dim_not_supported(case: Case) -> Iterator[Violation]:
    """A head dimension is too small, or, in torch 2.5, not a power of two or wider for values than for keys.

    What: `head_dim` and `head_dim_v` are at least 16 where a Triton kernel runs. torch 2.5 takes powers of two alone,
    with `head_dim_v` at most `head_dim`.

    Why: tl.dot is at least 16 deep. Other sizes than powers of two crashed the Triton of torch 2.5; torch 2.13 pads
    them.

    Fix: 8 -> 16, with zeros: they change neither scores nor output. 96 in torch 2.5 -> 128.
    """
    problem, old = case.problem, case.version == tiles.OLD
    dims = {"head_dim": problem.head_dim}
    if problem.head_dim_v != problem.head_dim:
        dims["head_dim_v"] = problem.head_dim_v
    on_triton = options.kernel(case) in ("triton", "decode", "flash")
    for name, value in dims.items():
        if (old or on_triton) and value < tiles.SMALLEST_TILE:
            fix = Fix(f"problem.{name}", tiles.SMALLEST_TILE, "pad with zeros")
            yield Violation(f"problem.{name}", f"{name} {value} is below {tiles.SMALLEST_TILE}", (fix,))
        elif old and not tiles.is_power_of_two(value):
            fix = Fix(f"problem.{name}", tiles.next_power_of_two(value), "pad with zeros")
            message = f"{name} {value} is not a power of two, which torch 2.5 needs"
            yield Violation(f"problem.{name}", message, (fix, Fix("version", "2.13")))
    if old and problem.head_dim_v > problem.head_dim:
        message = f"torch 2.5 takes no head_dim_v {problem.head_dim_v} above head_dim {problem.head_dim}"
        fixes = (Fix("problem.head_dim", problem.head_dim_v, "pad with zeros"), Fix("version", "2.13"))
        yield Violation("problem.head_dim_v", message, fixes)


@rule(
    "FLEX-006",
    why="each query reads one key head, of one sequence of keys",
    upstream=(
        "NYI: query, key, and value must be 4D tensors",
        (
            "Expect query and key/value to have the same number of heads but got Hq={} and Hkv={}. Try setting "
            "enable_gqa=True for GQA."
        ),
        "Expect number of query heads to be a multiple of kv heads for GQA but got Hq={} and Hkv={}.",
        (
            "Expect query and key/value to have the same batch size, or non-none block_mask, but got block_mask=None, "
            "Bq={}, and Bkv={}."
        ),
        (
            "Expect query and key/value to have the same batch size, or block_mask and query to have the same batch "
            "size, "
            "but got Bq={}, Bkv={}, B_block_mask={}."
        ),
        "Bq and Bkv must broadcastable. Got Bq={} and Bkv={}",
        "flex_attention does not support NestedTensor inputs",
    ),
)
def heads_or_batches_do_not_match(case: Case) -> Iterator[Violation]:
    """The heads or the batch of the queries do not match those of the keys.

    What: `num_heads_q` equals `num_heads_kv`, or is a multiple of it and `enable_gqa` is true. attnctl passes
    `enable_gqa` where the numbers differ; a program has to do so itself. `batch_size_kv` equals `batch_size`, or is 1
    and the mask has the batch size of the queries.

    Why: Grouped heads are not assumed, because different numbers are more often a mistake. Keys of one sequence serve
    all queries only where the mask tells the queries apart.

    Fix: `enable_gqa: true`; 12 query heads on 5 key heads -> 4 or 6 key heads. `batch_size_kv: 1` with `layout:
    {batch_size: 4}` for a batch of 4.
    """
    problem = case.problem
    queries, keys = problem.num_heads_q, problem.num_heads_kv
    if queries % keys:
        fixes = [Fix("problem.num_heads_kv", each) for each in divisors_around(queries, keys)]
        fixes += [Fix("problem.num_heads_q", each) for each in nearest_multiples(queries, keys)]
        message = f"num_heads_q {queries} is not a multiple of num_heads_kv {keys}"
        yield Violation("problem.num_heads_kv", message, tuple(fixes))
    elif queries != keys and case.config.get("enable_gqa") is False:
        message = f"{queries} query heads on {keys} key heads need enable_gqa"
        yield Violation("config.enable_gqa", message, (Fix("config.enable_gqa", value=True),))
    yield from _batches(case)


def _batches(case: Case) -> Iterator[Violation]:
    problem = case.problem
    if problem.batch_size_kv in (None, problem.batch_size):
        return
    same = Fix("problem.batch_size_kv", problem.batch_size)
    fault = f"batch_size_kv {problem.batch_size_kv} differs from batch_size {problem.batch_size}"
    masks = (case.layout.batch_size if case.layout else None) or 1
    if case.version == tiles.OLD or problem.batch_size_kv != 1 or case.sparse_block is None:
        yield Violation("problem.batch_size_kv", fault, (same,))
    elif masks != problem.batch_size:
        message = f"{fault}, and the mask has {masks}"
        yield Violation("problem.batch_size_kv", message, (Fix("layout.batch_size", problem.batch_size, REBUILD), same))


@rule(
    "FLEX-027",
    severity=Severity.WARNING,
    versions=("2.13",),
    why="the kernel computes with the next power of two, and checks the end of every row",
)
def head_dim_padded(case: Case) -> Iterator[Violation]:
    """A head dimension is not a power of two.

    What: `head_dim` and `head_dim_v` are powers of two where a Triton kernel runs.

    Why: Triton stores 192 columns as 256, with a mask on each load: a third more shared memory, registers and
    multiplications than needed.

    Fix: 96 costs as much as 128. Another family may take 192 as it is.
    """
    problem = case.problem
    if options.kernel(case) not in ("triton", "decode"):
        return
    dims = {"head_dim": problem.head_dim}
    if problem.head_dim_v != problem.head_dim:
        dims["head_dim_v"] = problem.head_dim_v
    for name, value in dims.items():
        if value > tiles.SMALLEST_TILE and not tiles.is_power_of_two(value):
            padded = tiles.next_power_of_two(value)
            fixes = tuple(Fix(f"problem.{name}", each) for each in (padded // 2, padded))
            more = f"{(padded - value) / value * 100:.1f} % more columns"
            yield Violation(f"problem.{name}", f"{name} {value} is computed as {padded}, {more}", fixes)

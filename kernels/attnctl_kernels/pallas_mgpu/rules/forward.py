"""PAL-F: what the kernels demand of the problem; lengths here are those of the forward kernel."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case, join_words
from attnctl_kernels.pallas_mgpu.resources import FORWARD_WGS
from attnctl_kernels.pallas_mgpu.rules.values import number, ragged
from attnctl_kernels.rule import Fix, Severity, Violation, divisors_around, nearest_multiples, rule

MAX_HEAD_DIM = 256


MISCOMPILING = range(12080, 12091)  # CUDA runtimes whose ptxas gets causal masks wrong


@rule(
    "PAL-F001",
    why="V is read with the shape of K, and O is written with the shape of Q",
    upstream=(
        "Expected k.shape={} to be {} (inferred from q)",
        "Expected v.shape={} to be {} (inferred from q)",
        "attention_mgpu … must produce an output with the same type as the args tuple of the primal function",
        "q, k, and v should all be 4D, got: {}",
        "q, k, and v should all have the same dtype, got: {}",
    ),
)
def value_head_dim_differs(case: Case) -> Iterator[Violation]:
    """V has another head dimension than Q and K.

    What: `head_dim_v` equals `head_dim`. 192 beside 128 cannot run.

    Why: One head dimension sizes all buffers. JAX's check of V looks at K's shape a second time, so a wrong V is
    not noticed there: the kernel reads the wrong rows. The ranker's check looks at V.

    Fix: Leave `head_dim_v` out, or pad V: head_dim 192 needs head_dim_v 192.
    """
    problem = case.problem
    if problem.head_dim_v != problem.head_dim:
        yield Violation(
            "problem.head_dim_v",
            f"head_dim_v={problem.head_dim_v} differs from head_dim={problem.head_dim}",
            (Fix("problem.head_dim_v", problem.head_dim),),
        )


@rule(
    "PAL-F002",
    why="the kernels multiply 16-bit elements",
    upstream=(
        "Only f16 and bf16 are supported, got dtype: {}",
        "Expected same element type, got {} and {}",
        "Expected dtypes to match but src had type {} and dst had type {}",
        "Mixed input dtypes for matrix multiplication unsupported: lhs={}, rhs={}",
    ),
)
def dtype_not_supported(case: Case) -> Iterator[Violation]:
    """The element type is not one that the kernel can use.

    What: `ranker_fa3` takes float16 and bfloat16. `pallas_mgpu` takes float16 only: bfloat16 passes JAX's check and
    then fails, because its scratch buffers and gradients are declared float16.

    Why: wgmma wants both operands of one 16-bit type, and the buffers' type is a constant in JAX's kernel.

    Fix: `dtype: float16`.
    """
    usable = ("float16",) if case.family == "pallas_mgpu" else ("bfloat16", "float16")
    if case.problem.dtype not in usable:
        yield Violation(
            "problem.dtype",
            f"{case.family} cannot take dtype={case.problem.dtype}",
            tuple(Fix("problem.dtype", each) for each in usable),
        )


@rule(
    "PAL-F003",
    why="each key head serves the same number of query heads",
    upstream=("num_q_heads={} must be divisible by and num_kv_heads={}",),
)
def heads_do_not_group(case: Case) -> Iterator[Violation]:
    """The query heads cannot be shared out evenly over the key heads.

    What: `num_heads_q % num_heads_kv == 0`. 12 query heads over 5 key heads are rejected.

    Why: The key head of query head h is `h // (num_heads_q / num_heads_kv)`, an integer division.

    Fix: 12/5 -> 12/4, 10/5 or 15/5.
    """
    q, kv = case.problem.num_heads_q, case.problem.num_heads_kv
    if q % kv:
        yield Violation(
            "problem.num_heads_kv",
            f"num_heads_q={q} is not a multiple of num_heads_kv={kv}",
            (
                *(Fix("problem.num_heads_kv", each) for each in divisors_around(q, kv)),
                *(Fix("problem.num_heads_q", each) for each in nearest_multiples(q, kv)),
            ),
        )


@rule(
    "PAL-F004",
    why="rows are swizzled 64 elements at a time, and the wgmma of P * V is at most 256 wide",
    upstream=("head_dim={} must be divisible by 64", "key_size must be a multiple of 64"),
)
def head_dim_not_supported(case: Case) -> Iterator[Violation]:
    """The head dimension is not 64, 128, 192 or 256.

    What: `head_dim % 64 == 0` and `head_dim <= 256`. 96 is refused; 320 fails while the kernel is lowered.

    Why: Rows are swizzled 128 bytes at a time, 64 elements of 16 bits. The output accumulator is `head_dim` wide,
    and a wgmma is at most 256 wide.

    Fix: Pad with zeros: 80 or 96 -> 128 (zero columns change neither the scores nor the output).
    """
    dim = case.problem.head_dim
    if dim % 64 == 0 and dim <= MAX_HEAD_DIM:
        return
    nearest = nearest_multiples(dim, 64) if dim < MAX_HEAD_DIM else (MAX_HEAD_DIM,)
    yield Violation(
        "problem.head_dim",
        f"head_dim={dim} is not a multiple of 64 up to {MAX_HEAD_DIM}",
        tuple(Fix("problem.head_dim", each) for each in reversed(nearest)),
    )


@rule(
    "PAL-F005",
    passes=("forward",),
    why="the forward kernel has no ragged key tile",
    upstream=("kv_seq_len={} must be a multiple of block_kv={}",),
)
def ragged_keys_in_forward(case: Case) -> Iterator[Violation]:
    """The forward key tiles do not cover the keys evenly.

    What: `seqlen_k % block_kv == 0`. 1000 keys leave 104 over at `block_kv: 128`.

    Why: The kernel walks `seqlen_k / block_kv` whole tiles and masks nothing at the end.

    Fix: Pad to 1024 or cut to 896; or take a smaller block that divides the length (1088 works with 64).
    """
    yield from ragged(case, "seqlen_k", "block_kv")


@rule(
    "PAL-F006",
    passes=("forward",),
    why="the forward kernel always has two compute warp groups with block_q rows each",
    upstream=("q_seq_len={} must be a multiple of block_q * 2={}",),
)
def ragged_queries_in_forward(case: Case) -> Iterator[Violation]:
    """The forward query tiles do not cover the queries evenly.

    What: `seqlen_q % (2 * block_q) == 0`. 1088 queries leave 64 over at `block_q: 64`.

    Why: A program handles two tiles of `block_q` rows, one per compute warp group, whatever `compute_wgs_bwd` says.

    Fix: Pad to 1152 or cut to 1024; or take a smaller block where one divides the length.
    """
    yield from ragged(case, "seqlen_q", "block_q", FORWARD_WGS)


@rule(
    "PAL-F007",
    severity=Severity.WARNING,
    passes=("forward",),
    why="there are never more stages than key tiles",
)
def more_steps_than_tiles(case: Case) -> Iterator[Violation]:
    """The ring is longer than the row of key tiles.

    What: `max_concurrent_steps <= seqlen_k / block_kv`. 4 steps over 256 keys at `block_kv: 128` become 2.

    Why: Upstream takes the smaller of the two without saying so: the config does not do what it says.

    Fix: Write the number of stages that is used.
    """
    steps, block = number(case, "max_concurrent_steps"), number(case, "block_kv")
    tiles = case.problem.seqlen_k // block if block else 0
    if 2 <= tiles < steps:
        field = "config.max_concurrent_steps"
        yield Violation(
            field,
            f"max_concurrent_steps={steps} is more than the {tiles} key tiles of {block}, and becomes {tiles}",
            (Fix(field, tiles),),
        )


@rule(
    "PAL-F008",
    passes=("forward",),
    why="the kernel ignores it, or counts positions from the first query and key, without any message",
    upstream=(
        "Causal attention is not supported",
        "Causal masking not supported with cuda versions between 12.8.0 and 12.9.1 due to a ptxas miscompilation.",
    ),
)
def causal_mask_not_honoured(case: Case) -> Iterator[Violation]:
    """A causal mask gives wrong results.

    What: `ranker_fa3` has no causal mask: the flag is ignored and attention is full. `pallas_mgpu` has one, for
    `seqlen_q == seqlen_k` only, and not where `cuda_runtime` is 12080 to 12090 (CUDA 12.8.0 up to, not including,
    12.9.1).

    Why: The ranker kernel reads its bounds, never the flag. JAX's kernel lets query i see keys 0 to i. With fewer
    queries than keys that is another mask than a profile's, which lets the last query see the last key. With more, the
    number of key tiles is not limited to those that exist, and rows past the last key see zero-filled keys. The ptxas
    of those releases of CUDA compiles the causal kernel wrongly, which JAX refuses.

    Fix: `ranker_fa3`: use `pattern: history_candidate` or `dense`. `pallas_mgpu`: as many queries as keys; CUDA 12.9.1
    is `cuda_runtime: 12091`.
    """
    problem = case.problem
    if problem.mask.pattern != "causal":
        return
    if case.family != "pallas_mgpu":
        yield Violation(
            "mask.pattern",
            f"{case.family} ignores a causal mask and computes full attention",
            (Fix("mask.pattern", "dense"),),
        )
    elif problem.seqlen_q != problem.seqlen_k:
        relation = "more" if problem.seqlen_q > problem.seqlen_k else "less"
        yield Violation(
            "problem.seqlen_q",
            f"seqlen_q={problem.seqlen_q} is {relation} than seqlen_k={problem.seqlen_k} under a causal mask",
            (Fix("problem.seqlen_q", problem.seqlen_k),),
        )
    runtime = case.config.get("cuda_runtime")
    if case.family == "pallas_mgpu" and isinstance(runtime, int) and runtime in MISCOMPILING:
        message = f"CUDA {runtime // 1000}.{runtime % 1000 // 10}.{runtime % 10} compiles a causal mask wrongly"
        yield Violation("config.cuda_runtime", message, (Fix("config.cuda_runtime", MISCOMPILING.stop),))


@rule("PAL-F012", why="the kernel has no argument that would carry the mask")
def mask_not_available(case: Case) -> Iterator[Violation]:
    """The mask is not one that the kernel has.

    What: `pallas_mgpu` has `dense` and `causal`; `ranker_fa3` has `dense` and `history_candidate`.

    Why: JAX's attention takes no mask and no block lists, only the flag `causal`. The ranker's takes the two ranges of
    history and candidates.

    Fix: `fa4` and `flex` run every pattern; `ranker_fa3` runs history and candidates in Pallas.
    """
    pattern = case.problem.mask.pattern
    known = ("dense", "causal") if case.family == "pallas_mgpu" else ("dense", "history_candidate")
    if pattern not in known and pattern != "causal":  # PAL-F008 speaks of causal masks
        yield Violation(
            "mask.pattern",
            f"{case.family} has no {pattern} mask, only {join_words(known, 'and')}",
            (Fix("mask.pattern", "dense"),),
        )

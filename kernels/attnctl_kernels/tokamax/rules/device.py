"""TOK-005, TOK-006, TOK-008, TOK-011 to TOK-013: what the device and the kernels have."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case
from attnctl_kernels.rule import Fix, Severity, Violation, divisors_around, multiples_below, nearest_multiples, rule
from attnctl_kernels.tokamax.resources import SMEM_LIMIT, TMEM_COLUMNS, Kernel, kernels
from attnctl_kernels.tokamax.values import (
    BLACKWELL,
    HOPPER,
    MOSAIC,
    implementation,
    is_forward,
    mask_dims,
    number,
    on_mosaic,
    value,
)

MAX_BARRIERS = 16
OWN_BARRIERS = 7  # of the launch, the schedule and the queries
NARROW = ("BF16_BF16_F32", "F16_F16_F32")
NO_TRITON_ROW = 2048  # bytes: of a padded row of K, above which upstream found no block that fits
_STEP = {"num_stages": 1, "compute_wgs": 1, "residual_stages": 1}


@rule(
    "TOK-005",
    arches=MOSAIC,
    why="a block has 227 KiB of shared memory",
    upstream=("Mosaic GPU kernel exceeds available shared memory: smem_bytes={} > max_smem_bytes={}",),
)
def shared_memory_exceeded(case: Case) -> Iterator[Violation]:
    """A kernel needs more shared memory than a block has.

    What: At most 232448 bytes. Forward on sm_90, 16-bit: `4 * block_q * D` for Q, `2 * num_stages * block_kv * (D +
    Dv)` for K and V, and 16 KiB per warp group for the output, which shares Q's place unless `persistent`. A bias or a
    mask with both sequence dimensions adds `num_stages * 2 * block_q * block_kv` elements.

    Why: The ring of K and V is most of it. Given no Config, upstream shrinks `block_kv`, stages and `persistent` by
    itself; a Config given by hand fails while the kernel is lowered.

    Fix: head_dim 128, 64/128, 2 stages, persistent: 196648 fits. 3 stages need 262200: `block_kv: 64`, or 2 stages.
    """
    if case.arch in BLACKWELL and not is_forward(case):
        return  # TOK-011
    yield from (violation for kernel in kernels(case) for violation in _over(case, kernel, shared=True))


@rule(
    "TOK-011",
    arches=BLACKWELL,
    why="tensor memory has 512 columns, and both backward kernels share one Config",
    upstream=("Could not find any SM100 dual kernel configuration that fits in shared memory (limit: {} bytes).",),
)
def tensor_memory_exceeded(case: Case) -> Iterator[Violation]:
    """A kernel needs more tensor memory, or a backward kernel more shared memory, than there is (sm_100).

    What: Forward `2 * block_kv + Dv`, dQ `2 * block_kv_dq + D`, dKV `2 * block_q_dkv + D + Dv` columns: at most 512,
    with D and Dv rounded up to 64 in the backward pass. dQ and dKV each need at most 232448 bytes of shared memory.

    Why: Scores and probabilities, or their gradients, lie in tensor memory beside the accumulators. At head_dim 256
    the accumulators of dK and dV alone fill it: no backward config exists.

    Fix: head_dim 128: dKV with `block_q_dkv: 128` takes 512 columns, exactly all.
    """
    yield from (
        violation
        for kernel in kernels(case)
        for violation in _over(case, kernel, shared=not is_forward(case), tensor=True)
    )


def _over(case: Case, kernel: Kernel, *, shared: bool, tensor: bool = False) -> Iterator[Violation]:
    """A violation with every single change that fits, the largest value of each parameter."""
    measures: list[tuple[Callable[[Case], int], int, str]] = []
    if tensor and kernel.tmem_columns:
        measures.append((kernel.tmem_columns, TMEM_COLUMNS, "columns of tensor memory"))
    if shared:
        measures.append((kernel.smem_bytes, SMEM_LIMIT, "bytes of shared memory"))

    def fits(changed: Case) -> bool:
        return all(measure(changed) <= limit for measure, limit, _ in measures)

    if fits(case):
        return
    over = [(measure(case), limit, what) for measure, limit, what in measures if measure(case) > limit]
    faults = [f"{used} {what}, {used - limit} over {limit}" for used, limit, what in over]
    fixes = []
    for name in kernel.knobs:
        step = _STEP.get(name, 64)
        smaller = multiples_below(number(case, name), step)
        fitting = next((each for each in smaller if fits(_with(case, name, each))), None)
        fixes += [Fix(f"config.{name}", fitting)] if fitting else []
    if is_forward(case) and value(case, "persistent") and fits(_with(case, "persistent", False)):
        fixes.append(Fix("config.persistent", value=False))
    advice = "" if fixes else f"no single parameter avoids this at head_dim {case.problem.head_dim}"
    message = f"the {kernel.name} kernel needs {' and '.join(faults)}"
    yield Violation(f"config.{kernel.knobs[1]}", message, tuple(fixes), advice)


def _with(case: Case, name: str, changed: int | bool) -> Case:
    return replace(case, config={**case.config, name: changed}, given=case.given | {name})


@rule(
    "TOK-006",
    passes=("forward",),
    arches=HOPPER,
    why="a block has 16 named barriers, and each stage takes two, or three with a mask",
    upstream=("v_consumed_barrier + num_stages <= 16", "mask_consumed_barrier + num_stages <= 16"),
)
def too_many_stages_for_barriers(case: Case) -> Iterator[Violation]:
    """The stages need more named barriers than there are (sm_90).

    What: `7 + 2 * num_stages` is at most 16, so that there are at most 4 stages; with a mask array that is loaded by
    the stage, `7 + 3 * num_stages`, at most 3. That is a mask with both sequence dimensions, or one along the keys
    with `block_kv` of 128 or more.

    Why: Each stage of K, of V and of the mask has a barrier of its own. A bare assertion says so while the kernel is
    traced.

    Fix: 5 stages -> 4, or 3 with a mask.
    """
    stages = number(case, "num_stages")
    masked = mask_dims(case) == 2 or (mask_dims(case) == 1 and number(case, "block_kv") >= 128)
    most = (MAX_BARRIERS - OWN_BARRIERS) // (3 if masked else 2)
    if on_mosaic(case) and stages > most:
        beside = " with a mask array" if masked else ""
        needed = OWN_BARRIERS + (3 if masked else 2) * stages
        message = f"num_stages {stages}{beside} needs {needed} named barriers of {MAX_BARRIERS}"
        yield Violation("config.num_stages", message, (Fix("config.num_stages", most),))


@rule(
    "TOK-008",
    why="the kernels are written for two generations, and for 16-bit products",
    upstream=(
        "Only supported for sm90 and sm100 GPUs.",
        "Mosaic GPU backend only supported for sm90+ GPUs for now.",
        "Mosaic GPU backend only supported for sm90 and sm100 GPUs.",
        "Mosaic GPU not supported on this platform.",
        "Only f32, f16 and bf16 inputs are supported.",
        "`logits_dtype` must be float32.",
        "tokamax … dropout is not supported.",
        "tokamax … Paged attention not supported.",
        "Unstable softmax not supported on sm100.",
        "num_q_heads={} must be divisible by num_kv_heads={}",
        "tokamax … Unsupported precision: {}",
        "Only f16 and bf16 are supported, got dtype: {}",
    ),
)
def not_supported_by_mosaic(case: Case) -> Iterator[Violation]:
    """The call needs something that the Mosaic kernels do not have.

    What: The arch is sm_90, sm_100 or sm_103. num_heads_q is a multiple of num_heads_kv. `logits_dtype` is float32;
    there is no dropout and no paging; on sm_100 the softmax is the stable one. float32 inputs need `precision:
    BF16_BF16_F32` or `F16_F16_F32`.

    Why: float32 means TF32 by default, which the kernels refuse ("Unsupported precision"); with one of the two presets
    they cast to 16 bits.

    Fix: `implementation: triton` runs on every arch from sm_80 on. 12 query heads on 5 key heads -> 4 or 6 key heads.
    """
    problem, config = case.problem, case.config
    if implementation(case) != "mosaic":
        return
    if case.arch not in MOSAIC:
        fixes = (Fix("config.implementation", "triton"), *(Fix("arch", each) for each in MOSAIC))
        yield Violation("arch", f"the Mosaic kernels do not run on {case.arch}", fixes)
    if problem.num_heads_q % problem.num_heads_kv:
        queries, keys = problem.num_heads_q, problem.num_heads_kv
        grouped = [Fix("problem.num_heads_kv", each) for each in divisors_around(queries, keys)]
        grouped += [Fix("problem.num_heads_q", each) for each in nearest_multiples(queries, keys)]
        message = f"num_heads_q {queries} is not a multiple of num_heads_kv {keys}"
        yield Violation("problem.num_heads_kv", message, tuple(grouped))
    if problem.dtype == "float32" and config.get("precision") not in NARROW:
        narrow = [Fix("config.precision", each, "computes in 16 bits") for each in NARROW]
        cast = [Fix("problem.dtype", each) for each in ("bfloat16", "float16")]
        yield Violation("problem.dtype", "float32 means TF32, which the kernels refuse", (*narrow, *cast))
    if config.get("logits_dtype", "float32") != "float32":
        name = "config.logits_dtype"
        yield Violation(name, f"logits_dtype {config['logits_dtype']} is not float32", (Fix(name, "float32"),))
    for switch in ("dropout", "paged"):
        if config.get(switch):
            yield Violation(
                f"config.{switch}", f"there is no {switch} attention", (Fix(f"config.{switch}", value=False),)
            )
    if case.arch in BLACKWELL and config.get("use_stable_softmax") is False:
        name = "config.use_stable_softmax"
        yield Violation(name, f"the softmax is always stable on {case.arch}", (Fix(name, value=True),))


@rule(
    "TOK-012",
    severity=Severity.WARNING,
    why="inputs are clipped to the range of the type and rounded before the first product",
)
def float32_computed_in_16_bits(case: Case) -> Iterator[Violation]:
    """float32 inputs are cast to 16 bits.

    What: With `precision: BF16_BF16_F32` or `F16_F16_F32` the inputs have that type already.

    Why: Queries, keys and values are cast, not only the products: the result is no better than that of 16-bit inputs,
    and they take twice the memory traffic once.

    Fix: Cast before the call: `dtype: bfloat16`.
    """
    precision = case.config.get("precision")
    if implementation(case) == "mosaic" and case.problem.dtype == "float32" and precision in NARROW:
        narrow = "bfloat16" if precision == NARROW[0] else "float16"
        yield Violation("problem.dtype", f"float32 is computed in {narrow}", (Fix("problem.dtype", narrow),))


@rule(
    "TOK-013",
    passes=("backward",),
    why="its blocks have one size, whatever the head dimension and the type are",
    upstream=("RESOURCE_EXHAUSTED: Shared memory size limit exceeded: requested {}, available: {}",),
)
def triton_backward_exceeds_shared_memory(case: Case) -> Iterator[Violation]:
    """The blocks of the Triton backward kernel need more shared memory than a block has.

    What: With `implementation: triton`, (block_n1 + block_m1) * (D + Dv) elements, and the same of block_m2 and
    block_n2, fit into shared memory, with D and Dv rounded up to powers of two; and a padded row of K is shorter than
    2048 bytes.

    Why: Upstream's blocks (32, 64, 64, 32) do not shrink. head_dim 320 is padded to 512: 196608 bytes and more, of
    166912 on sm_80. head_dim 256 in float32 is as large; in bfloat16 it fits. At head_dim 1024 in bfloat16 users found
    no block that fits.

    Fix: head_dim 512 on sm_80: `block_n1: 32` with `block_m2: 32`.
    """
    if implementation(case) != "triton" or case.arch not in ARCHES:
        return
    problem, limit = case.problem, ARCHES[case.arch].smem_bytes
    dims = [1 << (each - 1).bit_length() for each in (problem.head_dim, problem.head_dim_v)]
    row = dims[0] * problem.element_bytes
    padded = f"head_dim {problem.head_dim} is padded to {dims[0]}"
    if row >= NO_TRITON_ROW:
        most = NO_TRITON_ROW // problem.element_bytes // 2
        message = f"{padded}, {row} bytes per row: no block size fits"
        yield Violation("problem.head_dim", message, (Fix("problem.head_dim", most),))
        return
    for wide, narrow in (("block_n1", "block_m1"), ("block_m2", "block_n2")):
        rows = number(case, wide), number(case, narrow)
        per_row = sum(dims) * problem.element_bytes
        if min(rows) and sum(rows) * per_row > limit:
            message = f"{wide} {rows[0]} and {narrow} {rows[1]} need {sum(rows) * per_row} bytes of {limit}; {padded}"
            fitting = [
                (wide, _fitting(rows[0], limit // per_row - rows[1])),
                (narrow, _fitting(rows[1], limit // per_row - rows[0])),
            ]
            fixes = tuple(Fix(f"config.{name}", each) for name, each in fitting if each)
            yield Violation(f"config.{wide}", message, fixes, "" if fixes else f"start from {wide} 16, {narrow} 16")


def _fitting(block: int, most: int) -> int | None:
    """The largest power of two below ``block`` that is at most ``most``."""
    return next((each for each in (128, 64, 32, 16) if each < block and each <= most), None)

"""FA4-B010 to B012, B017, B018, B021, B025: what the backward kernels do not have."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.backward import sm120_smem_bytes
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.fa4.rules.values import HEAD_DIM_GRANULE, nearest
from attnctl_kernels.rule import Fix, Severity, Violation, rule

BACKWARD_TILES_N = (64, 128)
OVERRIDE = "FLASH_ATTENTION_BWD_TILE_N"


@rule(
    "FA4-B010",
    passes=("backward",),
    arches=("sm_120",),
    why="the kernel is that of sm_80, which has none of it",
    upstream=(
        "score_mod backward not supported on SM 12.0",
        "mask_mod backward not supported on SM 12.0",
        "deterministic backward not supported on SM 12.0",
    ),
)
def switch_without_backward(case: Case) -> Iterator[Violation]:
    """A switch that the backward pass of sm_120 does not have.

    What: `score_mod`, `score_mod_bwd`, `mask_mod` and `deterministic` are not set on sm_120.

    Why: Four assertions at the entry of the backward pass. The forward pass takes score_mod and mask_mod, so that
    training fails after its first step forward. (Block lists: FA4-S017.)

    Fix: The native causal flag or window; or the family `flex`.
    """
    for name in ("score_mod", "score_mod_bwd", "mask_mod", "deterministic"):
        if case.config.get(name):
            yield Violation(f"config.{name}", f"{name} has no backward pass on sm_120", (Fix(f"config.{name}", False),))


@rule(
    "FA4-B011",
    passes=("backward",),
    arches=("sm_90", *tiles.BLACKWELL),
    why="the gradient of the scores goes through the function's derivative, which nobody derives",
    upstream=(
        "score_mod_bwd is required when score_mod is provided",
        "softcap and score_mod/score_mod_bwd cannot be used together",
    ),
)
def score_derivative_missing(case: Case) -> Iterator[Violation]:
    """A function of scores without its derivative, or beside a cap.

    What: `score_mod` comes with `score_mod_bwd`; neither comes with `softcap`.

    Why: The chain rule. A cap brings its own pair of functions.

    Fix: Pass `score_mod_bwd(grad, score, ...)`: for `score * 2` it returns `grad * 2`.
    """
    config = case.config
    if config.get("score_mod") and not config.get("score_mod_bwd"):
        fix = Fix("config.score_mod_bwd", True)
        yield Violation("config.score_mod_bwd", "score_mod has no score_mod_bwd", (fix,))
    named = [name for name in ("score_mod", "score_mod_bwd") if config.get(name)]
    if config.get("softcap") and named:
        message = f"softcap and {' and '.join(named)} do not go together"
        yield Violation("config.softcap", message, (Fix("config.softcap", None),))


@rule(
    "FA4-B012",
    passes=("backward",),
    why="the backward pass reads what the forward pass wrote, in the types in which it wrote it",
    upstream=(
        "FA4 CuTe FP8 backward is not supported yet (forward-only).",
        "lse must be float32",
        "inputs must have the same dtype",
        "inputs must be float16 or bfloat16",
    ),
)
def saved_tensors_of_other_types(case: Case) -> Iterator[Violation]:
    """The output or the log-sum-exp that the backward pass gets has another type than the forward pass wrote.

    What: `layout.out_dtype` is the dtype of the problem, `layout.lse_dtype` float32.

    Why: Q, K, V, O and dO share one type. A log-sum-exp that was cast to bfloat16 on the way has 8 bits: exp(S - lse)
    is then wrong by up to a factor of 1.03 at lse 8.

    Fix: Keep both as they are; autocast is the usual culprit.
    """
    layout = case.layout
    if layout is None:
        return
    for name, wanted in (("out_dtype", case.problem.dtype), ("lse_dtype", "float32")):
        value = getattr(layout, name)
        if value not in (None, wanted):
            message = f"{name.removesuffix('_dtype')} is {value}, the backward pass needs {wanted}"
            yield Violation(f"layout.{name}", message, (Fix(f"layout.{name}", wanted),))


@rule(
    "FA4-B017",
    passes=("backward",),
    arches=tiles.BLACKWELL,
    why="S, dP, dV and dK of a tile fill the 512 columns of tensor memory at head_dim 128",
    upstream=(
        "TMEM map needs {}",
        "Must use 2CTA for hdim 192 / 256",
        "FLASH_ATTENTION_BWD_TILE_N must be 64 or 128, got {}",
    ),
)
def backward_dims_unsupported(case: Case) -> Iterator[Violation]:
    """Head dimensions, or a tile, that the backward kernels of sm_100, sm_103 and sm_110 do not have.

    What: `head_dim` and `head_dim_v` are multiples of 8 from 8 to 128; or 192 and 128; or 256 and 256. Where
    `FLASH_ATTENTION_BWD_TILE_N` is set it is 64 or 128, and `FA_DISABLE_2CTA` is not 1 at head_dim 192.

    Why: 128 columns each for S and dP, and head_dim and head_dim_v columns for dK and dV: 512 at 128. The larger sizes
    run in pairs of CTAs only, or in kernels of their own. (64 with 512, for latent attention, has other entries.)

    Fix: (96, 192) -> (192, 128), or pad to (256, 256).
    """
    dim, dim_v = case.problem.head_dim, case.problem.head_dim_v
    if not _has_backward(dim, dim_v):
        legal = range(HEAD_DIM_GRANULE, 257, HEAD_DIM_GRANULE)
        same = dim == dim_v
        fixes = [
            Fix("problem.head_dim", each)
            for each in nearest(dim, (each for each in legal if _has_backward(each, each if same else dim_v)))
        ]
        fixes += [
            Fix("problem.head_dim_v", each)
            for each in nearest(dim_v, (each for each in legal if _has_backward(dim, each)))
        ]
        message = f"head_dim {dim} with head_dim_v {dim_v} has no backward kernel on {case.arch}"
        yield Violation("problem.head_dim", message, tuple(fixes), "" if fixes else "pad both to 256")
    override = case.config.get(OVERRIDE)
    if isinstance(override, int) and override not in BACKWARD_TILES_N:
        fixes = [Fix(f"config.{OVERRIDE}", each) for each in BACKWARD_TILES_N]
        yield Violation(f"config.{OVERRIDE}", f"{OVERRIDE} {override} is not 64 or 128", tuple(fixes))
    call = Call(case)
    if dim == 192 and call.disables_pairs and not call.sparse:
        fix = Fix("config.FA_DISABLE_2CTA", 0)
        yield Violation("config.FA_DISABLE_2CTA", "FA_DISABLE_2CTA turns off what head_dim 192 needs", (fix,))


def _has_backward(dim: int, dim_v: int) -> bool:
    usual = 8 <= dim <= 128 and 8 <= dim_v <= 128
    whole = dim % HEAD_DIM_GRANULE == 0 and dim_v % HEAD_DIM_GRANULE == 0
    return (usual and whole) or (dim, dim_v) in ((192, 128), (256, 256))


@rule(
    "FA4-B025",
    passes=("backward",),
    arches=tiles.BLACKWELL,
    severity=Severity.WARNING,
    why="the tile of 64 exists for one schedule alone, and the variable is dropped elsewhere",
)
def backward_tile_override_ignored(case: Case) -> Iterator[Violation]:
    """`FLASH_ATTENTION_BWD_TILE_N` is 64 where the kernel takes no notice (sm_100 to sm_110).

    What: 64 is honoured for pairs of CTAs (head_dim 128 without FA_DISABLE_2CTA) without block lists, where
    head_dim_v, rounded up to 32, is a multiple of 64 of at most 128.

    Why: It is a switch for tests. Elsewhere the tile stays 128 and nothing says so.

    Fix: Leave it out.
    """
    if case.config.get(OVERRIDE) != 64:
        return
    call, (dim, dim_v) = Call(case), Call(case).dims
    rounded = [-(-each // 32) * 32 for each in (dim, dim_v)]
    honoured = (
        dim == 128 and dim_v <= 128 and not call.disables_pairs and not call.sparse and not any(x % 64 for x in rounded)
    )
    if not honoured:
        message = f"{OVERRIDE} 64 is ignored at head_dim {dim} with head_dim_v {dim_v}"
        message += " and block lists" if call.sparse else ""
        yield Violation(f"config.{OVERRIDE}", message, (Fix(f"config.{OVERRIDE}", 128),))


@rule(
    "FA4-B018",
    passes=("backward",),
    arches=tiles.BLACKWELL,
    why="a kernel of its own runs it, which knows dense and causal attention",
    upstream=(
        "SM100 backward with head_dim=256 does not support softcap",
        "SM100 backward with head_dim=256 does not support block sparsity",
        "SM100 backward with head_dim=256 does not support dlse",
        "SM100 backward with head_dim=256 does not support learnable_sink",
        "SM100 backward with head_dim=256 does not support local attention",
        "SM100 backward with head_dim=256 does not support aux_tensors",
    ),
)
def kernel_of_256_lacks_a_switch(case: Case) -> Iterator[Violation]:
    """A backward pass at head_dim 256 with something that its kernel does not have (sm_100 to sm_110).

    What: At head_dim and head_dim_v 256 there are no block lists, `softcap`, `score_mod`, `score_mod_bwd`, `mask_mod`,
    `learnable_sink`, `dlse` or window, unless FLASH_ATTENTION_HD256_GENERIC_BWD is 1.

    Why: 256 columns of dK and of dV leave no tensor memory for S, so the pass runs as two kernels written for it.

    Fix: Leave the switch out; or `FLASH_ATTENTION_HD256_GENERIC_BWD: 1`, which takes the general kernel.
    """
    call = Call(case)
    if not call.is_256 or case.config.get("FLASH_ATTENTION_HD256_GENERIC_BWD") == 1:
        return
    generic = Fix("config.FLASH_ATTENTION_HD256_GENERIC_BWD", 1)
    for name in ("softcap", "score_mod", "score_mod_bwd", "mask_mod", "learnable_sink", "dlse"):
        if case.config.get(name):
            message = f"{name} has no backward pass at head_dim 256 on {case.arch}"
            yield Violation(f"config.{name}", message, (Fix(f"config.{name}", None), generic))
    if call.sparse:
        message = f"block lists have no backward pass at head_dim 256 on {case.arch}"
        yield Violation("mask.pattern", message, (Fix("mask.pattern", "dense"), generic))
    elif call.causal_and_local[1]:
        name = "window_left" if case.config.get("window_left") is not None else "window_right"
        message = f"a window has no backward pass at head_dim 256 on {case.arch}"
        yield Violation(f"config.{name}", message, (generic,), "leave the window out")


@rule(
    "FA4-B021",
    passes=("backward",),
    arches=("sm_120",),
    why="the launch is refused after the kernel has been compiled",
)
def backward_exceeds_sm120(case: Case) -> Iterator[Violation]:
    """The backward pass does not fit into shared memory (sm_120).

    What: Q and dO in their stages, K, V, P and dS of 64 x 64 tiles, and the row statistics take at most 101376 bytes:
    head_dim up to 160.

    Why: Tile and stages are fixed. At head_dim 128 they take 82432 bytes, at 192 they take 115200. Upstream's own
    check, which nothing calls, forgets P and dS and counts 98304.

    Fix: Not trainable on sm_120 at head_dim 192 and 256; head_dim 160 is.
    """
    needed, limit = sm120_smem_bytes(case.problem), ARCHES["sm_120"].smem_bytes
    if needed > limit:
        dim = case.problem.head_dim
        message = f"head_dim {dim} needs {needed} bytes of shared memory in the backward pass, the limit is {limit}"
        own = [each for each in range(8, dim, 8) if _fits_sm120(case, each)]
        fixes = [Fix("problem.head_dim", each) for each in own[-1:]]
        yield Violation("problem.head_dim", message, (*fixes, Fix("passes", ("forward",))))


def _fits_sm120(case: Case, dim: int) -> bool:
    dim_v = dim if case.problem.head_dim_v == case.problem.head_dim else case.problem.head_dim_v
    smaller = case.problem.model_copy(update={"head_dim": dim, "head_dim_v": dim_v})
    return sm120_smem_bytes(smaller) <= ARCHES["sm_120"].smem_bytes

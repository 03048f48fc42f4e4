"""FA4-E: what flash-attn-4 asks of the tensors before it looks at tiles."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.fa4.rules.values import HEAD_DIM_GRANULE, MAX_HEAD_DIM, has_blackwell_kernel, nearest, number
from attnctl_kernels.rule import Fix, Severity, Violation, rule

HALF_TYPES = ("bfloat16", "float16")


@rule(
    "FA4-E001",
    arches=("sm_90",),
    why="rows of K and V are loaded 16 bytes at a time into tiles that hold at most 256 columns",
    upstream=("(head_dim, head_dim_v)=({}, {}) is not supported on SM90.",),
)
def head_dim_unsupported(case: Case) -> Iterator[Violation]:
    """A head dimension that the sm_90 kernels do not take.

    What: `head_dim` and `head_dim_v` are multiples of 8 from 8 to 256.

    Why: The tensor memory accelerator moves rows of 16 bytes, which is 8 elements of 16 bits. A head dimension of 100
    is refused; the kernel itself pads 104 to 112.

    Fix: 100 -> 96 or 104 (pad Q, K and V with zeros, and keep the scale of the true head dimension).
    """
    legal = range(HEAD_DIM_GRANULE, MAX_HEAD_DIM + 1, HEAD_DIM_GRANULE)
    for name in ("head_dim", "head_dim_v"):
        dim = getattr(case.problem, name)
        if dim not in legal and (name == "head_dim" or dim != case.problem.head_dim):
            fixes = tuple(Fix(f"problem.{name}", each) for each in nearest(dim, legal))
            yield Violation(f"problem.{name}", f"{name} {dim} is not a multiple of 8 from 8 to 256", fixes)


@rule(
    "FA4-E002",
    passes=("forward",),
    arches=tiles.BLACKWELL,
    why="S and O of a tile share 512 columns of tensor memory",
    upstream=("(head_dim, head_dim_v)=({}, {}) is not supported on SM100/SM110.",),
)
def head_dims_unsupported_on_blackwell(case: Case) -> Iterator[Violation]:
    """Head dimensions that the kernels for sm_100, sm_103 and sm_110 do not take.

    What: `head_dim` and `head_dim_v` are multiples of 8 from 8 to 128; or 192 and 128; or 256 and 256. (64 or 512 with
    512 are there for multi-head latent attention.)

    Why: The sizes above 128 have kernels of their own, for the shapes of known models.

    Fix: (192, 192) -> (192, 128), or pad to (256, 256).
    """
    dim, dim_v = case.problem.head_dim, case.problem.head_dim_v
    if has_blackwell_kernel(dim, dim_v):
        return
    legal = range(HEAD_DIM_GRANULE, 513, HEAD_DIM_GRANULE)
    same = dim == dim_v  # head_dim_v then follows head_dim
    dims = nearest(dim, (each for each in legal if has_blackwell_kernel(each, each if same else dim_v)))
    dims_v = nearest(dim_v, (each for each in legal if has_blackwell_kernel(dim, each)))
    fixes = [Fix("problem.head_dim", each) for each in dims] + [Fix("problem.head_dim_v", each) for each in dims_v]
    message = f"head_dim {dim} with head_dim_v {dim_v} has no kernel on {case.arch}"
    yield Violation("problem.head_dim", message, tuple(fixes), "" if fixes else "pad both to 256")


@rule(
    "FA4-E004",
    why="the kernels multiply 16-bit and 8-bit numbers only",
    upstream=(
        "inputs must be float16, bfloat16, fp8 e4m3fn, or fp8 e5m2",
        "inputs must be float16 or bfloat16",
        "FP8 is only supported on SM100 (compute capability 10.x) for FA4 CuTe.",
    ),
)
def dtype_unsupported(case: Case) -> Iterator[Violation]:
    """The inputs are of a type that flash-attn-4 does not take.

    What: `dtype` is `bfloat16` or `float16`.

    Why: float32 has no matrix instruction of this shape; sums are kept in float32 all the same. (The kernels take fp8
    on sm_100 too, forward only, which profiles cannot say yet.)

    Fix: `dtype: bfloat16`.
    """
    if case.problem.dtype not in HALF_TYPES:
        fixes = tuple(Fix("problem.dtype", each) for each in HALF_TYPES)
        yield Violation("problem.dtype", f"dtype {case.problem.dtype} is not bfloat16 or float16", fixes)


@rule(
    "FA4-E012",
    passes=("forward",),
    arches=("sm_90",),
    severity=Severity.WARNING,
    why="Q is then loaded by threads, not by the tensor memory accelerator",
)
def group_does_not_divide_the_tile(case: Case) -> Iterator[Violation]:
    """The query heads of a group do not divide the rows of the tile (sm_90).

    What: `tile_m` is a multiple of num_heads_q / num_heads_kv.

    Why: With grouped heads a tile holds all heads of a group for some queries. A box of the tensor memory accelerator
    must hold whole groups; otherwise threads copy Q and O, and leave fewer registers to those that compute. 48 query
    heads on 8 make groups of 6: 128 rows are 21 groups and a third.

    Fix: Groups of 3 or 6 with `tile_m: 192`; or 4 or 8 query heads per key/value head.
    """
    queries, keys, tile_m = case.problem.num_heads_q, case.problem.num_heads_kv, number(case, "tile_m")
    group = queries // keys
    if queries % keys or tile_m not in tiles.SM90_TILES_M or tile_m % group == 0 or not Call(case).pack_gqa:
        return
    fixes = [Fix("config.tile_m", each) for each in tiles.SM90_TILES_M if each % group == 0]
    if not fixes:
        whole = (queries // each for each in range(1, tile_m + 1) if queries % each == 0 and tile_m % each == 0)
        fixes = [Fix("problem.num_heads_kv", each) for each in nearest(keys, whole)]
    message = f"tile_m {tile_m} is not a multiple of the {group} query heads per key/value head"
    yield Violation("config.tile_m", message, tuple(fixes))

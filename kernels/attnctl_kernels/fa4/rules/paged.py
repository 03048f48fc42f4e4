"""FA4-F015, S018, E007: keys and values in pages."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case, join_words
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.fa4.rules.values import nearest
from attnctl_kernels.rule import Fix, Violation, rule

UNPAGED = (*tiles.AMPERE, "sm_120")


@rule(
    "FA4-F015",
    passes=("forward",),
    arches=(*UNPAGED, *tiles.BLACKWELL),
    why="a page that is not a key tile is gathered by threads, 16 bytes at a time",
    upstream=(
        "SM80 forward does not support paged KV",
        "SM120 forward does not support paged KV or block sparsity",
        "Non-TMA paged KV requires head dimensions divisible by 16",
        "Paged KV does not support irregular head dim",
        "paged KV not supported on SM 8.0",
        "Paged KV not supported on SM 12.0 in this PR",
    ),
)
def pages_unsupported(case: Case) -> Iterator[Violation]:
    """Keys and values in pages, on an arch or at head dimensions that cannot take them.

    What: There is no `page_size` on sm_80, sm_86, sm_89 and sm_120. On sm_100, sm_103 and sm_110, where `page_size` is
    not `tile_n`, head_dim and head_dim_v are multiples of 16.

    Why: A page of exactly one key tile is loaded by the tensor memory accelerator, which fills up a ragged head
    dimension; any other page size is gathered by threads, which do not.

    Fix: Pages of 64 with `tile_n` 128 at head_dim 72: head_dim 64 or 80, or `page_size: 128`.
    """
    call = Call(case)
    if call.page_size is None:
        return
    if case.arch in UNPAGED:
        message = f"page_size {call.page_size}: there are no pages on {case.arch}"
        yield Violation("config.page_size", message, (Fix("config.page_size", None),))
    elif not call.pages_are_tiles and call.tile_n:
        dims = {name: getattr(case.problem, name) for name in ("head_dim", "head_dim_v")}
        ragged = {name: dim for name, dim in dims.items() if dim % tiles.GRANULE}
        if not ragged:
            return
        if len(set(dims.values())) == 1:  # a profile gives one value for both
            del ragged["head_dim_v"]
        fixes = [Fix("config.page_size", call.tile_n)]
        if len(ragged) == 1:  # otherwise no one of them mends it
            ((name, dim),) = ragged.items()
            legal = range(tiles.GRANULE, dim + tiles.GRANULE, tiles.GRANULE)
            fixes += [Fix(f"problem.{name}", each) for each in nearest(dim, legal)]
        which = join_words([f"{name} {dim}" for name, dim in ragged.items()], "and")
        message = f"page_size {call.page_size} is not tile_n {call.tile_n}, and {which} no multiple of 16"
        yield Violation("config.page_size", message, tuple(fixes))


@rule(
    "FA4-S018",
    passes=("forward",),
    arches=("sm_90", *tiles.BLACKWELL),
    why="the loader of sparse blocks takes a block's number for its place in memory",
    upstream=("Block sparsity + paged KV not supported on SM100",),
)
def sparse_and_paged(case: Case) -> Iterator[Violation]:
    """Block lists together with keys and values in pages.

    What: A block-sparse call has no `page_size`.

    Why: On sm_90 with pages of one key tile nothing is said: the page table is not read, so block 3 comes from the
    third page of the pool, whoever owns it. With other page sizes tracing fails ("'NoneType' object is not callable").

    Fix: Gather the pages into one tensor first; or `pattern: dense` with the native causal flag.
    """
    call = Call(case)
    if call.sparse and call.page_size is not None:
        silent = ", and the page table is ignored" if case.arch == "sm_90" and call.pages_are_tiles else ""
        message = f"block lists with page_size {call.page_size} do not go together{silent}"
        advice = "gather the pages into one tensor first"
        yield Violation("config.page_size", message, (Fix("config.page_size", None),), advice)


@rule(
    "FA4-E007",
    passes=("forward",),
    why="the kernel reads the table as rows of 32-bit page numbers, one row per sequence",
    upstream=(
        "page_table is not supported with cu_seqlens_k",
        "page_table must be int32",
        "page_table must be contiguous in the last dimension",
    ),
)
def page_table_malformed(case: Case) -> Iterator[Violation]:
    """The page table is not one row of int32 per sequence, or comes with another description of the keys.

    What: With `page_size`: `problem.varlen` does not name cu_seqlens_k, `layout.page_table_dtype` is int32, and
    `layout.page_table_rows` is batch_size.

    Why: `cu_seqlens_k` says where sequences begin in one long tensor; pages have no such place. How many keys of the
    last page count is said by seqused_k.

    Fix: `varlen: [cu_seqlens_q, seqused_k]`. torch makes int64 indices unless told otherwise: cast them.
    """
    call, layout = Call(case), case.layout
    if call.page_size is not None and "cu_seqlens_k" in call.varlen:
        others = tuple(dict.fromkeys("seqused_k" if each == "cu_seqlens_k" else each for each in call.varlen))
        message = "cu_seqlens_k does not go with pages"
        yield Violation("problem.varlen", message, (Fix("problem.varlen", others),))
    if layout is None:
        return
    if layout.page_table_dtype not in (None, "int32"):
        message = f"the page table is {layout.page_table_dtype}, not int32"
        yield Violation("layout.page_table_dtype", message, (Fix("layout.page_table_dtype", "int32", "cast it"),))
    if layout.page_table_rows not in (None, case.problem.batch_size):
        message = f"the page table has {layout.page_table_rows} rows, batch_size is {case.problem.batch_size}"
        yield Violation("layout.page_table_rows", message, (Fix("layout.page_table_rows", case.problem.batch_size),))

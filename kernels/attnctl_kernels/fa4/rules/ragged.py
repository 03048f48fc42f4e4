"""FA4-E006, S015, B009, E015: ragged batches, and outputs that the caller brings."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import tiles
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.fa4.rules.values import block
from attnctl_kernels.rule import Fix, Violation, nearest_multiples, rule

ALIGNMENT = 16  # bytes; 32 at head_dim_v 512


@rule(
    "FA4-E006",
    why="the kernel reads where sequences begin as 32-bit numbers, one more than there are sequences",
    upstream=(
        "cu_seqlens_q must have shape (batch_size + 1,)",
        "cu_seqlens_k must have shape (batch_size + 1,)",
        "seqused_q must have shape (batch_size,)",
        "seqused_k must have shape (batch_size,)",
        "cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k must be int32",
        "cu_seqlens_q, cu_seqlens_k, seqused_q, seqused_k must be contiguous",
    ),
)
def length_arrays_malformed(case: Case) -> Iterator[Violation]:
    """The arrays that describe a ragged batch have the wrong type or length.

    What: Where `problem.varlen` names them: `layout.cu_seqlens_dtype` is int32, `layout.cu_seqlens_length` is
    batch_size + 1 and `layout.seqused_length` is batch_size.

    Why: `cu_seqlens` are sums: 0, 1000, 1024 are two sequences of 1000 and 24 tokens. torch.cumsum gives int64, and
    does not begin with 0.

    Fix: `torch.nn.functional.pad(lengths.cumsum(0, dtype=torch.int32), (1, 0))`.
    """
    layout, batch = case.layout, case.problem.batch_size
    if layout is None or not case.problem.varlen:
        return
    if layout.cu_seqlens_dtype not in (None, "int32"):
        fix = Fix("layout.cu_seqlens_dtype", "int32", "cast them")
        yield Violation("layout.cu_seqlens_dtype", f"cu_seqlens are {layout.cu_seqlens_dtype}, not int32", (fix,))
    if layout.cu_seqlens_length not in (None, batch + 1):
        message = f"cu_seqlens have {layout.cu_seqlens_length} numbers, batch_size {batch} needs {batch + 1}"
        yield Violation("layout.cu_seqlens_length", message, (Fix("layout.cu_seqlens_length", batch + 1),))
    if layout.seqused_length not in (None, batch):
        message = f"seqused have {layout.seqused_length} numbers, batch_size {batch} needs {batch}"
        yield Violation("layout.seqused_length", message, (Fix("layout.seqused_length", batch),))


@rule(
    "FA4-S015",
    passes=("forward",),
    arches=("sm_90", *tiles.BLACKWELL),
    why="the lists of ragged sequences lie behind each other, found by sums over tiles",
    upstream=(
        "Varlen block sparsity requires sparse_block_size[0]={} (= q_stage * tile_m); got {}.",
        "Varlen block sparsity requires block_sparse_tensors.cu_total_m_blocks.",
        "Varlen block sparsity with cu_seqlens_k or seqused_k requires block_sparse_tensors.cu_block_idx_offsets.",
    ),
)
def ragged_block_lists_incomplete(case: Case) -> Iterator[Violation]:
    """Block lists of a ragged batch lack what finds them, or have query blocks of several tiles.

    What: With cu_seqlens_q, `layout.cu_total_m_blocks` is true, and with cu_seqlens_k or seqused_k
    `layout.cu_block_idx_offsets` too; the query block is exactly `q_stage * tile_m`.

    Why: All sequences share one list of rows. `cu_total_m_blocks` says where a sequence's rows begin, and
    `cu_block_idx_offsets` where its indices do once sequences have different numbers of key blocks.

    Fix: sm_100 with more than 128 rows: query blocks of 256. Give both arrays as int32 on the device.
    """
    call, sparse_block = Call(case), block(case)
    if not call.sparse or "cu_seqlens_q" not in call.varlen:
        return
    rows = call.q_stage * call.tile_m
    if sparse_block and rows and sparse_block[0] != rows and sparse_block[0] % rows == 0:
        message = f"query blocks of {sparse_block[0]} are not q_stage * tile_m = {rows}, which ragged batches need"
        fix = Fix("sparse_block", (rows, sparse_block[1]), "rebuild the mask")
        yield Violation("sparse_block", message, (fix,))
    needed = {"cu_total_m_blocks": "cu_seqlens_q"}
    for name in ("cu_seqlens_k", "seqused_k"):
        if name in call.varlen:
            needed["cu_block_idx_offsets"] = name
    for name, because in needed.items():
        if case.layout is None or not getattr(case.layout, name):
            message = f"block lists with {because} need {name}"
            yield Violation(f"layout.{name}", message, (Fix(f"layout.{name}", True),))


@rule(
    "FA4-B009",
    passes=("backward",),
    arches=("sm_90", *tiles.BLACKWELL, "sm_120"),
    why="it is not implemented",
    upstream=("Varlen backward with block sparsity is not yet supported",),
)
def ragged_and_sparse_backward(case: Case) -> Iterator[Violation]:
    """A backward pass with block lists over a ragged batch.

    What: The backward pass is block sparse or ragged, not both.

    Why: The backward kernel has no sums to find a sequence's lists by. (`flash_attn_varlen_func` keeps no backward
    lists either: its gradient would be that of a full mask.)

    Fix: Pad the sequences to one length, or train with a dense mask.
    """
    call = Call(case)
    if call.sparse and call.varlen:
        message = f"block lists do not go with {', '.join(call.varlen)} in the backward pass"
        fixes = (Fix("problem.varlen", None, "pad the sequences"), Fix("mask.pattern", "dense"))
        yield Violation("problem.varlen", message, fixes)


@rule(
    "FA4-E015",
    passes=("forward",),
    why="the kernel writes it in whole boxes of the tensor memory accelerator",
    upstream=(
        "out shape {} != expected {}",
        "lse shape {} != expected {}",
        "out dtype {} != expected {}",
        "lse dtype {} != expected {}",
        "must not have broadcast dimensions",
        "must have aligned strides and a contiguous last dimension",
    ),
)
def output_cannot_be_written(case: Case) -> Iterator[Violation]:
    """An output that the caller brings has a type or strides that the kernel cannot write.

    What: `layout.out_dtype` is the dtype of the problem and `layout.lse_dtype` float32. Of `layout.out_strides`, in
    elements, the last is 1, none is 0, and the others are multiples of 16 bytes (32 at head_dim_v 512).

    Why: A stride of 0 writes one row many times. A view into a wider tensor with rows of 100 elements begins its second
    row 200 bytes in, which no box can reach.

    Fix: 16-bit rows of 100 -> 104: `out_strides: [832, 104, 1]`.
    """
    layout, problem = case.layout, case.problem
    if layout is None:
        return
    for name, wanted in (("out_dtype", problem.dtype), ("lse_dtype", "float32")):
        value = getattr(layout, name)
        if value not in (None, wanted):
            message = f"{name.removesuffix('_dtype')} is {value}, the kernel writes {wanted}"
            yield Violation(f"layout.{name}", message, (Fix(f"layout.{name}", wanted),))
    strides = layout.out_strides
    if not strides:
        return
    step = max(1, (2 if problem.head_dim_v == 512 else 1) * ALIGNMENT // problem.element_bytes)
    if 0 in strides:
        yield Violation("layout.out_strides", "out is broadcast: a stride is 0", advice="bring a tensor of its own")
    elif strides[-1] != 1 or any(each % step for each in strides[:-1]):
        rounded = (*((nearest_multiples(each, step) or (each,))[-1] for each in strides[:-1]), 1)
        message = f"strides of out are {list(strides)}: not multiples of {step} with a last stride of 1"
        yield Violation("layout.out_strides", message, (Fix("layout.out_strides", rounded),))

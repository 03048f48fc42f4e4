"""FLEX-003, 004, 009, 017, 025 and 026: the mask that was built for the tensors."""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.flex import options, tiles
from attnctl_kernels.flex.rules.values import REBUILD
from attnctl_kernels.rule import Fix, Severity, Violation, length_price, rule

LOOK_UPS = ("document", "blocks")  # patterns whose mask_mod reads a table at the index of a token


@rule(
    "FLEX-003",
    why="the block lists would name blocks of other tokens",
    upstream=(
        (
            "block_mask was created for block_mask.shape={} but got q_len={} and kv_len={}. As the block mask was "
            "created "
            "for a smaller length than you're using it for, you likely need to create a new block mask."
        ),
        (
            "block_mask was created for block_mask.shape={} but got q_len={} and kv_len={}. As the block mask was "
            "created "
            "for a larger length than you're using it for, you can either 1. create a new block mask with the correct "
            "length, or 2. 'adjust' the existing block mask to the correct length by calling block_mask._adjust(q_len, "
            "kv_len)."
        ),
    ),
)
def mask_built_for_other_lengths(case: Case) -> Iterator[Violation]:
    """The mask was built for other lengths than those of the tensors.

    What: `layout.seqlen_q` (or `seq_len`) and `layout.seqlen_k`, the Q_LEN and KV_LEN that `create_block_mask` got,
    equal the lengths of the tensors. They need not be multiples of the block.

    Why: Rounding up to whole blocks is done inside the mask: 20000 x 40000 tokens in blocks of 128 make 157 x 313
    blocks. A mask built on 20096 x 40192 is refused by torch 2.13. torch 2.5 does not look, and computes with the
    wrong lists.

    Fix: Build the mask on the true lengths, 20000 and 40000; or pad the tensors to those of the mask.
    """
    layout, problem = case.layout, case.problem
    if layout is None:
        return
    name = "seqlen_q" if layout.seqlen_q is not None else "seq_len"
    for key, built, tensor in (
        (name, getattr(layout, name), "seqlen_q"),
        ("seqlen_k", layout.seqlen_k, "seqlen_k"),
    ):
        length = getattr(problem, tensor)
        if built is not None and built != length:
            fixes = [Fix(f"layout.{key}", length, REBUILD)]
            if built > length:
                fixes.append(Fix(f"problem.{tensor}", built, f"pad: {length_price(length, built)}"))
            message = f"the mask is built for {key} {built}, the tensors have {tensor} {length}"
            yield Violation(f"layout.{key}", message, tuple(fixes))


@rule("FLEX-004", why="the kernels take the index modulo what the mask has, so that other sizes wrap around")
def mask_of_other_batch_or_heads(case: Case) -> Iterator[Violation]:
    """The mask has another batch size or another number of heads than the queries, and is not shared by all.

    What: `layout.batch_size` is 1 or `batch_size`; `layout.num_heads` is 1 or `num_heads_q`, not `num_heads_kv`.

    Why: Sequence 3 of a batch of 4 reads row 3 % 3 = 0 of a mask that was built for 3. No message says so in the Triton
    kernels; the FLASH backend raises.

    Fix: `B=None, H=None` for a mask that all share (1 and 1), or the sizes of the queries.
    """
    layout, problem = case.layout, case.problem
    if layout is None:
        return
    sizes = (
        ("batch_size", layout.batch_size, problem.batch_size),
        ("num_heads", layout.num_heads, problem.num_heads_q),
    )
    for name, built, wanted in sizes:
        if built is not None and built not in (1, wanted):
            usable = dict.fromkeys((wanted, 1))
            message = f"the mask has {name} {built}, the queries {wanted}: indices wrap around"
            yield Violation(f"layout.{name}", message, tuple(Fix(f"layout.{name}", each, REBUILD) for each in usable))


@rule(
    "FLEX-009",
    why="its mask_mod counts from the first query of the slice",
    upstream=(
        "Cannot use mask_mod from a sliced BlockMask",
        "Query length must be greater than 0",
        "Key length must be greater than 0",
    ),
)
def mask_is_a_slice(case: Case) -> Iterator[Violation]:
    """The mask is a slice of another mask, with no mask_mod of its own.

    What: `sliced_mask` is false: a mask made by `block_mask[:, :, i]` gets a mask_mod that adds the offset of the
    slice.

    Why: A slice keeps its block lists, but its queries count from 0 again. torch 2.13 replaces the mask_mod by one
    that raises; torch 2.5 kept the old one, whose queries are the wrong ones.

    Fix: `sliced.mask_mod = lambda b, h, q, k: mask_mod(b, h, q + offset, k)`, with the mask_mod of the whole mask.
    """
    if options.switch(case, "sliced_mask"):
        name = "config.sliced_mask"
        yield Violation(name, "the mask is a slice without a mask_mod of its own", (Fix(name, value=False),))


@rule(
    "FLEX-017",
    why="the kernel reads the lists where it runs",
    upstream=(
        "Expect q/k/v and block_mask to be on the same device but got {} and {}.",
        "full_kv_num_blocks and full_kv_indices must be both provided or omitted",
        "full_q_num_blocks and full_q_indices must be both provided or omitted",
        "dq_write_order_full requires dq_write_order",
        "BlockMask must have at least 2 dimensions",
        "create-block_mask requires a mask_mod function! Got {}",
        "Expected 4 or 5 positional args, got {}",
        "dq_kv_order must be a bool when using create_block_mask",
    ),
)
def mask_on_another_device(case: Case) -> Iterator[Violation]:
    """The mask was built on another device than the tensors.

    What: `mask_device` is left out or equals `device`.

    Why: `create_block_mask` builds on the current accelerator unless `device` is passed: a mask for CPU tensors lands
    on the GPU, and one that a data loader built lies on the CPU. A mask_mod takes 4 arguments and a score_mod 5; lists
    of counts and of indices come in pairs. Those faults have messages of their own, which `explain` knows.

    Fix: `create_block_mask(..., device="cuda")`, or `block_mask.to("cuda")`.
    """
    built, wanted = case.config.get("mask_device"), options.device(case)
    if built is not None and built != wanted:
        message = f"the mask is on {built}, the tensors on {wanted}"
        yield Violation("config.mask_device", message, (Fix("config.mask_device", wanted),))


@rule(
    "FLEX-025",
    versions=(tiles.OLD,),
    why="torch 2.5 rounds the lengths up to whole blocks and asks mask_mod about tokens that do not exist",
    upstream=(
        "flex_attention … index {} is out of bounds for dimension {} with size {}",
        "flex_attention … index out of bounds",
    ),
)
def mask_looks_up_beyond_the_end(case: Case) -> Iterator[Violation]:
    """A mask that looks up a table is built for lengths that are not multiples of the block (torch 2.5).

    What: With the patterns `document` and `blocks`, whose mask_mod reads a table at the index of a token, both lengths
    are multiples of `sparse_block`.

    Why: `create_block_mask` of torch 2.5 evaluates the mask on rounded-up lengths: 300 x 180 tokens in blocks of 128
    are asked about up to token 383, of a table with 300 entries. On a GPU this is a device-side assert. torch 2.13
    evaluates true lengths and pads the result.

    Fix: Blocks that divide (60 divides 300 and 180), padded lengths (384 x 256), or torch 2.13.
    """
    problem, block = case.problem, options.sparse(case)
    if problem.mask.pattern not in LOOK_UPS or block is None:
        return
    for name, length, size in (("seqlen_q", problem.seqlen_q, block[0]), ("seqlen_k", problem.seqlen_k, block[1])):
        if length % size:
            message = f"{name} {length} is not a multiple of blocks of {size}: mask look-ups run out of range"
            padded = -(-length // size) * size
            fixes = (Fix("version", "2.13"), Fix(f"problem.{name}", padded, length_price(length, padded)))
            yield Violation(f"problem.{name}", message, fixes)


@rule(
    "FLEX-026",
    severity=Severity.WARNING,
    versions=(tiles.OLD,),
    why="torch 2.5 stores the pair in the other order, and shrinks query blocks for short queries",
)
def block_pair_recorded_otherwise(case: Case) -> Iterator[Violation]:
    """The sparse block is not square, or longer than the queries (torch 2.5).

    What: In torch 2.5 both values of `sparse_block` are equal, and with fewer than 128 queries the first does not
    matter.

    Why: `BlockMask.BLOCK_SIZE` holds (key, query) there, so that `shape`, `sparsity` and what is printed are those of
    the swapped pair: 512 x 1024 tokens in blocks of 64 x 128 make 8 x 8 blocks, printed as a mask of 1024 x 512. With
    fewer than 128 queries the query block silently becomes the number of queries.

    Fix: `sparse_block: [128, 128]`, or torch 2.13, where the order is (query, key) everywhere.
    """
    block, queries = case.sparse_block, case.problem.seqlen_q
    if block is None or "sparse_block" not in case.given:
        return
    new = Fix("version", "2.13")
    if block[0] != block[1] and queries >= tiles.DECODE_BELOW:
        square = Fix("sparse_block", (max(block), max(block)), REBUILD)
        yield Violation(
            "sparse_block", f"blocks of {block[0]}x{block[1]} are recorded as {block[1]}x{block[0]}", (square, new)
        )
    elif queries < tiles.DECODE_BELOW and block[0] != queries:
        fixes = (Fix("sparse_block", (queries, block[1]), REBUILD), new)
        yield Violation("sparse_block", f"query blocks of {block[0]} become {queries}, the number of queries", fixes)

"""The facts of a mask: that its pattern has what it needs, no more, and that they fit the lengths."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attnctl.rules.general.block_rows import fitting_sizes
from attnctl_kernels.contract import Case, Mask
from attnctl_kernels.rule import Fix, Severity, Violation, rule

NEEDS: Mapping[str, tuple[str, ...]] = {
    "dense": (),
    "causal": (),
    "sliding_window": ("window",),
    "document": ("document_len",),  # or document_lens
    "prefix_lm": ("prefix_len",),
    "history_candidate": ("history_len",),
    "blocks": ("block_size", "rows"),
}
ALSO_TAKES: Mapping[str, tuple[str, ...]] = {"document": ("document_lens", "causal")}
FACTS = ("history_len", "window", "prefix_len", "document_len", "document_lens", "block_size", "rows")
SAME_LENGTHS = ("history_candidate",)
LOOKS_BACK = ("causal", "sliding_window", "document")


@rule("G101", why="the pattern alone does not say which keys are visible")
def mask_fact_missing(case: Case) -> Iterator[Violation]:
    """The mask lacks a fact that its pattern needs.

    What: `sliding_window` needs `window`; `document` needs `document_len` or `document_lens`; `prefix_lm` needs
    `prefix_len`; `history_candidate` needs `history_len`; `blocks` needs `block_size` and `rows`.

    Why: Nothing may be guessed. For `blocks`, two rows of blocks over 256 queries fit every block size from 128 to
    255: a kernel that infers the size splits the mask at the wrong row.

    Fix: `mask: {pattern: history_candidate, history_len: 6144}`.
    """
    mask, problem = case.problem.mask, case.problem
    for fact in NEEDS[mask.pattern]:
        if getattr(mask, fact) is not None or (fact == "document_len" and mask.document_lens is not None):
            continue
        message = f"pattern {mask.pattern} needs {fact}"
        if fact == "document_len":
            message += " or document_lens"
        if fact == "block_size" and mask.rows:
            yield Violation("mask.block_size", f"{message}{_fitting(len(mask.rows), problem.seqlen_q)}", advice=_SIZES)
        elif fact in ("block_size", "rows"):
            yield Violation(f"mask.{fact}", message, advice=_SIZES if fact == "block_size" else _ROWS)
        else:
            half = max(1, problem.seqlen_k // 2)
            yield Violation(f"mask.{fact}", message, (Fix(f"mask.{fact}", half, "half of the keys"),))


@rule("G102", why="it would be ignored")
def mask_fact_not_of_this_pattern(case: Case) -> Iterator[Violation]:
    """The mask states a fact that its pattern does not use.

    What: Every fact under `mask` belongs to the pattern. `causal: true` belongs to `document`; on its own it is the
    pattern `causal`.

    Why: A `window` beside `pattern: causal` reads as if the window were applied, and it is not: at 8192 tokens and a
    window of 1024 the causal mask has 4 times the work.

    Fix: Change the pattern (`pattern: sliding_window`), or remove the fact.
    """
    mask = case.problem.mask
    for fact in unused_facts(mask, mask.pattern):
        yield Violation(f"mask.{fact}", f"pattern {mask.pattern} does not use {fact}", (Fix(f"mask.{fact}", None),))
    if mask.causal and "causal" not in ALSO_TAKES.get(mask.pattern, ()):
        message = f"pattern {mask.pattern} does not use causal"
        yield Violation("mask.causal", message, (Fix("mask.causal", False),))
    if mask.pattern == "document" and mask.document_len is not None and mask.document_lens is not None:
        message = "document_len and document_lens are both given"
        yield Violation("mask.document_len", message, (Fix("mask.document_len", None),))


@rule("G103", why="it lies outside the sequence")
def mask_fact_out_of_range(case: Case) -> Iterator[Violation]:
    """A length of the mask is negative, zero or longer than the sequence.

    What: `history_len` and `prefix_len` are 0 to seqlen_k; `window` and `document_len` are at least 1; both sides of
    `block_size` are at least 1.

    Why: A history of 8192 keys in a sequence of 4096 does not exist; kernels read beyond the end or wrap around.

    Fix: seqlen_k 4096 with `history_len: 8192` -> 4096 (all history) or less.
    """
    mask, keys = case.problem.mask, case.problem.seqlen_k
    for fact in NEEDS[mask.pattern]:
        value = getattr(mask, fact)
        if fact in ("history_len", "prefix_len") and value is not None and not 0 <= value <= keys:
            limit = "negative" if value < 0 else f"longer than seqlen_k {keys}"
            fix = Fix(f"mask.{fact}", 0 if value < 0 else keys)
            yield Violation(f"mask.{fact}", f"{fact} {value} is {limit}", (fix,))
        elif fact in ("window", "document_len") and value is not None and value < 1:
            yield Violation(f"mask.{fact}", f"{fact} {value} is below 1", (Fix(f"mask.{fact}", 1),))
        elif fact == "block_size" and value is not None and min(value) < 1:
            fix = Fix("mask.block_size", tuple(max(1, each) for each in value))
            yield Violation("mask.block_size", f"block_size {list(value)} has a side below 1", (fix,))


@rule("G104", why="every key belongs to one document")
def documents_do_not_fill_the_sequence(case: Case) -> Iterator[Violation]:
    """The documents do not add up to the sequence.

    What: `document_lens` are positive and sum to seqlen_k.

    Why: Keys behind the last document would belong to none, or the last document would end behind the sequence.
    Lengths that were rounded up to whole blocks are a usual cause: 300 + 180 is 480, padded to 128 it is 384 + 256 =
    640.

    Fix: Use true lengths; add a last document for padding: [1000, 2000] in 4096 keys -> [1000, 2000, 1096].
    """
    lengths, keys = case.problem.mask.document_lens, case.problem.seqlen_k
    if case.problem.mask.pattern != "document" or lengths is None:
        return
    total = sum(lengths)
    if min(lengths, default=1) < 1:
        kept = tuple(each for each in lengths if each > 0)
        fixes = (Fix("mask.document_lens", kept),) if sum(kept) == keys else ()
        message = f"document_lens holds {min(lengths)}, a document has at least 1 key"
        yield Violation("mask.document_lens", message, fixes, "" if fixes else "write the length of each document")
    elif total < keys:
        fix = Fix("mask.document_lens", (*lengths, keys - total), "a last document of padding")
        message = f"document_lens sum to {total}, seqlen_k is {keys}"
        yield Violation("mask.document_lens", message, (fix,) if len(lengths) <= 16 else (), _LAST.format(keys - total))
    elif total > keys:
        fix = Fix("problem.seqlen_k", total)
        yield Violation("mask.document_lens", f"document_lens sum to {total}, seqlen_k is {keys}", (fix,))


@rule("G105", why="history and candidates are the same tokens as queries and as keys")
def lengths_differ(case: Case) -> Iterator[Violation]:
    """The pattern needs as many queries as keys.

    What: With `history_candidate`, seqlen_q equals seqlen_k.

    Why: A candidate sees the history and itself: "itself" must be a key at the same position. 128 queries over 4224
    keys would need to say which keys they are.

    Fix: `seq_len: 4224`, or another pattern such as `prefix_lm`.
    """
    problem = case.problem
    if problem.mask.pattern in SAME_LENGTHS and problem.seqlen_q != problem.seqlen_k:
        message = f"pattern {problem.mask.pattern} needs equal lengths, got {problem.seqlen_q} and {problem.seqlen_k}"
        fixes = (Fix("problem.seqlen_q", problem.seqlen_k), Fix("problem.seqlen_k", problem.seqlen_q))
        yield Violation("problem.seqlen_q", message, fixes)


@rule("G106", severity=Severity.WARNING, why="softmax over nothing is NaN in some kernels and zero in others")
def queries_without_keys(case: Case) -> Iterator[Violation]:
    """Some queries see no key at all.

    What: With a causal pattern, seqlen_q is at most seqlen_k.

    Why: Rows and columns are aligned at the end, so of 1024 queries over 1000 keys the first 24 come before every
    key.

    Fix: Cut the queries (1024 -> 1000), or pad the keys (1000 -> 1024).
    """
    problem = case.problem
    blind = problem.seqlen_q - problem.seqlen_k
    sees_prefix = problem.mask.pattern == "prefix_lm" and (problem.mask.prefix_len or 0) > 0
    if blind > 0 and (problem.mask.pattern in LOOKS_BACK or problem.mask.pattern == "prefix_lm") and not sees_prefix:
        message = f"the first {blind} of {problem.seqlen_q} queries see none of the {problem.seqlen_k} keys"
        fixes = (Fix("problem.seqlen_q", problem.seqlen_k), Fix("problem.seqlen_k", problem.seqlen_q))
        yield Violation("problem.seqlen_q", message, fixes)


def unused_facts(mask: Mask, pattern: str) -> list[str]:
    """The facts of ``mask`` that mean nothing beside ``pattern``."""
    used = (*NEEDS[pattern], *ALSO_TAKES.get(pattern, ()))
    return [fact for fact in FACTS if fact not in used and getattr(mask, fact) is not None]


_SIZES = "state the block size that the rows were built with"
_ROWS = "list, per block of queries, the blocks of keys that it sees"
_LAST = "add a last document of {} keys"


def _fitting(count: int, length: int) -> str:
    sizes = fitting_sizes(count, length)
    if sizes is None:
        return ""
    return f"; {count} rows over {length} queries fit every size from {sizes[0]} to {sizes[1]}"

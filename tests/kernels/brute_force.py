"""The masks by their definition, one element at a time, and a hypothesis strategy over all of them."""

import numpy as np
from hypothesis import strategies as st

from attnctl_kernels.contract import Mask


def sees(mask: Mask, q: int, k: int, seqlen_q: int, seqlen_k: int) -> bool:  # noqa: PLR0911 - one per pattern
    position = q + seqlen_k - seqlen_q
    match mask.pattern:
        case "dense":
            return True
        case "causal":
            return k <= position
        case "sliding_window":
            return position - mask.window < k <= position
        case "prefix_lm":
            return k < mask.prefix_len or k <= position
        case "history_candidate":
            return k < mask.history_len or (q >= mask.history_len and k == q)
        case "document":
            lens = mask.document_lens or [mask.document_len] * (seqlen_k // mask.document_len + 1)
            owner = [document for document, length in enumerate(lens) for _ in range(length)]
            same = position >= 0 and owner[position] == owner[k]
            return same and (k <= position or not mask.causal)
        case "blocks":
            block_q, block_kv = mask.block_size
            return k // block_kv in mask.rows[q // block_q]
    raise AssertionError(mask.pattern)


def elements(mask: Mask, seqlen_q: int, seqlen_k: int) -> np.ndarray:
    return np.array(
        [[sees(mask, q, k, seqlen_q, seqlen_k) for k in range(seqlen_k)] for q in range(seqlen_q)], dtype=bool
    )


@st.composite
def masks(draw, seqlen_q: int, seqlen_k: int) -> Mask:  # noqa: PLR0911 - one per pattern
    """Any mask that fits these lengths; facts go past the lengths where that has a meaning."""
    patterns = ["dense", "causal", "sliding_window", "prefix_lm", "document", "blocks"]
    if seqlen_q == seqlen_k:
        patterns.append("history_candidate")
    pattern = draw(st.sampled_from(patterns))
    length = st.integers(1, seqlen_k + 3)
    match pattern:
        case "sliding_window":
            return Mask(pattern=pattern, window=draw(length))
        case "prefix_lm":
            return Mask(pattern=pattern, prefix_len=draw(length))
        case "history_candidate":
            return Mask(pattern=pattern, history_len=draw(length))
        case "document":
            causal = draw(st.booleans())
            if draw(st.booleans()):
                return Mask(pattern=pattern, document_len=draw(length), causal=causal)
            cuts = sorted(draw(st.sets(st.integers(1, seqlen_k - 1), max_size=6))) if seqlen_k > 1 else []
            lens = np.diff([0, *cuts, seqlen_k]).tolist()
            return Mask(pattern=pattern, document_lens=tuple(lens), causal=causal)
        case "blocks":
            block_q, block_kv = draw(st.integers(1, seqlen_q)), draw(st.integers(1, seqlen_k))
            keys = st.lists(st.integers(0, -(-seqlen_k // block_kv) - 1), max_size=8)
            rows = draw(st.lists(keys, min_size=-(-seqlen_q // block_q), max_size=-(-seqlen_q // block_q)))
            return Mask(pattern=pattern, block_size=(block_q, block_kv), rows=tuple(map(tuple, rows)))
    return Mask(pattern=pattern)


@st.composite
def mask_cases(draw, largest: int = 40) -> tuple[Mask, int, int]:
    """A mask with its lengths: half of the time ``seqlen_q == seqlen_k``."""
    seqlen_q = draw(st.integers(1, largest))
    seqlen_k = seqlen_q if draw(st.booleans()) else draw(st.integers(1, largest))
    return draw(masks(seqlen_q, seqlen_k)), seqlen_q, seqlen_k

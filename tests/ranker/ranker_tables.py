"""Tables of the range of keys that each row sees: of patterns, and of ends that ascend at random."""

import numpy as np

from attnctl_kernels.contract import Mask
from attnctl_kernels.ranker.ranges import ranges


def tables(seqlen, keys, count, seed=1):
    """Patterns; then ends that ascend at random: some rows see nothing, some keys are seen by none."""
    yield "dense", ranges(Mask(pattern="dense"), seqlen, keys)
    yield "causal", ranges(Mask(pattern="causal"), seqlen, keys)
    yield "window", ranges(Mask(pattern="sliding_window", window=min(70, keys)), seqlen, keys)
    yield "window of one", ranges(Mask(pattern="sliding_window", window=1), seqlen, keys)
    yield "documents", ranges(Mask(pattern="document", document_len=min(37, keys)), seqlen, keys)
    yield "prefix", ranges(Mask(pattern="prefix_lm", prefix_len=min(55, keys)), seqlen, keys)
    yield "nothing", np.zeros((seqlen, 2), dtype=np.int32)
    yield "behind the keys", np.full((seqlen, 2), (keys + 3, keys + 9), dtype=np.int32)
    draw = np.random.default_rng(seed)
    for number in range(count):
        few = draw.integers(-9, keys + 9, size=(2, draw.integers(1, 6)))  # flights of stairs with few, or many steps
        ends = draw.choice(few.ravel(), size=(2, seqlen)) if number % 2 else draw.integers(-9, keys + 9, (2, seqlen))
        begin, end = np.sort(ends, axis=1)
        yield f"random {number}", np.stack([begin, np.maximum(begin, end) if number % 3 else end], axis=1)


def of_definition(table, keys):
    """``[rows, keys]``: which rows see which keys."""
    key = np.arange(keys)
    return (table[:, :1] <= key) & (key < table[:, 1:])

"""The schedule that the kernel computes on the device, run on the CPU: every row once, every visible key, no other."""

import random

import numpy as np
import pytest

pytest.importorskip("cutlass")
from walked import Walk

from attnctl_kernels.contract import Mask
from attnctl_kernels.masks import visible
from attnctl_kernels.ranker.config import deal
from attnctl_kernels.ranker.ranges import ranges

KINDS = {
    "as it was": {},
    "balanced": {"balanced": True, "tile_m": 128},
    "longest": {"balanced": True, "schedule": "longest_first"},
    "ranges": {"ranges": True, "balanced": True, "schedule": "longest_first"},
    "ranges in order": {"ranges": True, "tile_m": 64, "tile_n": 48},
}


@pytest.fixture(scope="module", params=KINDS)
def walk(request):
    return Walk(**KINDS[request.param])


def sees_history(bounds, seqlen):
    position = np.arange(seqlen)
    h_lo, h_hi, c_lo, c_hi = bounds
    history = (h_lo <= position) & (position < h_hi)
    candidate = (c_lo <= position) & (position < c_hi) & ~history
    return ((history | candidate)[:, None] & history) | np.diag(candidate)


def random_bounds(draw, seqlen):
    a, b, c, d = sorted(draw.randint(-3, seqlen + 3) for _ in range(4))
    return draw.choice([[a, b, c, d], [c, d, a, b], [a, c, b, d], [0, 0, 0, 0], [0, b, b, seqlen], [0, 0, 0, d]])


def random_mask(draw, keys):
    pattern = draw.choice(["dense", "causal", "sliding_window", "document", "prefix_lm"])
    return {
        "dense": lambda: Mask(pattern="dense"),
        "causal": lambda: Mask(pattern="causal"),
        "sliding_window": lambda: Mask(pattern="sliding_window", window=draw.randint(1, keys)),
        "document": lambda: Mask(pattern="document", document_len=draw.randint(1, keys), causal=draw.random() < 0.5),
        "prefix_lm": lambda: Mask(pattern="prefix_lm", prefix_len=draw.randint(0, keys)),
    }[pattern]()


def cases(walk, count=60, seed=2):
    """Lengths, what the kernel gets, and who sees whom in each batch row."""
    draw = random.Random(seed)
    for _ in range(count):
        batch_size, seqlen, heads, ctas = (draw.randint(1, high) for high in (3, 900, 3, 20))
        if walk.traits.ranges:
            keys = draw.choice([seqlen, draw.randint(1, 900)])
            masks = [random_mask(draw, keys) for _ in range(batch_size)]
            given = np.stack([ranges(mask, seqlen, keys) for mask in masks])
            rows, columns = np.arange(seqlen)[:, None], np.arange(keys)
            wanted = [visible(mask, rows, columns, seqlen, keys) for mask in masks]
        else:
            keys, masks = seqlen, [random_bounds(draw, seqlen) for _ in range(batch_size)]
            given, wanted = np.array(masks), [sees_history(mask, seqlen) for mask in masks]
        yield masks, seqlen, keys, heads, ctas, given, wanted


def computed(walk, piece, sizes, given, own):
    """Who sees whom in a piece, as the consumer has it: blocks are masked where one of its rows does not see all."""
    (seqlen, keys), tile_n = sizes, walk.traits.tile_n
    rows = np.arange(piece["row"], min(piece["end"], seqlen))
    lo, hi = piece["lo"], piece["hi"]
    seen = np.zeros((len(rows), keys + tile_n), dtype=bool)
    for number in range(piece["blocks"]):
        begin = lo + number * tile_n
        columns = np.arange(begin, begin + tile_n)
        if walk.traits.ranges:
            begins, ends = given[piece["batch"], rows].T
            whole = begin >= piece["third"] and begin + tile_n <= piece["fourth"]
            block = whole | ((columns >= begins[:, None]) & (columns < np.minimum(ends, hi)[:, None]))
        else:
            block = np.broadcast_to((columns < hi) if begin + tile_n > hi else True, (len(rows), tile_n))
        seen[:, begin : begin + tile_n] |= block
    assert not seen[:, keys:].any()
    seen = seen[:, :keys]
    if not walk.traits.ranges:  # rows that are padding are cleared; a candidate's own key is added
        seen &= own.any(axis=1)[rows][:, None]
        if piece["candidates"]:
            seen |= np.eye(keys, dtype=bool)[rows] & own[rows]
    return seen


def test_every_row_sees_its_keys_once(walk):
    for masks, seqlen, keys, heads, ctas, given, wanted in cases(walk):
        seen = np.zeros((len(wanted), heads, seqlen, keys), dtype=np.int8)
        rows = np.zeros((len(wanted), heads, seqlen), dtype=np.int8)
        for piece in walk(given, (seqlen, keys, heads, ctas)):
            at = (piece["batch"], piece["head"], slice(piece["row"], min(piece["end"], seqlen)))
            rows[at] += 1
            seen[at] += computed(walk, piece, (seqlen, keys), given, wanted[piece["batch"]])
        assert (rows == 1).all(), (masks, seqlen)
        for batch, each in enumerate(wanted):
            assert (seen[batch] == each).all(), (masks[batch], seqlen, keys)


def test_a_group_visits_blocks_of_its_rows_alone(walk):
    """Without rows in a piece none; with bounds all of the tile's; with ranges all that one of its rows sees."""
    for masks, seqlen, keys, heads, ctas, given, _ in cases(walk, count=20):
        for piece in walk(given, (seqlen, keys, heads, ctas)):
            for group, (before, count) in enumerate(piece["parts"]):
                first, told = piece["row"] + 64 * group, (masks, seqlen, piece)
                rows = np.arange(first, min(first + 64, piece["end"], seqlen))
                assert 0 <= before <= before + count <= piece["blocks"], told
                if not len(rows) and walk.traits.balanced:
                    assert count == 0, told
                elif walk.traits.ranges:
                    begins, ends = given[piece["batch"], rows].T
                    for key in {*begins[begins < ends], *(ends[begins < ends] - 1)}:
                        block = piece["blocks"] - 1 - (key - piece["lo"]) // walk.traits.tile_n
                        assert before <= block < before + count, told
                else:
                    assert (before, count) == (0, piece["blocks"]), told


def test_the_longest_come_first(walk):
    for masks, seqlen, keys, heads, ctas, given, _ in cases(walk, count=20):
        pieces = walk(given, (seqlen, keys, heads, ctas))
        places = [(piece["batch"], piece["head"], piece["row"]) for piece in pieces]
        if walk.traits.longest_first:
            # A piece may see fewer keys than the tile that it was cut from, which the list goes by.
            tiles = -(-seqlen // walk.traits.tile_m) * heads * len(given)
            whole = [piece["blocks"] for piece in pieces[: tiles - tiles % ctas]]
            assert whole == sorted(whole, reverse=True), (masks, seqlen)
        else:
            assert places == sorted(places)


def test_a_last_round_keeps_as_many_blocks_busy_as_it_can():
    walk = Walk(balanced=True)
    bounds = [[0, 512, 512, 1920]]
    for heads, ctas, rounds in [(1, 10, 1), (1, 20, 1), (1, 30, 1), (2, 13, 2), (1, 9, 2), (1, 4, 3)]:
        pieces = walk(bounds, (1920, 1920, heads, ctas))
        assert -(-len(pieces) // ctas) == rounds
        left = 10 * heads % ctas  # tiles of a last round
        whole, cut = pieces[: 10 * heads - left], pieces[10 * heads - left :]
        assert {piece["end"] - piece["row"] for piece in whole} <= {192}
        assert len(cut) == left * (3 if 3 * left <= ctas else 2 if 2 * left <= ctas else 1)
        whole_tiles, each = deal(10 * heads, ctas, {"tile_m": 192, "balanced": True})
        assert (len(whole), len(cut)) == (whole_tiles, (10 * heads - whole_tiles) * each)

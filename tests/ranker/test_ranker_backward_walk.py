"""What the backward kernels visit, by their own functions, which the compiler takes for the host as for the device."""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from ranker_walk import Walk  # noqa: E402

SEQLEN, BATCH_SIZE, HEADS = 300, 4, 2
EDGES = [
    [[0, 300, 300, 300], [0, 0, 0, 300], [0, 0, 0, 0], [0, 200, 200, 300]],
    [[299, 300, 0, 299], [0, 1, 1, 2], [100, 228, 0, 100], [100, 229, 230, 300]],
    [[0, 200, 100, 300], [100, 200, 0, 300], [-5, 900, -9, 999], [900, 950, 10, 20]],  # overlapping, and outside
    [[50, 40, 60, 70], [10, 20, 20, 15], [64, 128, 128, 192], [0, 64, 65, 129]],  # ends before beginnings
]


def random_bounds(count, seed=3):
    draw = random.Random(seed)
    for _ in range(count):
        yield [[draw.randint(-20, SEQLEN + 20) for _ in range(4)] for _ in range(BATCH_SIZE)]


def of_definition(bounds):
    """Which rows are history, and which see anything."""
    h_lo, h_hi, c_lo, c_hi = bounds
    row = np.arange(SEQLEN)
    history = (h_lo <= row) & (row < h_hi)
    return history, history | ((c_lo <= row) & (row < c_hi))


@pytest.fixture(scope="module", params=[(64, 64), (128, 128)])
def walk(request):
    tile_m, tile_n = request.param
    return Walk(tile_m, tile_n, SEQLEN, BATCH_SIZE, HEADS)


@pytest.mark.parametrize("bounds", [*EDGES, *random_bounds(40)])
def test_every_row_that_sees_something_is_walked_once(walk, bounds):
    found = walk(bounds)
    for batch, each in enumerate(bounds):
        _, visible = of_definition(each)
        slots, tiles = found.slots[batch], found.tiles[batch]
        assert ((slots >= 0) == visible).all()
        assert len(tiles) <= walk.most_tiles
        walked = [
            (row, walk.tile_m * tile + row - begin)
            for tile, (begin, end) in enumerate(tiles)
            for row in range(begin, end)
        ]
        assert walked == [(row, slots[row]) for row, _ in walked]
        assert sorted(row for row, _ in walked) == np.flatnonzero(visible).tolist()
        assert all(begin < end <= begin + walk.tile_m for begin, end in tiles)
        # Slots of walked tiles are either a row's or spare, and no others are spare.
        taken = {slot for _, slot in walked}
        assert set(np.flatnonzero(found.spare[batch])) == set(range(walk.tile_m * len(tiles))) - taken


@pytest.mark.parametrize("bounds", [*EDGES, *random_bounds(40, seed=4)])
def test_every_key_of_the_history_is_in_one_block(walk, bounds):
    blocks = walk(bounds).blocks
    inside = blocks[blocks[:, 2] < BATCH_SIZE]
    assert (blocks[len(inside) :, 2] == BATCH_SIZE).all()  # those past the last come last
    expected = [
        (begin, head, batch)
        for batch, each in enumerate(bounds)
        for keys in [np.flatnonzero(of_definition(each)[0])]
        for head in range(HEADS)
        if len(keys)
        for begin in range(keys[0], keys[-1] + 1, walk.tile_n)
    ]
    assert [tuple(each) for each in inside.tolist()] == expected

"""Which rows blocks of keys visit, and what of them is hidden, where rows see ranges: by the device's functions."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from ranker_spans import Spans  # noqa: E402
from ranker_tables import of_definition, tables  # noqa: E402

BATCH_SIZE, HEADS = 2, 2
LENGTHS = [(300, 300), (130, 333), (333, 70), (1, 1)]
FORMS = [(64, 128, LENGTHS[0]), (128, 128, LENGTHS[0]), *((64, 64, each) for each in LENGTHS[1:])]
FORMS += [(128, 64, LENGTHS[1]), (64, 128, LENGTHS[2])]


@pytest.fixture(scope="module", params=FORMS, ids=str)
def spans(request):
    return Spans(*request.param, BATCH_SIZE, HEADS)


def test_every_row_meets_the_keys_that_it_sees_once(spans):
    all_tables = list(tables(spans.seqlen, spans.keys, 12))
    for (_, table), (name, other) in zip(all_tables, [*all_tables[1:], all_tables[0]], strict=True):
        found = spans(np.stack([table, other]))
        visible = [of_definition(each, spans.keys) for each in (table, other)]
        for batch, rows in enumerate(visible):
            for key, (begin, end) in enumerate(found.spans[batch].tolist()):
                assert np.flatnonzero(rows[:, key]).tolist() == list(range(begin, end)), name
        expected = [
            (key, head, batch)
            for batch in range(BATCH_SIZE)
            for head in range(HEADS)
            for key in range(0, spans.keys, spans.tile_n)
        ]
        assert [tuple(each) for each in found.blocks.tolist()] == expected
        for (key, _, batch), tiles, kept in zip(expected, found.tiles, found.kept, strict=True):
            rows = visible[batch][:, key : key + spans.tile_n]
            assert (kept[: spans.seqlen, : rows.shape[1]] == rows).all(), name
            assert not kept[:, rows.shape[1] :].any(), name  # behind the last key
            assert all(begin % spans.tile_m == 0 and begin < end <= spans.seqlen for begin, end in tiles), name
            # Of rows that are not loaded, whose queries are zeros, none is kept: but slots behind the last of all.
            loaded = np.zeros(spans.slots, dtype=bool)
            for begin, end in tiles:
                loaded[begin:end] = True
            loaded[spans.seqlen :] = True
            assert not kept[~loaded].any(), name


def test_no_table_makes_a_block_walk_rows_that_there_are_not():
    """Ends that fall give wrong results, but neither a thread that waits for ever nor memory of others."""
    spans = Spans(64, 128, (300, 300), BATCH_SIZE, HEADS)
    draw = np.random.default_rng(2)
    for _ in range(20):
        found = spans(draw.integers(-500, 900, (BATCH_SIZE, 300, 2)))
        assert all(0 <= begin < end <= 300 for tiles in found.tiles for begin, end in tiles)

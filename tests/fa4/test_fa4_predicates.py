"""The traced predicates against the masks' own definition, element by element."""

import numpy as np
from fa4_cases import make_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl_kernels import masks
from attnctl_kernels.contract import Mask
from attnctl_kernels.fa4.predicates import TILE_MARGIN, predicate


@st.composite
def problems(draw):
    pattern = draw(st.sampled_from(sorted(masks.PATTERNS)))
    keys = draw(st.integers(1, 60))
    queries = keys if pattern == "history_candidate" else draw(st.integers(1, 60))
    facts = {}
    match pattern:
        case "sliding_window":
            facts["window"] = draw(st.integers(1, 70))
        case "prefix_lm":
            facts["prefix_len"] = draw(st.integers(0, keys))
        case "history_candidate":
            facts["history_len"] = draw(st.integers(0, keys))
        case "document":
            facts["causal"] = draw(st.booleans())
            if draw(st.booleans()):
                facts["document_len"] = draw(st.integers(1, 70))
            else:
                cuts = sorted(draw(st.sets(st.integers(1, keys - 1), max_size=4))) if keys > 1 else []
                facts["document_lens"] = tuple(np.diff([0, *cuts, keys]).tolist())
        case "blocks":
            block_q, block_kv = draw(st.tuples(st.integers(1, 20), st.integers(1, 20)))
            every = range(-(-keys // block_kv))
            row = st.lists(st.sampled_from(every), unique=True).map(lambda each: tuple(sorted(each)))
            count = -(-queries // block_q)
            facts |= {"block_size": (block_q, block_kv), "rows": tuple(draw(row) for _ in range(count))}
    return make_problem(queries, keys, mask=Mask(pattern=pattern, **facts))


def traced(problem, rows, columns):
    """What the kernel sees: flat tables, one entry at a time."""
    found = predicate(problem)
    if found is None:
        return np.ones(np.broadcast_shapes(rows.shape, columns.shape), dtype=bool)
    tables = [np.array(table) for table in found.tables]
    return np.asarray(found.visible(rows, columns, lambda number, index: tables[number][index]), dtype=bool)


@settings(deadline=None, max_examples=300)
@given(problems())
def test_predicate_is_the_mask(problem):
    rows, columns = np.arange(problem.seqlen_q)[:, None], np.arange(problem.seqlen_k)[None, :]
    expected = masks.visible(problem.mask, rows, columns, problem.seqlen_q, problem.seqlen_k)
    np.testing.assert_array_equal(
        np.broadcast_to(traced(problem, rows, columns), expected.shape), np.broadcast_to(expected, expected.shape)
    )


@settings(deadline=None, max_examples=100)
@given(problems())
def test_rows_and_keys_behind_the_end_are_inside_the_tables(problem):
    """A last tile evaluates the predicate behind both lengths; what it gets there is masked by the kernel."""
    rows = problem.seqlen_q + np.arange(TILE_MARGIN)[:, None]
    columns = problem.seqlen_k + np.arange(TILE_MARGIN)[None, :]
    traced(problem, rows, columns)
    traced(problem, rows, np.zeros_like(columns))

"""Where a thread of the backward kernels believes its elements to lie, against the layouts that the compiler has."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cutlass")

from attnctl_kernels.ranker.sm90 import build  # noqa: E402, I001 - names the arch before cutlass is imported
import cutlass  # noqa: E402
from cutlass import Float32, Int32, cute  # noqa: E402
from cutlass.cute.nvgpu import OperandMajorMode, warpgroup  # noqa: E402
from cutlass.cute.runtime import from_dlpack  # noqa: E402

from attnctl_kernels.ranker.sm90 import backward, backward_consumer, backward_rows, sums, tma  # noqa: E402
from attnctl_kernels.ranker.sm90.backward_producer import box_at  # noqa: E402
from attnctl_kernels.ranker.sm90.backward_traits import BackwardTraits  # noqa: E402

TRAITS = BackwardTraits(build.DTYPES["bfloat16"], 128, 64, 128, 2)
THREADS, ROWS = 128, 64
SOME = (0, 1, 5, 31, 37, 64, 127)
WARP = range(32, 64)
K, MN = OperandMajorMode.K, OperandMajorMode.MN


def own_row(thread):
    return thread // 32 * 16 + thread % 32 // 4


def place(thread, i):
    """Row and column of element ``i`` in memory order, as ``fragments`` says."""
    return own_row(thread) + 8 * (i // 2 % 2), 8 * (i // 4) + 2 * (thread % 4) + i % 2


def traced(function):
    """What ``function`` returns while it is compiled: layouts are known then."""
    found = []

    @cute.jit
    def run():
        found.append(function())

    cute.compile(run)
    return found[0]


def coordinates(partition):
    """Of a thread's part of a 64 x 64 identity tensor, in memory order."""
    return [tuple(int(x) for x in partition[i]) for i in range(cute.size(partition))]


def test_accumulators_and_operands_lie_where_the_kernel_believes():
    def function():
        identity = cute.make_identity_tensor((ROWS, ROWS))
        scores = backward._mma(TRAITS, K, K, (ROWS, ROWS))
        dq = backward._mma(TRAITS, MN, MN, (ROWS, ROWS))
        gradients = backward._mma(TRAITS, K, MN, TRAITS.part, warpgroup.OperandSource.RMEM)
        return [
            [coordinates(part(thread)) for thread in SOME]
            for part in (
                lambda thread: scores.get_slice(thread).partition_C(identity),
                lambda thread: dq.get_slice(thread).partition_C(identity),
                lambda thread: gradients.get_slice(thread).partition_A(identity),
            )
        ]

    expected = [[place(thread, i) for i in range(32)] for thread in SOME]
    assert traced(function) == [expected] * 3


def test_ds_goes_where_its_elements_belong():
    """A thread of stmatrix gives the address of a row of one 8 x 8 matrix, whose elements come from four others."""

    def function():
        identity = cute.make_identity_tensor((ROWS, ROWS))
        gradients = backward._mma(TRAITS, K, MN, TRAITS.part, warpgroup.OperandSource.RMEM)
        copy = backward_consumer._stmatrix(TRAITS, backward._mma(TRAITS, K, K, (ROWS, ROWS)))
        held, addressed = [], []
        for thread in WARP:
            part = copy.get_slice(thread)
            held.append(coordinates(part.retile(gradients.get_slice(thread).partition_A(identity))))
            addressed.append(coordinates(part.partition_D(identity)))
        return held, addressed

    held, addressed = traced(function)
    for lane in range(32):
        matrix, row = lane // 8, lane % 8
        for step in range(4):
            of_matrix = range(8 * step + 2 * matrix, 8 * step + 2 * matrix + 2)
            sources = [held[4 * row + quad][i] for quad in range(4) for i in of_matrix]
            first = addressed[lane][8 * step]
            assert sources == [(first[0], first[1] + column) for column in range(8)]


def test_each_piece_of_dq_is_one_warp_groups():
    for head_dim, tile_m, tile_n in [
        (128, 64, 128),
        (64, 128, 128),
        (128, 64, 64),
        (64, 128, 64),
        (64, 64, 64),
        (96, 64, 128),
        (192, 64, 64),
        (256, 64, 64),
    ]:
        t = BackwardTraits(None, head_dim, tile_m, tile_n, 2)
        pieces = [t.place(group, n) for group in range(t.warp_groups) for n in range(t.pieces)]
        columns = -(-head_dim // t.piece[1])
        assert sorted(pieces) == [(row, column) for row in range(tile_m // 64) for column in range(columns)]


@pytest.mark.parametrize("pieces", [1, 2, 3, 4])
def test_no_piece_is_staged_where_the_one_before_was(pieces, monkeypatch):
    monkeypatch.setattr(BackwardTraits, "pieces", pieces)
    used = [backward_consumer.staged_in(TRAITS, n, step % 2) for step in range(4) for n in range(pieces)]
    assert used == [n % 2 for n in range(4 * pieces)]


def test_keys_that_are_stored_as_wide_as_dq_begin_with_their_columns():
    """Scores are taken from the first columns, dQ from all; TMA fills the first."""

    def function():
        dtype = build.DTYPES["bfloat16"]
        plain, wide = tma.swizzled(dtype, (ROWS, 96)), tma.swizzled(dtype, (ROWS, 96), 128)
        assert str(plain.inner) == str(wide.inner)
        return [
            [cute.crd2idx((row, column), layout.outer) for row in range(ROWS) for column in range(96)]
            for layout in (plain, wide)
        ]

    plain, wide = traced(function)
    assert plain == wide
    assert sorted(plain) == list(range(ROWS * 96))


def test_lse_and_delta_are_those_of_an_elements_column():
    out = torch.zeros(4, 16)

    @cute.jit
    def run(column: cute.Tensor, out: cute.Tensor):
        for quad in range(4):
            values = cute.make_rmem_tensor((2, ROWS // 8), Float32)
            backward_consumer.load_stats(values, column, Int32(2 * quad))
            for i in range(16):
                out[quad, i] = values[i % 2, i // 2]

    column = torch.arange(64, dtype=torch.float32)
    run(from_dlpack(column), from_dlpack(out))
    for quad in range(4):
        assert [out[quad, 2 * (i // 4) + i % 2] for i in range(32)] == [place(quad, i)[1] for i in range(32)]


@pytest.mark.parametrize("columns", [32, 64])
def test_dq_comes_back_from_the_order_of_its_sums(monkeypatch, columns):
    """A piece of dQ, staged by all threads of a warp group, and read by those that finish it: as it was."""
    memory = torch.full((1, 1, ROWS, columns), -1.0)
    back, again = (torch.full((ROWS, columns), -1.0) for _ in range(2))

    @cute.jit
    def run(memory: cute.Tensor, back: cute.Tensor, again: cute.Tensor):
        pieces = sums.by_warp(memory, columns)[0, 0, None, None, 0, 0]
        rows = sums.by_row(memory, columns)[0, 0, None, None]
        for thread in range(THREADS):
            piece = cute.make_rmem_tensor(cute.make_layout(columns // 2), Float32)
            for i in cutlass.range_constexpr(columns // 2):
                row, column = place(thread, i)
                piece[i] = Float32(row * columns + column)
            sums.lay_out(piece, pieces[None, thread // 32], Int32(thread % 32))
        for row in range(ROWS):
            for pair in cutlass.range_constexpr(columns // 16):
                lanes = [Int32(2 * pair), Int32(2 * pair + 1)]
                mixed = [_part_of(rows, row, lane) for lane in (2 * pair, 2 * pair + 1)]
                plain = both(monkeypatch, backward_rows.unmix, mixed, lanes)
                remixed = both(monkeypatch, backward_rows.mix, plain, lanes)
                for n in cutlass.range_constexpr(2):
                    for i in cutlass.range_constexpr(8):
                        back[row, 16 * pair + 8 * n + i] = plain[n][i]
                        again[row, 16 * pair + 8 * n + i] = remixed[n][i] - rows[row, 8 * (2 * pair + n) + i]

    run(*(from_dlpack(x) for x in (memory, back, again)))
    np.testing.assert_array_equal(back.numpy(), np.arange(ROWS * columns, dtype=np.float32).reshape(ROWS, columns))
    assert not again.any()


@pytest.mark.parametrize("columns", [32, 64])
def test_sums_have_a_place_for_each_element_of_each_row(columns):
    """Both views cover all of a head's memory, and agree on where pieces begin."""

    def function():
        memory = cute.make_tensor(cute.make_ptr(Float32, 0, cute.AddressSpace.gmem), cute.make_layout((2, 3, 192, 128)))
        rows, pieces = sums.by_row(memory, columns), sums.by_warp(memory, columns)
        offsets = [cute.crd2idx((0, 0, row, column), rows.layout) for row in range(192) for column in range(128)]
        corners = [
            (cute.crd2idx((1, 2, 64 * r, columns * c), rows.layout), cute.crd2idx((1, 2, 0, 0, c, r), pieces.layout))
            for r in range(3)
            for c in range(128 // columns)
        ]
        return offsets, corners

    offsets, corners = traced(function)
    assert len(set(offsets)) == 192 * 128
    assert all(one == other for one, other in corners)


def test_no_box_is_without_a_row():
    """TMA goes to the address in a descriptor for such a box, and before a tensor memory need not be mapped."""
    cases = [(begin, limit) for limit in (1, 20, 64, 100, 192, 300) for begin in range(0, 300, 64)]
    places = torch.zeros(len(cases), 2, dtype=torch.int32)
    x = torch.zeros(1, 300, 1, 8)

    @cute.jit
    def run(x: cute.Tensor, places: cute.Tensor):
        view = tma.ending_anywhere(tma.rows_first(x), ROWS)
        for n, (begin, limit) in enumerate(cases):
            missing, end, head, batch = box_at(Int32(begin), Int32(limit), Int32(0), Int32(0))
            places[n, 0] = missing
            places[n, 1] = cute.crd2idx((missing, 0, end, head, batch), view.layout)

    run(from_dlpack(x, assumed_align=16), from_dlpack(places))
    for (begin, limit), (missing, place) in zip(cases, places.tolist(), strict=True):
        row, rows = place // 8 - ROWS, ROWS - missing  # the view begins 64 rows before the tensor
        assert (row, rows) == ((begin, min(ROWS, limit - begin)) if begin < limit else (limit - 1, 1))


def _part_of(sums, row, lane):
    part = cute.make_rmem_tensor(cute.make_layout(8), Float32)
    for i in range(8):
        part[i] = sums[row, 8 * lane + i]
    return part


def both(monkeypatch, function, parts, lanes):
    """``function`` as two neighbouring lanes run it: what each sends is what the other receives."""
    sent = []
    monkeypatch.setattr(backward_rows, "_swap", lambda values: sent.append(values) or values)
    for part, lane in zip(parts, lanes, strict=True):
        function(part, lane)
    results = []
    for part, lane, received in zip(parts, lanes, reversed(sent[:2]), strict=True):
        monkeypatch.setattr(backward_rows, "_swap", lambda _, received=received: received)
        results.append(function(part, lane))
    return results

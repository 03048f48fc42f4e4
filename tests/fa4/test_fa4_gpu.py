"""The real kernel on a real Hopper GPU, against the reference."""

import itertools

import pytest
from fa4_cases import MASKS, compile_ahead, in_a_process, make_problem, make_work, objects

from attnctl.gpu.deadlines import Deadlines
from attnctl.gpu.measurer import Measurer
from attnctl.gpu.protocol import Contender, Hello
from attnctl_kernels import masks
from attnctl_kernels.contract import Mask, Outcome, OutOfResources

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.fa4.launch")

from fa4_process import random_inputs  # noqa: E402 - needs torch

from attnctl.worker.graphs import CALLS  # noqa: E402 - likewise
from attnctl_kernels import reference  # noqa: E402 - likewise

MISSING = launch.LAUNCHER.available("sm_90")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

FACTOR = 3.0  # allowed error, in errors that plain PyTorch makes at the same type

HISTORY = Mask(pattern="history_candidate", history_len=1100)
WINDOW = Mask(pattern="sliding_window", window=300)
DOCUMENTS = Mask(pattern="document", document_len=384)
SOME_BLOCKS = Mask(pattern="blocks", block_size=(128, 128), rows=((0,), (0, 5), (5,), (), (2, 5), (2,), (0, 2), (7,)))
SMALL = {"tile_m": 64, "tile_n": 64}


def right_cases():
    """Name, problem and config of what is compared with the reference."""
    for name, mask in MASKS.items():  # 500 tokens: no tile divides them
        yield f"{name}, tail", make_problem(500, heads=2, head_dim=64, mask=mask, batch_size=2), SMALL
    for seqlen_q in (300, 777):  # 777 queries on 500 keys: the first 277 see nothing, unless a prefix lets them
        for name in ("causal", "window", "documents", "causal ragged documents", "prefix"):
            yield (
                f"{name}, {seqlen_q} on 500",
                make_problem(seqlen_q, 500, heads=2, head_dim=64, mask=MASKS[name]),
                SMALL,
            )
    for mask in (HISTORY, WINDOW, DOCUMENTS):
        for head_dim, tile_m, tile_n in ((64, 192, 128), (128, 128, 128), (256, 128, 80)):
            problem = make_problem(1500, heads=2, head_dim=head_dim, mask=mask, batch_size=2)
            yield f"{mask.pattern}, head_dim {head_dim}", problem, {"tile_m": tile_m, "tile_n": tile_n}
    history = make_problem(1500, heads=2, mask=HISTORY)
    yield "one warp group", history, {"tile_m": 64, "tile_n": 176}
    yield "P in shared memory", history, {"tile_m": 128, "tile_n": 96, "mma_pv_is_rs": False}
    yield "no overlap", history, {"tile_m": 128, "tile_n": 160, "intra_wg_overlap": False}
    plain = {"mma_pv_is_rs": False, "intra_wg_overlap": False}
    yield "three warp groups, plain", history, {"tile_m": 192, "tile_n": 112, **plain}
    yield "three warp groups, spilling", history, {"tile_m": 192, "tile_n": 128}
    # 6 heads per group do not divide a tile: Q then goes through threads.
    for heads, heads_kv, tile_m in ((32, 8, 128), (8, 1, 64), (6, 1, 128)):
        problem = make_problem(1500, heads=heads, heads_kv=heads_kv, mask=DOCUMENTS)
        yield f"{heads} heads on {heads_kv}", problem, {"tile_m": tile_m}
    for name in ("causal", "documents"):
        problem = make_problem(500, heads=8, heads_kv=2, mask=MASKS[name])
        yield f"{name}, 8 heads on 2, not packed", problem, {"pack_gqa": False}
    for seqlen_q, name in itertools.product((300, 500, 563, 777), ("causal", "window")):
        # Of 563 queries 63 see nothing; of 777 so many that whole tiles do.
        problem = make_problem(seqlen_q, 500, heads=2, head_dim=64, mask=MASKS[name], batch_size=2)
        yield f"{name}, native, {seqlen_q} on 500", problem, {**SMALL, "mask_form": "native"}
    for head_dim, tile_m, tile_n in ((64, 192, 128), (128, 128, 128), (128, 128, 176), (256, 128, 64)):
        problem = make_problem(1500, heads=8, heads_kv=2, head_dim=head_dim, mask=WINDOW, batch_size=2)
        tile = {"tile_m": tile_m, "tile_n": tile_n, "mask_form": "native"}
        yield f"window, native, head_dim {head_dim}, {tile_n} keys", problem, tile
        if tile_n == 128:
            yield f"window, native, head_dim {head_dim}, not packed", problem, {**tile, "pack_gqa": False}
    for mask in (HISTORY, WINDOW, DOCUMENTS):
        problem = make_problem(1500, heads=8, heads_kv=2, mask=mask)
        yield f"{mask.pattern}, two tiles per block", problem, {"subtile_factor": 2}
        yield f"{mask.pattern}, two tiles per block, not packed", problem, {"subtile_factor": 2, "pack_gqa": False}
    yield "head_dim 192 and 128", make_problem(1000, heads=2, head_dim=192, head_dim_v=128, mask=WINDOW), {}
    yield "float16", make_problem(500, heads=2, dtype="float16", mask=MASKS["causal"]), {}
    yield "softmax_scale", make_problem(500, heads=2, mask=MASKS["causal"], softmax_scale=0.25), {}


RIGHT = {name: (problem, config) for name, problem, config in right_cases()}
CAUSAL = make_problem(2048, heads=8, mask=MASKS["causal"])


@pytest.fixture(autouse=True, scope="module")
def compiled_ahead(request, kernel_cache):
    """The kernels of the chosen tests, compiled on all cores before the first one runs."""
    chosen = [getattr(item, "callspec", None) for item in request.session.items if item.module is request.module]
    names = dict.fromkeys(spec.params["name"] for spec in chosen if spec and spec.params.get("name") in RIGHT)
    work = [make_work(RIGHT[name][0], **RIGHT[name][1]) for name in names]
    compile_ahead(work, kernel_cache)


def rms(tensor):
    return tensor.float().square().mean().sqrt().item()


def assert_right(problem, inputs, call):
    out, lse = call.outputs()["out"], call.outputs()["lse"]
    call_of = (inputs.q, inputs.k, inputs.v, problem.mask, problem.softmax_scale)
    expected, expected_lse = reference.forward(*call_of)
    plain, _ = reference.plain(*call_of)
    assert torch.isfinite(out).all(), "elements that the kernel did not write, or that are not numbers"
    assert rms(out.float() - expected) <= FACTOR * max(rms(plain.float() - expected), 1e-3 * rms(expected))
    worst = (out.float() - expected).abs().max()
    assert worst <= FACTOR * max((plain.float() - expected).abs().max().item(), 0.02)
    blind = expected_lse == -torch.inf
    torch.testing.assert_close(lse[~blind], expected_lse[~blind], atol=2e-3, rtol=2e-3)
    assert (lse[blind] == -torch.inf).all()
    rows = blind.transpose(1, 2)
    assert (out[rows] == 0).all()


def bind(problem, **config):
    task, candidate = make_work(problem, **config)
    inputs = random_inputs(problem)
    return candidate, inputs, launch.LAUNCHER.bind(task, candidate, inputs)


@pytest.mark.parametrize("name", RIGHT)
def test_against_the_reference(name):
    problem, config = RIGHT[name]
    _, inputs, call = bind(problem, **config)
    call.poison()
    call.run()
    torch.cuda.synchronize()
    assert_right(problem, inputs, call)


@pytest.mark.parametrize("overlap", [True, False])
def test_key_blocks_that_nobody_sees_are_not_read(overlap):
    problem = make_problem(1024, heads=2, mask=SOME_BLOCKS)
    candidate, inputs, call = bind(problem, intra_wg_overlap=overlap)
    block = candidate.sparse_block
    classes = masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, problem.seqlen_q, block[1])
    unseen = [index for index, what in enumerate(classes[0]) if what == masks.EMPTY]
    assert unseen == [1, 3, 4, 6]
    call.run()
    expected = call.outputs()["out"].clone()
    for index in unseen:
        keys = slice(index * block[1], (index + 1) * block[1])
        inputs.k[:, keys] = float("nan")
        inputs.v[:, keys] = float("nan")
    call.poison()
    call.run()
    torch.testing.assert_close(call.outputs()["out"], expected, atol=0, rtol=0)


def test_call_reads_the_tensors_when_it_runs():
    _, inputs, call = bind(CAUSAL)
    call.run()
    for name, tensor in zip(("q", "k", "v"), (inputs.q, inputs.k, inputs.v), strict=True):
        assert tensor.is_contiguous(), name
        tensor.copy_(torch.randn_like(tensor))
    call.poison()
    call.run()
    assert_right(CAUSAL, inputs, call)


def test_call_follows_the_current_stream():
    _, inputs, call = bind(CAUSAL)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        call.poison()
        call.run()
    stream.synchronize()
    assert_right(CAUSAL, inputs, call)


def test_kernel_compiled_without_a_gpu_is_found(tmp_path):
    """What compile workers leave on disk is what the measuring process asks for."""
    names = ("dense", "history", "causal ragged documents")
    work = [
        make_work(make_problem(500, heads=4, heads_kv=2, mask=MASKS[name], batch_size=2), tile_m=64, tile_n=64)
        for name in names
    ]
    in_a_process("compile", work, tmp_path, CUDA_VISIBLE_DEVICES="")
    before = objects(tmp_path)
    assert len(before) == len(names)
    results = in_a_process("bind", work, tmp_path)
    assert objects(tmp_path) == before
    assert max(result["difference"] for result in results) < 0.05


def test_short_kernel_is_timed_as_a_graph(kernel_cache, tmp_path):
    task, candidate = make_work(make_problem(512, heads=2, head_dim=64))
    with Measurer(Hello(family="fa4", arch="sm_90", device="cuda:0"), Deadlines(), tmp_path) as measurer:
        measurer.prepare(task)
        result = measurer.measure(candidate)
        assert (result.outcome, result.reason) == (Outcome.OK, "")
        assert result.timing.graph_calls == CALLS
        contenders = [Contender(name=name, candidate=candidate) for name in ("a", "b")]
        cycles = measurer.finals(contenders, 10).cycles
    assert len(cycles) == 10
    assert all(us > 0 for cycle in cycles for us in cycle.samples_us.values())


def test_too_much_shared_memory_is_out_of_resources():
    """FA4-F007 forbids it; here is what the launch says."""
    _, _, call = bind(CAUSAL, tile_m=128, tile_n=208)
    with pytest.raises(OutOfResources):
        call.run()
    torch.cuda.synchronize()
    _, inputs, after = bind(CAUSAL)
    after.run()
    assert_right(CAUSAL, inputs, after)

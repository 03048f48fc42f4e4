"""The real backward kernels on a real Hopper GPU, against the gradients of the reference."""

import pytest
from fa4_cases import MASKS, compile_ahead, errors, in_a_process, make_backward_work, make_case, make_problem, objects

from attnctl_kernels import masks
from attnctl_kernels.contract import Mask

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.fa4.launch")

from fa4_process import backward_inputs  # noqa: E402 - needs torch

from attnctl_kernels import reference  # noqa: E402 - likewise

MISSING = launch.LAUNCHER.available("sm_90")
pytestmark = [pytest.mark.gpu, pytest.mark.skipif(MISSING is not None, reason=str(MISSING))]

FACTOR = 3.0  # allowed error, in errors that plain PyTorch makes at the same type

HISTORY = Mask(pattern="history_candidate", history_len=1100)
DOCUMENTS = Mask(pattern="document", document_len=384)
SOME_BLOCKS = Mask(pattern="blocks", block_size=(128, 128), rows=((0,), (0, 5), (5,), (), (2, 5), (2,), (0, 2), (7,)))


def right_cases():
    """Name, problem and what is changed of the kernel's own config."""
    for name, mask in MASKS.items():  # 500 tokens: no tile divides them
        yield f"{name}, tail", make_problem(500, heads=2, head_dim=64, mask=mask, batch_size=2), {}
    for seqlen_q in (300, 777):  # 777 queries on 500 keys: the first 277 see nothing, unless a prefix lets them
        for name in ("causal", "window", "documents", "causal ragged documents", "prefix"):
            problem = make_problem(seqlen_q, 500, heads=2, head_dim=64, mask=MASKS[name])
            yield f"{name}, {seqlen_q} on 500", problem, {}
    for head_dim, head_dim_v in ((64, 64), (96, 96), (128, 128), (192, 128), (192, 192), (256, 256)):
        dims = {"head_dim": head_dim, "head_dim_v": head_dim_v}
        for mask in (HISTORY, Mask()):
            yield f"{mask.pattern}, {head_dim} and {head_dim_v}", make_problem(1500, heads=2, mask=mask, **dims), {}
    for heads, heads_kv, head_dim in ((8, 2, 128), (6, 1, 64), (4, 2, 256)):
        problem = make_problem(1000, heads=heads, heads_kv=heads_kv, head_dim=head_dim, mask=DOCUMENTS, batch_size=2)
        yield f"{heads} heads on {heads_kv}, {head_dim}", problem, {}
    history = make_problem(1500, heads=2, mask=HISTORY)
    yield "80 rows", history, {"tile_m": 80, "dQ_swapAB": True, "subtile_factor": 1}
    yield "two tiles per block", history, {"tile_m": 64, "subtile_factor": 2}
    yield "three tiles per block", history, {"tile_m": 64, "subtile_factor": 3}
    yield "one stage of dS", history, {"num_stages_PdS": 1}
    yield "one stage of dO and dS", history, {"num_stages_dO": 1, "num_stages_PdS": 1}
    yield "one stage of all", history, {"num_stages_Q": 1, "num_stages_dO": 1, "num_stages_PdS": 1}
    yield "dQ by one warp group", history, {"dQ_single_wg": True}
    yield "keys along the columns", history, {"SdP_swapAB": False, "num_stages_PdS": 1}
    yield "dK and dV transposed", history, {"dKV_swapAB": True, "num_stages_PdS": 1}
    yield "float16", make_problem(500, heads=2, dtype="float16", mask=MASKS["causal"]), {}
    yield "softmax_scale", make_problem(500, heads=2, mask=MASKS["causal"], softmax_scale=0.25), {}


RIGHT = {name: (problem, config) for name, problem, config in right_cases()}
CAUSAL = make_problem(1000, heads=2, head_dim=64, mask=MASKS["causal"])


@pytest.fixture(autouse=True, scope="module")
def compiled_ahead(request, kernel_cache):
    """The kernels of the chosen tests, compiled on all cores before the first one runs."""
    chosen = [getattr(item, "callspec", None) for item in request.session.items if item.module is request.module]
    names = dict.fromkeys(spec.params["name"] for spec in chosen if spec and spec.params.get("name") in RIGHT)
    compile_ahead([make_backward_work(RIGHT[name][0], **RIGHT[name][1]) for name in names], kernel_cache)


def rms(tensor):
    return tensor.float().square().mean().sqrt().item()


def assert_right(problem, inputs, call):
    call_of = (inputs.q, inputs.k, inputs.v, inputs.dout, problem.mask, problem.softmax_scale)
    expected, plain = reference.backward(*call_of), reference.plain_backward(*call_of)
    for name, want, usual in zip(("dq", "dk", "dv"), expected, plain, strict=True):
        got = call.outputs()[name]
        assert torch.isfinite(got).all(), f"{name} has elements that the kernel did not write, or that are not numbers"
        allowed = max(rms(usual.float() - want), 1e-3 * rms(want))
        assert rms(got.float() - want) <= FACTOR * allowed, name


def bind(problem, **config):
    task, candidate = make_backward_work(problem, **config)
    inputs = backward_inputs(problem)
    return candidate, inputs, launch.LAUNCHER.bind(task, candidate, inputs)


@pytest.mark.parametrize("name", RIGHT)
def test_against_the_reference(name):
    problem, config = RIGHT[name]
    assert not errors(make_case(problem, "backward", **config))
    _, inputs, call = bind(problem, **config)
    for _ in range(2):  # sums start from zero each time
        call.poison()
        call.run()
    torch.cuda.synchronize()
    assert_right(problem, inputs, call)


def test_key_blocks_that_nobody_sees_are_not_read():
    problem = make_problem(1024, heads=2, mask=SOME_BLOCKS)
    candidate, inputs, call = bind(problem)
    block = candidate.sparse_block
    classes = masks.classify(problem.mask, problem.seqlen_q, problem.seqlen_k, problem.seqlen_q, block[1])
    unseen = [index for index, what in enumerate(classes[0]) if what == masks.EMPTY]
    assert unseen == [1, 3, 4, 6]
    call.run()
    expected = {name: each.clone() for name, each in call.outputs().items()}
    for index in unseen:
        keys = slice(index * block[1], (index + 1) * block[1])
        inputs.k[:, keys] = float("nan")
        inputs.v[:, keys] = float("nan")
        assert (expected["dk"][:, keys] == 0).all()
    call.poison()
    call.run()
    for name, each in call.outputs().items():
        assert torch.isfinite(each).all()
        torch.testing.assert_close(each, expected[name], atol=2e-2, rtol=2e-2)  # sums of dQ have no order


def test_call_reads_the_tensors_when_it_runs():
    _, inputs, call = bind(CAUSAL)
    call.run()
    fresh = backward_inputs(CAUSAL, seed=7)
    for name in ("q", "k", "v", "out", "lse", "dout"):
        getattr(inputs, name).copy_(getattr(fresh, name))
    call.poison()
    call.run()
    assert_right(CAUSAL, inputs, call)


def test_stages_of_ds_are_another_kernel(tmp_path):
    """flash-attn-4's own key leaves them out."""
    work = [make_backward_work(CAUSAL, num_stages_PdS=stages) for stages in (1, 2)]
    one, two = in_a_process("compile", work, tmp_path, CUDA_VISIBLE_DEVICES="")
    assert one["resources"]["smem_bytes"] < two["resources"]["smem_bytes"]
    before = objects(tmp_path)
    results = in_a_process("bind", work, tmp_path)
    assert objects(tmp_path) == before
    assert max(result["difference"] for result in results) < 0.1


def test_flash_attentions_own_choice_is_back():
    from flash_attn.cute import interface

    real = interface._tile_size_bwd_sm90
    _, inputs, call = bind(CAUSAL, tile_m=64, AtomLayoutMdQ=1)
    assert interface._tile_size_bwd_sm90 is real
    call.run()
    assert_right(CAUSAL, inputs, call)

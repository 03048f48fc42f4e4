"""The real kernels on a real GPU, through the checks of a worker: NaN in outputs and unseen keys, races, references."""

import os
import re

import pytest
from flex_runs import MASKS, compiled, make_problem, make_work

from attnctl_kernels.contract import Mask, Outcome

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.flex.launch")

from torch._dynamo.utils import counters  # noqa: E402 - needs torch
from torch._inductor.utils import run_and_get_code  # noqa: E402
from torch.nn.attention.flex_attention import BlockMask, flex_attention  # noqa: E402

from attnctl.worker import failures  # noqa: E402
from attnctl.worker.check import Checker  # noqa: E402
from attnctl.worker.devices import open_device  # noqa: E402
from attnctl.worker.setup import Setup  # noqa: E402
from attnctl_kernels.flex.launch import source  # noqa: E402
from attnctl_kernels.flex.launch.block_mask import flex_mask  # noqa: E402

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device is visible")]
ARCH = "sm_{}{}".format(*torch.cuda.get_device_capability()) if torch.cuda.is_available() else "sm_90"

SMALL = {"forward": {"BLOCK_M": 64, "BLOCK_N": 64}, "backward": {}}
HISTORY = Mask(pattern="history_candidate", history_len=1100)
LISTED = Mask(pattern="blocks", block_size=(128, 128), rows=((0,), (0, 5), (5,), (), (2, 5), (2,), (0, 2), (7,)))


def work(pass_name):
    for name, mask in MASKS.items():  # 500 tokens: no tile divides them
        yield name, make_work(make_problem(mask=mask), pass_name, arch=ARCH, **SMALL[pass_name])
    for seqlen_q in (300, 777):  # 777 queries on 500 keys: the first 277 see nothing, unless a prefix lets them
        for name in ("causal", "window", "causal ragged documents", "prefix"):
            problem = make_problem(seqlen_q, 500, mask=MASKS[name])
            yield f"{name}, {seqlen_q} on 500", make_work(problem, pass_name, arch=ARCH, **SMALL[pass_name])
    for dtype in ("float16", "bfloat16"):
        for head_dim in (64, 128):
            problem = make_problem(1536, head_dim=head_dim, dtype=dtype, mask=HISTORY, batch_size=1)
            yield f"{dtype}, head_dim {head_dim}", make_work(problem, pass_name, arch=ARCH)
    yield "4 heads on 1", make_work(make_problem(heads=4, heads_kv=1), pass_name, arch=ARCH)
    yield "6 heads on 2", make_work(make_problem(heads=6, heads_kv=2), pass_name, arch=ARCH)
    yield "listed blocks", make_work(make_problem(1024, mask=LISTED), pass_name, arch=ARCH)
    yield "softmax_scale", make_work(make_problem(softmax_scale=0.25), pass_name, arch=ARCH)
    yield "head_dim 96, values of 64", make_work(make_problem(head_dim=96, head_dim_v=64), pass_name, arch=ARCH)
    yield "blocks of 256", make_work(make_problem(1024, mask=HISTORY), pass_name, arch=ARCH, block=(256, 256))
    if pass_name == "forward":
        yield "decoding", make_work(make_problem(16, 1000), pass_name, arch=ARCH)
        yield "blocks of 64", make_work(make_problem(1000), pass_name, arch=ARCH, block=(64, 64), **SMALL[pass_name])


WORK = {f"{pass_name}: {name}": each for pass_name in ("forward", "backward") for name, each in work(pass_name)}


@pytest.fixture(autouse=True, scope="module")
def cache(request, tmp_path_factory):
    """The kernels of the chosen tests, compiled on all cores before the first one runs."""
    folder = tmp_path_factory.mktemp("cache")
    specs = [getattr(item, "callspec", None) for item in request.session.items]
    chosen = [WORK[spec.params["name"]] for spec in specs if spec and spec.params.get("name") in WORK]
    if chosen:
        compiled(chosen, folder, processes=min(16, os.cpu_count() or 1, len(chosen)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNCTL_CACHE_DIR", str(folder))
        source.cache_folder.cache_clear()
        yield
    source.cache_folder.cache_clear()


@pytest.fixture(scope="module")
def device():
    opened = open_device("torch", "cuda:0")
    opened.use()
    return opened


def checked(device, task, candidate):
    """The worker's checks; raises if any fails."""
    setup = Setup(task, device)
    checker = Checker(setup, setup.bind(launch.LAUNCHER, candidate))
    checker.first_run()
    return checker.check(candidate.sparse_block)


@pytest.mark.parametrize("name", WORK)
def test_right_by_all_checks_of_a_worker(device, name):
    check = checked(device, *WORK[name])
    expected = {"dq", "dk", "dv"} if name.startswith("backward") else {"out", "lse"}
    assert set(check.error) == expected


def kernel(code):
    """The attention kernel's source, without the name that depends on the graph around it; None: there is none."""
    found = re.search(r"(triton_tem\w*) = async_compile\.triton\(.*?'''(.*?)'''", code, re.DOTALL)
    return found and found[2].replace(found[1], "kernel")


def test_twelve_configs_in_one_process_run_kernels_of_their_own(device):
    """dynamo would run all but the first eight eagerly; it takes no part."""
    counters.clear()
    problem = make_problem(512, heads=2)
    setup = Setup(make_work(problem, arch=ARCH)[0], device)
    sources = set()
    for block_m, block_n, stages in ((m, n, s) for m in (64, 128) for n in (32, 64, 128) for s in (1, 2)):
        config = {"BLOCK_M": block_m, "BLOCK_N": block_n, "num_stages": stages, "num_warps": 4}
        task, candidate = make_work(problem, arch=ARCH, **config)
        checker = Checker(setup, setup.bind(launch.LAUNCHER, candidate))
        checker.first_run()
        checker.check_latest_run()
        mask = flex_mask(problem, candidate.sparse_block)
        code, cached = source.generated(task, candidate, mask, torch.device("cuda:0"))
        assert cached
        sources.add(kernel(code))
    assert len(sources) == 12
    assert not counters["frames"]


def body(code):
    """The kernel below its header, in sorted lines: options that a candidate states stand before those it does not."""
    text = kernel(code)
    return text and sorted(text[text.index("\ndef kernel(") :].splitlines())


def test_kernels_are_those_that_torch_compile_makes():
    problem = make_problem(512, heads=4, heads_kv=2, batch_size=1)
    works = [make_work(problem, pass_name, arch=ARCH) for pass_name in ("forward", "backward")]
    mask = flex_mask(problem, (128, 128))
    ours = [source.generated(*work, mask, torch.device("cuda:0"))[0] for work in works]
    block_mask = BlockMask(
        seq_lengths=mask.seqlens,
        BLOCK_SIZE=mask.block_size,
        mask_mod=lambda b, h, q, k: k <= q + 0,  # as the pattern writes it
        **{name: torch.from_numpy(array).cuda() for name, array in mask.lists.items()},
    )

    def attention(*rows):
        """With the transposes of a model around it, whose gradient lies as its output does."""
        views = (each.transpose(1, 2) for each in rows)
        return flex_attention(*views, block_mask=block_mask, enable_gqa=True).transpose(1, 2)

    def train():
        rows = (
            torch.randn(1, 512, heads, 64, dtype=torch.bfloat16, device="cuda", requires_grad=True)
            for heads in (4, 2, 2)
        )
        torch.compile(attention, dynamic=False)(*rows).sum().backward()

    with torch._inductor.config.patch(source.settings()):
        _, codes = run_and_get_code(train)
    theirs = [found for code in codes if (found := body(code))]
    for each in ours:
        assert body(each) in theirs


def test_too_much_shared_memory_is_out_of_resources(device):
    problem = make_problem(512, heads=1, head_dim=256, batch_size=1)
    task, candidate = make_work(problem, arch=ARCH, BLOCK_M=128, BLOCK_N=128, num_stages=4, num_warps=8)
    setup = Setup(task, device)
    try:
        setup.bind(launch.LAUNCHER, candidate)
    except Exception as error:  # noqa: BLE001 - as the worker does
        result = failures.as_result(error, "compile", device)
        assert (result.outcome, result.poisoned) == (Outcome.OUT_OF_RESOURCES, False)
    else:
        pytest.fail("the kernel fits")

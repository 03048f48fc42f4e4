"""The C++ kernel, compiled and run here: by the worker's checks, and in a whole tune."""

import json
import re
from pathlib import Path

import pytest
from flex_runs import MASKS, make_problem, make_work

torch = pytest.importorskip("torch")
launch = pytest.importorskip("attnctl_kernels.flex.launch")
flex = pytest.importorskip("torch.nn.attention.flex_attention")

from torch._inductor.utils import get_code  # noqa: E402 - needs torch

from attnctl.cli.app import run  # noqa: E402
from attnctl.worker.check import Checker  # noqa: E402
from attnctl.worker.devices import open_device  # noqa: E402
from attnctl.worker.setup import Setup  # noqa: E402
from attnctl_kernels.contract import CompileError  # noqa: E402
from attnctl_kernels.flex.launch import source  # noqa: E402
from attnctl_kernels.flex.launch.block_mask import flex_mask  # noqa: E402

MISSING = launch.LAUNCHER.available(None)
pytestmark = pytest.mark.skipif(MISSING is not None, reason=str(MISSING))

PROFILE = Path(__file__).parents[2] / "profiles/flex-cpu.yaml"
CPU = torch.device("cpu")
SMALL = make_problem(
    200, heads=4, heads_kv=2, head_dim=32, dtype="float32", mask=MASKS["documents"].model_copy(update={"causal": True})
)


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ATTNCTL_CACHE_DIR", str(folder))
        source.cache_folder.cache_clear()
        yield folder
    source.cache_folder.cache_clear()


def kernel(code):
    """The C++ of the attention kernel, as far as its signature, whose names depend on the graph around it."""
    text = re.search(r"async_compile\.cpp_pybinding\(.*?'''(.*?)'''", code, re.DOTALL)[1]
    return re.sub(r"\b(arg\d+_\d+|primals_\d+|\w+_ptr\d+|cpp_\w+)\b", "name", text)


def test_kernel_is_the_one_that_torch_compile_makes():
    task, candidate = make_work(make_problem(256, heads=1, head_dim=16, dtype="float32", batch_size=1), arch=None)
    mask = flex_mask(task.problem, candidate.sparse_block)
    ours, _ = source.generated(task, candidate, mask, CPU)
    block_mask = flex.create_block_mask(lambda b, h, q, k: k <= q + 0, None, None, 256, 256, device="cpu")

    def call():
        q, k, v = (torch.randn(1, 256, 1, 16).transpose(1, 2) for _ in range(3))
        torch.compile(flex.flex_attention, dynamic=False)(q, k, v, block_mask=block_mask)

    with torch.no_grad(), torch._inductor.config.patch(source.settings()):
        theirs = get_code(call)[0]
    assert kernel(ours) == kernel(theirs)


@pytest.mark.parametrize("name", ["causal", "window", "history", "causal ragged documents", "blocks"])
def test_kernel_is_right_by_all_checks_of_a_worker(name):
    """The other pattern is that of the tune below; gradients are those of the operator, in test_flex_graph.py."""
    problem = make_problem(heads=2, head_dim=16, batch_size=1, dtype="float32", mask=MASKS[name])
    task, candidate = make_work(problem, arch=None, block=(64, 128))
    setup = Setup(task, open_device("torch", "cpu"))
    checker = Checker(setup, setup.bind(launch.LAUNCHER, candidate))
    checker.first_run()
    assert set(checker.check(candidate.sparse_block).error) == {"out"}


def test_arch_and_device_must_agree():
    task, candidate = make_work(SMALL, arch="sm_90")
    setup = Setup(task, open_device("torch", "cpu"))
    with pytest.raises(CompileError, match="a call for sm_90 is not one for cpu: `arch` decides"):
        setup.bind(launch.LAUNCHER, candidate)


def test_nothing_is_compiled_ahead():
    task, candidate = make_work(SMALL, arch=None)
    assert launch.LAUNCHER.compile(task, candidate) is None


def test_tune(tmp_path, monkeypatch, capsys):
    """Grouped heads, and a length that no block divides; the checks are those of every worker."""
    text = PROFILE.read_text()
    for old, new in (
        ("seq_len: 1024", "seq_len: 200"),
        ("num_heads_q: 4", "num_heads_q: 4\n  num_heads_kv: 2"),
        ("document_len: 512", "document_len: 130"),
        ("[[64, 64], [128, 128], [64, 256]]", "[[64, 64], [128, 128]]"),
    ):
        assert old in text
        text = text.replace(old, new)
    profile = tmp_path / "flex-cpu.yaml"
    profile.write_text(text)
    monkeypatch.chdir(tmp_path)
    assert run(["tune", str(profile), "--format", "json"]) == 0
    (task,) = json.loads(capsys.readouterr().out)["tasks"]
    assert task["outcomes"] == {"ok": 2}
    assert task["winner"]["config"] == {}
    assert task["winner"]["sparse_block"] in ([64, 64], [128, 128])

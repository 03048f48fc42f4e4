"""What is exported runs: against the real library where it is installed."""

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.cli.app import run
from attnctl.export import _mask_mod, exporter_names
from attnctl_kernels import masks
from attnctl_kernels.contract import Mask

ROOT = Path(__file__).parents[2]
H200 = ("--device-name", "nvidia_h200")

FLEX = """\
schema: 1
family: flex
problem: {seqlen_q: [100, 128], seqlen_k: 128, num_heads_q: 4, num_heads_kv: 2, head_dim: 16, dtype: float32}
mask: {pattern: document, document_lens: [50, 78], causal: true}
sparse_block: [64, 64]
config: {PRESCALE_QK: true, num_stages: 1}
"""
FA4 = """\
schema: 1
family: fa4
arch: sm_90
problem: {batch_size: 1, seq_len: 256, num_heads_q: 1, head_dim: 64, dtype: bfloat16}
mask: {pattern: causal}
config:
  forward: {tile_m: 64, tile_n: 16, mma_pv_is_rs: true, intra_wg_overlap: false}
"""
FA4_BOTH = f"{FA4}  backward: {{num_stages_PdS: 1}}\npasses: [forward, backward]\n"
PALLAS = """\
schema: 1
family: pallas_mgpu
arch: sm_90
passes: [forward, backward]
problem: {batch_size: 1, seq_len: [1024, 2048], num_heads_q: 8, head_dim: 128, dtype: float16}
mask: {pattern: dense}
config: {block_q: 64, block_kv: 128, max_concurrent_steps: 2, block_q_dkv: 64, block_kv_dkv: 64, block_q_dq: 64,
         block_kv_dq: 64}
"""
CAUSAL = PALLAS.replace("dense", "causal").replace("passes: [forward, backward]", "passes: [forward]")
OWN_PALLAS = PALLAS.replace("pallas_mgpu", "ranker_fa3").replace("dense", "history_candidate, history_len: 896")
RANKER = OWN_PALLAS.replace("ranker_fa3", "ranker_fa3\nversion: xai")
TRITON = """\
schema: 1
family: ranker_triton
version: ranker_attention
arch: sm_90
problem: {batch_size: 1, seq_len: 1024, num_heads_q: 8, head_dim: 128, dtype: bfloat16}
mask: {pattern: causal}
config: {block_q: 64, num_warps: 8}
"""


@pytest.fixture
def exported(tmp_path, capsys):
    def export(text, *args):
        path = tmp_path / "p.yaml"
        path.write_text(text)
        capsys.readouterr()
        assert run(["export", str(path), *args]) == 0
        return capsys.readouterr().out

    return export


def test_every_file_here_is_a_form():
    assert exporter_names() == ("csv", "fa4", "flex", "jax", "ranker", "vllm")


def test_flex_runs_and_agrees_with_the_mask(exported):
    torch = pytest.importorskip("torch")
    code = {}
    exec(exported(FLEX, "--to", "flex"), code)
    assert code["KERNEL_OPTIONS"][100, 128] == {"PRESCALE_QK": True, "num_stages": 1}
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, 100, 16, generator=generator)
    key, value = (torch.randn(1, 2, 128, 16, generator=generator) for _ in range(2))
    out = code["attention"](query, key, value)
    mask = Mask(pattern="document", document_lens=(50, 78), causal=True)
    rows, keys = np.arange(100)[:, None], np.arange(128)[None]
    seen = torch.from_numpy(masks.visible(mask, rows, keys, 100, 128))
    scores = query @ key.repeat_interleave(2, dim=1).transpose(-1, -2) / 16**0.5
    expected = scores.masked_fill(~seen, -torch.inf).softmax(-1) @ value.repeat_interleave(2, dim=1)
    torch.testing.assert_close(out, expected, rtol=1e-4, atol=1e-5)


def test_flex_options_of_two_passes_are_told_apart(exported):
    pytest.importorskip("torch")
    code = {}
    training = FLEX.replace("family: flex", "family: flex\narch: sm_90\npasses: [forward, backward]")
    training = training.replace("[100, 128]", "[128]").replace("head_dim: 16, dtype: float32", "head_dim: 64")
    training = training.replace("[64, 64]", "[128, 128]").replace("num_stages: 1", "fwd_num_stages: 2")
    exec(exported(training, "--to", "flex", *H200), code)
    (options,) = code["KERNEL_OPTIONS"].values()
    assert options["fwd_num_stages"] == 2
    assert {"fwd_BLOCK_M", "bwd_BLOCK_M1", "bwd_num_warps"} <= options.keys()
    assert not {"BLOCK_M", "num_warps", "num_stages"} & options.keys()


@pytest.mark.parametrize("pattern", ["dense", "causal"])
def test_flex_code_of_other_masks_is_complete(exported, pattern):
    pytest.importorskip("torch")
    code = {}
    text = FLEX.replace("document, document_lens: [50, 78], causal: true", pattern)
    exec(exported(text if pattern == "causal" else text.replace("sparse_block: [64, 64]\n", ""), "--to", "flex"), code)
    assert callable(code["attention"])
    assert ("block_mask" in code) == (pattern == "causal")


MASKS = st.one_of(
    st.just(Mask(pattern="causal")),
    st.builds(lambda window: Mask(pattern="sliding_window", window=window), st.integers(1, 12)),
    st.builds(lambda prefix: Mask(pattern="prefix_lm", prefix_len=prefix), st.integers(1, 12)),
    st.builds(lambda history: Mask(pattern="history_candidate", history_len=history), st.integers(1, 8)),
    st.builds(
        lambda length, causal: Mask(pattern="document", document_len=length, causal=causal),
        st.integers(1, 9),
        st.booleans(),
    ),
    st.just(Mask(pattern="blocks", block_size=(4, 4), rows=((0,), (1, 2)))),
)


@settings(max_examples=60, deadline=None)
@given(MASKS, st.integers(5, 8), st.integers(9, 12))
def test_an_exported_mask_is_the_mask(mask, seqlen_q, seqlen_k):
    torch = pytest.importorskip("torch")
    if mask.pattern == "history_candidate":
        seqlen_k = seqlen_q
    code = {"torch": torch}
    exec("\n".join(_mask_mod.source(mask)), code)
    rows, keys = torch.arange(seqlen_q)[:, None], torch.arange(seqlen_k)[None]
    seen = code["make_mask_mod"](seqlen_q, seqlen_k, "cpu")(0, 0, rows, keys)
    wanted = masks.visible(mask, rows.numpy(), keys.numpy(), seqlen_q, seqlen_k)
    assert (np.broadcast_to(seen.numpy(), wanted.shape) == wanted).all()


def test_flash_attn_4_traces_the_call(exported, tmp_path):
    launch = pytest.importorskip("attnctl_kernels.fa4.launch")
    if launch.missing_packages():
        pytest.skip(f"{launch.missing_packages()[0]} is not installed")
    code = tmp_path / "exported.py"
    code.write_text(exported(FA4_BOTH, "--to", "fa4", *H200))
    environ = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "ATTNCTL_CACHE_DIR": str(tmp_path / "cache")}
    environ["PYTHONPATH"] = os.pathsep.join([str(ROOT), str(ROOT / "kernels")])
    script = Path(__file__).with_name("fa4_trace.py")
    done = subprocess.run([sys.executable, script, code], env=environ, capture_output=True, text=True, check=False)
    assert done.stdout == "(1, 256, 1, 64) (1, 1, 256) True True\nTrue True\n", done.stderr


def test_a_native_mask_is_exported_as_arguments(exported):
    native = FA4.replace("intra_wg_overlap: false", "intra_wg_overlap: false, mask_form: native")
    assert '"causal": True' in exported(native, "--to", "fa4", *H200).replace("'", '"')
    window = native.replace("pattern: causal", "pattern: sliding_window, window: 100")
    text = exported(window, "--to", "fa4", *H200).replace("'", '"')
    assert '"window_size_left": 99, "window_size_right": 0' in text
    assert "SPARSE_BLOCK = {\n    (256, 256): None,\n}" in text


def test_jax_takes_the_tuning_config(exported):
    text = exported(PALLAS, "--to", "jax", *H200)
    pytest.importorskip("jax")
    code = {}
    exec(text, code)
    assert code["TUNING"][2048, 2048].block_kv_dq == 64
    assert code["TUNING"][2048, 2048].causal is False
    exec(exported(CAUSAL, "--to", "jax", *H200), code)
    assert code["TUNING"][2048, 2048].causal is True


def test_what_jax_takes_without_jax(exported):
    """The fields, also where jax is not installed: a dataclass of the same names stands for its arguments."""
    made = []
    code = {"TuningConfig": lambda **fields: made.append(fields)}
    lines = exported(CAUSAL, "--to", "jax", *H200).splitlines()
    exec("\n".join(line for line in lines if not line.startswith("from jax")), code)
    assert len(made) == 2
    assert made[0]["block_q_dkv"] == 64
    assert made[0]["causal"] is True
    assert "pipeline_emitter" not in made[0]


def test_ranker(exported):
    made = []
    exec(exported(RANKER, "--to", "ranker", *H200), {"TuningConfig": lambda **fields: made.append(fields)})
    assert [each["block_kv"] for each in made] == [128, 128]
    assert "causal" not in made[0]
    code = {}
    exec(exported(TRITON, "--to", "ranker", *H200), code)
    assert code["MHA"][1024, 1024]["block_q"] == 64
    assert code["MHA"][1024, 1024]["num_warps"] == 8


@pytest.mark.parametrize("mask", ["history_candidate, history_len: 896", "dense"])
def test_the_function_takes_the_call(exported, mask):
    """Config and bounds go through the function's own checks, and the gradient is traced."""
    jax = pytest.importorskip("jax")
    code = {}
    exec(exported(OWN_PALLAS.replace("history_candidate, history_len: 896", mask), "--to", "ranker", *H200), code)
    assert code["BOUNDS"][2048, 2048] == ((0, 2048, 2048, 2048) if mask == "dense" else (0, 896, 896, 2048))
    q = jax.ShapeDtypeStruct((1, 2048, 8, 128), "float16")
    dq = jax.eval_shape(jax.grad(lambda q, k, v: code["attention"](q, k, v).sum().astype("float32")), q, q, q)
    assert dq.shape == q.shape


CUTE = """\
schema: 1
family: ranker
arch: sm_90
problem: {batch_size: 2, seq_len: [1024, 2048], num_heads_q: 4, head_dim: 128, dtype: bfloat16, softmax_scale: 0.5}
mask: {pattern: history_candidate, history_len: 896}
config:
  forward: {tile_m: 128, tile_n: 64, stages: 2}
"""


@pytest.mark.parametrize("mask", ["history_candidate, history_len: 896", "dense"])
def test_the_operator_takes_the_call(exported, mask):
    """With fake tensors: shapes, types, config and bounds go through the operator's own checks and its schema."""
    torch = pytest.importorskip("torch")
    from torch._subclasses.fake_tensor import FakeTensorMode

    code = {}
    exec(exported(CUTE.replace("history_candidate, history_len: 896", mask), "--to", "ranker", *H200), code)
    assert code["BOUNDS"][2048, 2048] == ((0, 2048, 2048, 2048) if mask == "dense" else (0, 896, 896, 2048))
    assert code["CONFIG"][1024, 1024]["tile_m"] == 128
    with FakeTensorMode():
        q, k, v = (torch.empty(2, 1024, 4, 128, dtype=torch.bfloat16, device="cuda") for _ in range(3))
        out, lse = code["attention"](q, k, v, return_lse=True)
    assert (out.shape, lse.shape) == ((2, 1024, 4, 128), (2, 4, 1024))


def test_vllm(exported, tmp_path):
    text = exported(PALLAS, "--to", "vllm", "--pass", "forward", *H200)
    configs = {int(key): value for key, value in json.loads(text).items()}  # as vLLM reads them
    assert sorted(configs) == [1024, 2048]
    assert configs[min(configs, key=lambda length: abs(length - 1400))]["block_kv"] == 128
    folder = tmp_path / "out"
    folder.mkdir()
    exported(PALLAS, "--to", "vllm", "--pass", "forward", "--out", str(folder), *H200)
    assert [each.name for each in folder.iterdir()] == [
        "H=8,D=128,dtype=float16,mask=dense,device_name=nvidia_h200.json"
    ]


def test_csv(exported):
    profile = (ROOT / "profiles" / "ranker-8k.yaml").read_text()
    rows = list(csv.DictReader(io.StringIO(exported(profile, "--to", "csv", "--seq-len", "8192", *H200))))
    assert [(each["family"], each["source"], each["config.tile_m"]) for each in rows] == [("fa4", "profile", "128")]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--to", "yaml"], "--to yaml: no such form"),
        (["--to", "jax"], "--to jax: is for pallas_mgpu, and the profile's family is fa4"),
        (["--to", "fa4", "--pass", "backward"], "has no backward pass"),
        (["--to", "vllm", "--seq-len", "256", "--seq-len", "256"], "two problems have seqlen_q 256"),
        (["--to", "csv", "--out", "/proc/none"], "/proc/none: cannot be written"),
    ],
)
def test_what_cannot_be_exported_is_said(tmp_path, capsys, args, message):
    path = tmp_path / "p.yaml"
    path.write_text(FA4)
    assert run(["export", str(path), *args, *H200]) == 2
    assert message in capsys.readouterr().err

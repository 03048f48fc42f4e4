"""Compile workers: lowering on a machine without a GPU, and what becomes of candidates that cannot be lowered."""

import json

import pytest
from pallas_cases import CAUSAL, make_candidate, make_config, make_problem, make_task

from attnctl.cli.app import run
from attnctl_kernels.contract import CompileError, OutOfResources

pytest.importorskip("jax")
launch = pytest.importorskip("attnctl_kernels.pallas_mgpu.launch")

SMALL = (64, 64, 64, 64)
WORKS = {
    "forward": (make_problem(), make_config(64, 128), "forward"),
    "causal": (make_problem(mask=CAUSAL), make_config(), "forward"),
    "emitter": (make_problem(), make_config(pipeline_emitter=True, use_schedule_barrier=False), "forward"),
    "facts about the machine": (make_problem(), make_config(cuda_runtime=13000), "forward"),
    "backward, grouped heads": (make_problem(heads=4, heads_kv=2), make_config(wgs=2, backward=SMALL), "backward"),
}
REFUSED = {
    "the TuningConfig": (make_problem(), make_config(96), "forward", CompileError, "self.block_q=96"),
    "a ragged length": (make_problem(500), make_config(), "forward", CompileError, "multiple of block_kv=64"),
    "bfloat16": (make_problem(dtype="bfloat16"), make_config(), "forward", CompileError, "bfloat16"),
    "too much shared memory": (
        make_problem(1024, head_dim=128),
        make_config(64, 256),
        "forward",
        OutOfResources,
        "smem_bytes=298072",
    ),
    "no backward blocks": (make_problem(), make_config(), "backward", CompileError, "Need to specify backward blocks"),
}


@pytest.mark.parametrize("name", WORKS)
def test_lowers_without_a_gpu(name):
    problem, config, pass_name = WORKS[name]
    compiled = launch.LAUNCHER.compile(make_task(problem, pass_name), make_candidate(config))
    assert compiled.binary
    assert compiled.seconds > 0


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_outcomes_in_one_line(name):
    problem, config, pass_name, kind, words = REFUSED[name]
    with pytest.raises(kind, match=words) as refused:
        launch.LAUNCHER.compile(make_task(problem, pass_name), make_candidate(config))
    assert "\n" not in str(refused.value)


def test_other_configs_are_other_code():
    def binary(**changes):
        candidate = make_candidate(make_config(pipeline_emitter=True, **changes))
        return launch.LAUNCHER.compile(make_task(make_problem()), candidate).binary

    assert binary(use_schedule_barrier=True) != binary(use_schedule_barrier=False)


def test_versions_name_jax_and_hash_upstreams_module():
    versions = launch.LAUNCHER.versions()
    assert {"jax", "jaxlib", "attention_mgpu-sources"} <= versions.keys()


def test_validate_compiles_in_a_worker(tmp_path, monkeypatch, capsys):
    profile = tmp_path / "small.yaml"
    profile.write_text(
        "family: pallas_mgpu\narch: sm_90\n"
        "problem: {batch_size: 1, seq_len: 512, num_heads_q: 2, head_dim: 64, dtype: float16}\n"
        "config: {block_q: 64, block_kv: 64, max_concurrent_steps: 2}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert run(["validate", "--compile", "--jobs", "1", "--format", "json", str(profile)]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["compiled"]
    assert kernel["outcome"] == "ok"

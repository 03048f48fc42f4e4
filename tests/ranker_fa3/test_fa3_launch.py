"""Compile workers and `validate --compile` without a GPU, and what cannot be run."""

import json

import pytest
from fa3_cases import make_candidate, make_case, make_config, make_problem, make_task

from attnctl.cli.app import run
from attnctl_kernels.contract import CompileError, Mask, OutOfResources
from attnctl_kernels.families import get_family

pytest.importorskip("jax")
launch = pytest.importorskip("attnctl_kernels.ranker_fa3.launch")

WORKS = {
    "forward": (make_problem(), make_config(64, 128), "forward"),
    "dense": (make_problem(mask=Mask()), make_config(), "forward"),
    "backward, grouped heads": (make_problem(heads=4, heads_kv=2), make_config(), "backward"),
}
REFUSED = {
    "a ragged length": (make_problem(500), make_config(), "forward", CompileError, "seqlen_k=512 or .*seqlen_k=448"),
    "float32": (make_problem(dtype="float32"), make_config(), "forward", CompileError, "float32"),
    "too much shared memory": (
        make_problem(1024, head_dim=128),
        make_config(64, 256, backward=None),
        "forward",
        CompileError,
        "PAL-H002",
    ),
    "no backward blocks": (make_problem(), make_config(backward=None), "backward", CompileError, "backward"),
}


@pytest.mark.parametrize("name", WORKS)
def test_lowers_without_a_gpu(name):
    problem, config, pass_name = WORKS[name]
    assert launch.LAUNCHER.compile(make_task(problem, pass_name), make_candidate(config)).binary


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_are_outcomes_in_one_line(name):
    problem, config, pass_name, kind, words = REFUSED[name]
    with pytest.raises((kind, OutOfResources), match=words) as refused:
        launch.LAUNCHER.compile(make_task(problem, pass_name), make_candidate(config))
    assert "\n" not in str(refused.value)


def test_the_schedule_barrier_is_in_the_code():
    def binary(**changes):
        return launch.LAUNCHER.compile(make_task(make_problem()), make_candidate(make_config(**changes))).binary

    assert binary(use_schedule_barrier=True) != binary(use_schedule_barrier=False)


def test_versions_name_jax_and_hash_the_sources():
    assert {"jax", "jaxlib", "ranker_fa3-sources"} <= launch.LAUNCHER.versions().keys()


def test_validate_compiles_in_a_worker(tmp_path, monkeypatch, capsys):
    """A history that ends inside a block, which x-algorithm's kernel gets wrong."""
    profile = tmp_path / "small.yaml"
    profile.write_text(
        "family: ranker_fa3\narch: sm_90\n"
        "problem: {batch_size: 1, seq_len: 512, num_heads_q: 2, head_dim: 64, dtype: bfloat16}\n"
        "mask: {pattern: history_candidate, history_len: 301}\n"
        "config: {block_q: 64, block_kv: 64, max_concurrent_steps: 2}\n"
    )
    monkeypatch.chdir(tmp_path)
    assert run(["validate", "--compile", "--jobs", "1", "--format", "json", str(profile)]) == 0
    (kernel,) = json.loads(capsys.readouterr().out)["compiled"]
    assert kernel["outcome"] == "ok"


@pytest.mark.parametrize(
    ("changes", "version", "words"),
    [
        ({}, "xai", "version is xai"),
        ({"cap": 30.0}, "1", "config.cap is 30.0"),
        ({"bound": (0, 64, 64, 512)}, "1", "config.bound is"),
        ({"pipeline_emitter": True}, "1", "config.pipeline_emitter"),
        ({"bound": (0, 320, 320, 512)}, "1", None),
    ],
)
def test_what_a_sweep_would_have_to_ignore(changes, version, words):
    reason = get_family("ranker_fa3").cannot_run(make_case(make_problem(), make_config(**changes), version=version))
    assert (words in reason) if words else reason is None

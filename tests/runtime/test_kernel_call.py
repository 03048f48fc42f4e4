"""The config of a kernel that is called without a profile: tuned for the shape, for the nearest one, or the default."""

import subprocess
import sys
import warnings

import pytest

from attnctl.profile.kernel_call import config_of_call
from attnctl.profile.runtime import NotTuned, forget
from attnctl.profile.tuned import Entry, entry_key, store
from attnctl_kernels.contract import Mask, Problem, Task
from attnctl_kernels.families import get_family

DEVICE = "NVIDIA H200"
RANKER = get_family("ranker")


def task(seqlen=8192, *, batch_size=2, num_heads=16, head_dim=128, dtype="bfloat16", history=None):
    problem = Problem(
        batch_size=batch_size,
        seqlen_q=seqlen,
        seqlen_k=seqlen,
        num_heads_q=num_heads,
        num_heads_kv=num_heads,
        head_dim=head_dim,
        head_dim_v=head_dim,
        dtype=dtype,
        mask=Mask(pattern="history_candidate", history_len=history),
    )
    return Task(family="ranker", version=None, arch="sm_90", pass_name="forward", problem=problem)


def config(tile_n):
    return {**RANKER.default_config(task().problem, "forward", "sm_90", None), "tile_n": tile_n}


@pytest.fixture
def put(tmp_path, monkeypatch):
    """Store an entry in the folder that the environment names."""
    monkeypatch.setenv("ATTNCTL_CONFIG_DIR", str(tmp_path))

    def put(name, tile_n, *, history=6144, versions=None, **shape):
        tuned = task(history=history, **shape)
        entry = {
            **tuned.model_dump(include={"family", "version", "arch", "problem"}),
            "pass": "forward",
            "config": config(tile_n),
            "sparse_block": None,
            "latency": {"median_us": 100.0, "p20_us": 99.0, "p80_us": 101.0, "samples": 30, "cache": "cold"},
            "against_default": None,
            "against_incumbent": None,
            "error": {"out": 1e-3},
            "num_sms": 132,
            "versions": versions or {"attnctl": "0"},
            "fingerprints": {"problem": entry_key(tuned, None), "rules": "0" * 64},
        }
        store(tmp_path / "nvidia_h200" / f"{name}.yaml", "nvidia_h200", [Entry.model_validate(entry)])

    return put


def asked(**shape):
    return config_of_call(task(**shape), DEVICE, open_mask=("history_len",))["tile_n"]


def quietly(**shape):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", NotTuned)
        return asked(**shape)


def test_this_shape_is_used_without_a_word_whatever_its_history(put):
    put("a", 64)
    put("b", 48, seqlen=4096)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asked() == 64


def test_of_two_histories_the_longer_is_used(put):
    put("a", 64, history=2048)
    put("b", 48, history=6144)
    put("c", 32, history=512)
    assert quietly() == 48


def test_the_nearest_length_comes_before_the_nearest_number_of_heads(put):
    put("a", 64, seqlen=4096, num_heads=2)
    put("b", 48, seqlen=16384, batch_size=2)
    with pytest.warns(NotTuned, match=r"s5000-h16.*: nothing is tuned for it on nvidia_h200; .*s4096-h2-"):
        assert asked(seqlen=5000) == 64


@pytest.mark.parametrize("changes", [{"head_dim": 64}, {"dtype": "float16"}])
def test_another_kernel_is_not_borrowed_from(put, changes):
    put("a", 64, **changes)
    with pytest.warns(NotTuned, match="the kernel's default is used"):
        assert asked() == RANKER.default_config(task().problem, "forward", "sm_90", None)["tile_n"]


def test_what_a_rule_forbids_is_passed_over(put):
    put("a", 256)
    put("b", 48, seqlen=16384)
    with pytest.warns(NotTuned, match=r"a\.yaml is stale: .*RANKER-007 .*; the config of .*s16384"):
        assert asked() == 48


def test_one_warning_per_shape_and_one_decision(put):
    with pytest.warns(NotTuned):
        before = asked(seqlen=1000)
    put("a", 32, seqlen=1000)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert asked(seqlen=1000) == before
    forget()
    assert asked(seqlen=1000) == 32


def test_it_brings_no_framework_and_nothing_of_the_command_line():
    heavy = "torch jax cutlass numpy typer rich"
    code = f"import sys, attnctl.profile.kernel_call; print([n for n in {heavy.split()} if n in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

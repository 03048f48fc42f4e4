"""Which config a program gets, and what is said about it."""

import json
import shutil
import subprocess
import sys
import warnings

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from tuned_profiles import FA4, PROFILE, store_tuned, tile, write

import attnctl
from attnctl.cli.app import run
from attnctl.errors import AttnctlError, UsageError
from attnctl.gpu.names import cpu_name
from attnctl.profile import runtime
from attnctl.profile.candidate import case_of, errors
from attnctl.profile.decision import Source, decide
from attnctl.profile.load import load
from attnctl.profile.lookup import case_for
from attnctl.profile.runtime import NotTuned, choose


def decided(path, seqlen_q=1024, seqlen_k=None, **options):
    loaded = load(path)
    return decide(loaded, choose(loaded, seqlen_q, seqlen_k, "forward"), **options)


def used(decision):
    (step,) = [each for each in decision.steps if each.used]
    return step


@pytest.fixture
def path(tmp_path):
    return write(tmp_path / "work")


def test_the_order_of_places(path, tmp_path, monkeypatch):
    roots = {
        "beside the profile": None,
        "user": tmp_path / "home-config" / "attnctl" / "tuned",
        "ATTNCTL_CONFIG_DIR": tmp_path / "environment",
        "tuned_dir": tmp_path / "argument",
    }
    for number, (name, root) in enumerate(roots.items()):
        store_tuned(path, 1024, tile(16 * 2**number, 64), root=root)
        if name == "ATTNCTL_CONFIG_DIR":
            monkeypatch.setenv(name, str(root))
        decision = decided(path, tuned_dir=root if name == "tuned_dir" else None)
        assert (used(decision).where, decision.candidate.config["block_q"]) == (name, 16 * 2**number)


def test_a_folder_that_is_named_and_not_there_is_an_error(path, monkeypatch, tmp_path):
    with pytest.raises(UsageError, match=r"tuned_dir .*: no such folder"):
        attnctl.load_config(path, seqlen_q=1024, tuned_dir=tmp_path / "none")
    monkeypatch.setenv("ATTNCTL_CONFIG_DIR", str(tmp_path / "none"))
    with pytest.raises(UsageError, match=r"ATTNCTL_CONFIG_DIR .*: no such folder"):
        attnctl.load_config(path, seqlen_q=1024)


@pytest.mark.parametrize(("asked", "wanted"), [(1100, 1024), (5000, 8192), (2896, 1024), (2897, 8192), (65536, 8192)])
def test_the_nearest_in_log_length_is_used(path, asked, wanted):
    store_tuned(path, 1024, tile(16, 64))
    store_tuned(path, 8192, tile(128, 64))
    decision = decided(path, asked)
    assert decision.source is Source.NEAREST
    assert decision.entry.problem.seqlen_q == wanted


def test_of_two_at_one_distance_the_longer_is_used(path):
    store_tuned(path, 2048, tile(16, 64))
    store_tuned(path, 8192, tile(128, 64))
    assert decided(path, 4096).entry.problem.seqlen_q == 8192


def test_queries_and_keys_both_count(path):
    store_tuned(path, 1024, tile(16, 64), seqlen_k=1024)
    store_tuned(path, 1024, tile(128, 64), seqlen_k=65536)
    assert decided(path, 1024, 32768).candidate.config["block_q"] == 128


def test_the_nearest_is_passed_over_where_the_rules_forbid_it(tmp_path):
    text = FA4.replace("mask: {pattern: causal}", "mask: {pattern: causal}\nsparse_block: [128, 128]")
    path = write(tmp_path, text)
    good = {"tile_m": 128, "tile_n": 128, "mma_pv_is_rs": True, "intra_wg_overlap": True}
    store_tuned(path, 8192, good, device="nvidia_h200")
    store_tuned(path, 2048, {**good, "tile_n": 96}, device="nvidia_h200", block=(128, 128))
    decision = decided(path, 2000, device_name="nvidia_h200")
    assert decision.entry.problem.seqlen_q == 8192
    (refused,) = [each for each in decision.steps if each.where == "nearest: 2048 x 2048"]
    assert "refused: " in refused.result
    assert "FA4-" in refused.result


SIZES = st.sampled_from([16, 32, 64, 128, 256, 512])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.integers(1, 4096), SIZES, SIZES), max_size=4), st.integers(1, 4096))
def test_whatever_is_stored_what_comes_out_passes_the_rules(tmp_path_factory, stored, asked):
    path = write(tmp_path_factory.mktemp("any"))
    for seqlen, block_q, block_kv in stored:
        store_tuned(path, seqlen, tile(block_q, block_kv))
    decision = decided(path, asked)
    loaded = load(path)
    assert not errors(case_of(case_for(loaded, decision.task), decision.candidate))
    assert len([each for each in decision.steps if each.used]) == 1


def test_where_the_profiles_own_config_is_forbidden_the_default_is_used(tmp_path):
    path = write(tmp_path, FA4 + "config:\n  forward: {tile_m: 100}\n")
    decision = decided(path, 4096, device_name="nvidia_h200")
    assert decision.source is Source.DEFAULT
    assert decision.candidate.config["tile_m"] == 128


def test_where_nothing_is_allowed_the_rule_is_named(tmp_path):
    path = write(tmp_path, PROFILE.replace("pattern: causal", "pattern: history_candidate, history_len: 512"))
    with pytest.raises(UsageError) as caught:
        attnctl.load_config(path, seqlen_q=256)
    assert "no config is allowed at 256 x 256: G103 history_len 512" in caught.value.message


STALE = {
    "kernel source": ({"versions": {"blocks-sources": "0"}}, "versions.blocks-sources 0 then, "),
    "package": ({"versions": {"pyyaml": "1.0"}}, "versions.pyyaml 1.0 then, "),
    "no versions": ({"versions": {}}, "versions: none are recorded"),
    "rule": ({"config": tile(-64, 64)}, "config.block_q: BLOCKS-001 "),
}


@pytest.mark.parametrize("change", STALE)
def test_a_stale_entry_is_not_used_and_the_field_is_named(path, change):
    changes, reason = STALE[change]
    store_tuned(path, 1024, **{"config": tile(64, 64), "block": (64, 64), **changes})
    decision = decided(path)
    assert decision.source is Source.PROFILE
    assert "is stale: " in decision.why_not_tuned
    assert reason in decision.why_not_tuned


@pytest.mark.parametrize(
    ("before", "after", "field"),
    [
        ("dtype: float32", "dtype: float16", "problem.dtype float32 there, float16 here"),
        ("schema: 1", "schema: 1\nsparse_block: [128, 128]", "sparse_block [64, 64] there, [128, 128] here"),
        ("pattern: causal", "pattern: dense", "mask.pattern causal there, dense here"),
    ],
)
def test_what_another_profile_changed_is_named(path, before, after, field):
    store_tuned(path, 1024, tile(64, 64))
    path.write_text(PROFILE.replace(before, after))
    decision = decided(path)
    assert decision.source is not Source.TUNED
    assert field in decision.why_not_tuned


def test_a_field_changed_by_hand_is_seen_though_the_fingerprint_stands(path):
    where = store_tuned(path, 1024, tile(64, 64))
    content = yaml.safe_load(where.read_text())
    content["entries"][0]["problem"]["dtype"] = "float16"
    where.write_text(yaml.safe_dump(content))
    assert "problem.dtype float16 there, float32 here" in decided(path).why_not_tuned


def test_a_file_copied_from_another_device_is_not_used(path):
    where = store_tuned(path, 1024, tile(64, 64), device="cpu_of_another_machine")
    shutil.copytree(where.parent, where.parent.parent / cpu_name())
    decision = decided(path)
    assert decision.source is Source.PROFILE
    assert f"device_name: the file is of cpu_of_another_machine, not of {cpu_name()}" in decision.why_not_tuned


def test_versions_of_this_machine_are_not_held_against_another_machines_file(tmp_path):
    path = write(tmp_path, FA4)
    good = {"tile_m": 128, "tile_n": 128, "mma_pv_is_rs": True, "intra_wg_overlap": True}
    versions = {"torch": "0.1", "flash-attn-4-sources": "0", "pyyaml": "0.1"}
    store_tuned(path, 4096, good, device="nvidia_h200", versions=versions)
    decision = decided(path, 4096, device_name="NVIDIA H200")
    assert decision.source is Source.TUNED
    assert "versions are not compared" in decision.steps[0].result


def test_one_warning_per_question_and_process(path):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(3):
            attnctl.load_config(path, seqlen_q=1024)
        attnctl.load_config(path, seqlen_q=8192)
    assert [each.category for each in caught] == [NotTuned, NotTuned]
    assert caught[0].filename == __file__


def test_a_process_keeps_its_decision_until_it_forgets(path):
    where = store_tuned(path, 1024, tile(64, 64))
    first = attnctl.load_config(path, seqlen_q=1024)
    first["block_q"] = 1  # a caller may change what it got
    store_tuned(path, 1024, tile(128, 64))
    assert attnctl.load_config(path, seqlen_q=1024)["block_q"] == 64
    runtime.forget()
    assert attnctl.load_config(path, seqlen_q=1024)["block_q"] == 128
    where.write_text("schema: 1\nentries: [")
    runtime.forget()
    with pytest.raises(AttnctlError, match="is not a tuned profile that can be read"):
        attnctl.load_config(path, seqlen_q=1024)


@pytest.mark.parametrize(("seqlen_q", "seqlen_k"), [(0, None), (-5, None), (1024, 0)])
def test_no_length(path, seqlen_q, seqlen_k):
    with pytest.raises(UsageError, match="is not a length"):
        attnctl.load_config(path, seqlen_q=seqlen_q, seqlen_k=seqlen_k)


def test_a_program_pays_for_no_framework(path):
    store_tuned(path, 1024, tile(64, 64))
    heavy = ("torch", "jax", "cutlass", "flash_attn", "triton", "scipy", "numpy", "rich", "typer", "filelock")
    script = (
        "import sys, attnctl\n"
        f"print(attnctl.load_config({str(path)!r}, seqlen_q=1024))\n"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [str({**tile(64, 64), "sparse_block": (64, 64)}), "[]"]


def test_which_shows_every_step(path, capsys):
    store_tuned(path, 1024, tile(64, 64))
    assert run(["which", str(path), "--seq-len", "1500"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert [line[2:].split("  ")[0] for line in shown[1:7]] == [
        "device",
        "tuned_dir",
        "ATTNCTL_CONFIG_DIR",
        "user",
        "beside the profile",
        "nearest: 1024 x 1024",
    ]
    assert [line[0] for line in shown[1:7]] == [" "] * 5 + [">"]
    assert shown[7] == "config: block_q=64 block_kv=64 sparse_block=64x64"
    assert shown[-1].endswith("the config tuned for 1024 x 1024 is used, unmeasured at this length")


def test_which_and_load_config_agree(path, capsys):
    store_tuned(path, 1024, tile(64, 64))
    assert run(["which", str(path), "--format", "json"]) == 0
    decisions = json.loads(capsys.readouterr().out)["decisions"]
    assert [each["source"] for each in decisions] == ["tuned", "nearest"]
    exact, near = decisions
    assert attnctl.load_config(path, seqlen_q=1024) == {**exact["config"], "sparse_block": (64, 64)}
    with pytest.warns(NotTuned):
        config = attnctl.load_config(path, seqlen_q=8192)
    assert config == {**near["config"], "sparse_block": (64, 64)}


def test_which_says_what_is_wrong_with_a_profile(tmp_path, capsys):
    path = write(tmp_path, "schema: 1\nfamily: blocks\n")
    assert run(["which", str(path)]) == 2
    assert "PROFILE" in capsys.readouterr().err

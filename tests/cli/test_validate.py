"""`attnctl validate`: the seed cases, formats, exit codes, and files that are not profiles."""

import json

import pytest
from cli_profiles import GOOD, S0, S1, S2, S3, S4, WARNS

SEEDS = [
    # name, profile, code, line, part of the message, part of the fix
    ("S0", S0, "FA4-B002", 8, "64", "128"),
    ("S1", S1, "RFA4-001", 7, "cover 16 tiles of 128 but the kernel iterates 8 (seqlen_q=1000)", "num_blocks 8"),
    ("S2", S2, "SGL-001", 5, "key blocks of 64 do not match tile_n=128", "sparse_block [128, 128]"),
    (
        "S3",
        S3,
        "PAL-B002",
        6,
        "block_q_dkv, block_kv_dkv, block_q_dq and block_kv_dq are missing",
        "add block_q_dkv: 128, block_kv_dkv: 64, block_q_dq: 128, block_kv_dq: 64",
    ),
    (
        "S4",
        S4,
        "PAL-B003",
        6,
        "seqlen_q=1000 is not a multiple of block_q_dq=128 * compute_wgs_bwd=2 = 256",
        "seq_len 1024 (2.4 % more tokens)",
    ),
]


@pytest.mark.parametrize("seed", SEEDS, ids=[seed[0] for seed in SEEDS])
def test_seed_case(process, write, seed):
    name, profile, code, line, message, fix = seed
    done = process("validate", write(f"{name}.yaml", profile), "--format", "json")
    assert done.returncode == 1
    found = [each for each in json.loads(done.stdout)["findings"] if each["code"] == code]
    assert len(found) == 1
    assert found[0]["severity"] == "error"
    assert (found[0]["path"], found[0]["line"]) == (f"{name}.yaml", line)
    assert message in found[0]["message"]
    assert fix in found[0]["fix"]
    assert found[0]["why"]


def test_every_fault_of_a_profile_is_reported_at_once(attnctl, write):
    done = attnctl("validate", write("s4.yaml", S4))
    assert done.returncode == 1
    codes = [line.split()[2] for line in done.stdout.splitlines()]
    assert sorted(codes) == [
        "PAL-B003", "PAL-B004", "PAL-B005", "PAL-B006", "PAL-F005", "PAL-F006", "PAL-H003", "PAL-H003",
    ]  # fmt: skip
    assert done.stderr == "1 file, 1 problem: 6 errors, 2 warnings\n"


def test_text_is_path_line_column_code_fault_why_and_fix(attnctl, write):
    done = attnctl("validate", write("ranker/s1.yaml", S1))
    assert done.returncode == 1
    assert done.stdout == (
        "ranker/s1.yaml:7:15: error RFA4-001 the block arrays cover 16 tiles of 128 but the kernel iterates 8 "
        "(seqlen_q=1000); arrays built for another length skip tiles or are read out of bounds. "
        "Fix: num_blocks 8 (rebuild the arrays); or seq_len 2048.\n"
    )


def test_a_good_profile_says_so_on_stderr_only(process, write):
    done = process("validate", write("good.yaml", GOOD))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "1 file, 1 problem: 0 errors, 0 warnings\n"


def test_warnings_fail_only_when_strict(attnctl, write):
    name = write("warns.yaml", WARNS)
    lenient, strict = attnctl("validate", name), attnctl("validate", name, "--strict")
    assert (lenient.returncode, strict.returncode) == (0, 1)
    assert lenient.stdout == strict.stdout
    assert lenient.stdout.startswith("warns.yaml:5:34: warning PAL-H003 the forward kernel needs about 320 registers")
    assert lenient.stderr == "1 file, 1 problem: 0 errors, 1 warning\n"


def test_one_bad_file_hides_nothing(attnctl, write):
    write("all/a-empty.yaml", "")
    (binary,) = [write("all/b-binary.yaml", "\x00\x01")]
    write("all/c-list.yml", "- 1\n")
    write("all/d-s2.yaml", S2)
    write("all/e-good.yaml", GOOD)
    write("all/notes.txt", "not a profile")
    done = attnctl("validate", "all", "--format", "json")
    document = json.loads(done.stdout)
    assert done.returncode == 1
    assert [each["path"] for each in document["files"]] == [
        "all/a-empty.yaml", binary, "all/c-list.yml", "all/d-s2.yaml", "all/e-good.yaml",
    ]  # fmt: skip
    assert [each["errors"] > 0 for each in document["files"]] == [True, True, True, True, False]
    assert document["summary"]["files"] == 5


def test_a_missing_file_is_wrong_usage(process, write):
    done = process("validate", write("good.yaml", GOOD), "gone.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: gone.yaml: no such file")


def test_lengths_from_the_command_line_replace_those_of_the_file(attnctl, write):
    name = write("good.yaml", GOOD)
    done = attnctl("validate", name, "--seq-len", "1000", "--seq-len", "1024", "--seq-len", "2048")
    assert done.returncode == 1
    assert "seqlen_q=1000 is not a multiple of block_q=64 * 2 = 128" in done.stdout
    assert "1024 is not" not in done.stdout
    assert done.stderr.startswith("1 file, 3 problems: 2 errors")


def test_a_length_of_zero_is_wrong_usage(attnctl, write):
    done = attnctl("validate", write("good.yaml", GOOD), "--seq-len", "0")
    assert (done.returncode, done.stdout) == (2, "")


def test_the_arch_from_the_command_line_replaces_that_of_the_file(attnctl, write):
    done = attnctl("validate", write("good.yaml", GOOD), "--arch", "sm_100")
    assert done.returncode == 1
    assert "sm_100" in done.stdout


def test_github_annotates_the_line(attnctl, write):
    done = attnctl("validate", write("s2.yaml", S2), "--format", "github")
    assert done.returncode == 1
    assert done.stdout.startswith(
        "::error file=s2.yaml,line=5,col=1,title=SGL-001 key-block-is-not-the-key-tile::key blocks of 64 do not match"
    )


def test_an_unknown_format_is_wrong_usage(attnctl, write):
    done = attnctl("validate", write("good.yaml", GOOD), "--format", "xml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: unknown format 'xml'\nhint: known: github, json, junit, sarif, text\n"


def test_a_file_name_that_is_not_text_is_shown(process, tmp_path):
    (tmp_path / "odd\udcff.yaml").write_text(S2, encoding="utf-8")
    done = process("validate", ".")
    assert done.returncode == 1
    assert done.stdout.startswith("odd\\udcff.yaml:5:1: error SGL-001 ")

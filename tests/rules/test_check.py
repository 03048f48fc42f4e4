"""The engine: which rules are asked, where findings stand, what is merged, how fixes are worded."""

from pathlib import Path

import pytest

from attnctl.profile.load import load
from attnctl.profile.problems import cases
from attnctl.rules.check import check_case, check_profile
from attnctl.rules.wording import fix_sentence
from attnctl_kernels.rule import Fix, Severity

pytestmark = pytest.mark.usefixtures("family_folder")


@pytest.fixture
def check(tmp_path):
    def write(text, **options):
        path = tmp_path / "p.yaml"
        path.write_text(text, encoding="utf-8")
        return check_profile(path, **options)

    return write


def toy(problem, rest="", arch="sm_90"):
    return f"family: toy\narch: {arch}\nproblem:\n  seq_len: {problem}\n  num_heads_q: 4\n  head_dim: 64\n{rest}"


def test_a_clean_profile(check):
    report = check(toy("[1024, 2048]", "passes: [forward, backward]\nsparse_block: {backward: [64, 128]}\n"))
    assert report.findings == ()
    assert (report.problem_count, report.case_count, report.errors, report.warnings) == (2, 4, 0, 0)


def test_a_finding_names_place_numbers_and_the_nearest_values(check):
    (finding,) = check(toy("[1024, 1000]")).findings
    assert (finding.code, finding.name, finding.severity) == ("TOY-001", "ragged-queries", Severity.ERROR)
    assert (finding.line, finding.column, finding.field) == (4, 19, "problem.seq_len[1]")
    assert finding.message == "seqlen_q=1000 is not a multiple of tile_m=128"
    assert finding.fix == "seq_len 896 (104 tokens) or 1024 (24 tokens); or tile_m 8 or 4"
    assert finding.fixes == (
        Fix("problem.seq_len[1]", 896, "104 tokens"),
        Fix("problem.seq_len[1]", 1024, "24 tokens"),
        Fix("config.forward.tile_m", 8),
        Fix("config.forward.tile_m", 4),
    )
    assert finding.problem == "dense-b1-s1000-h4-d64-bfloat16"
    assert finding.pass_name == "forward"


def test_findings_of_a_backward_pass_stand_there(check):
    rest = "passes: [backward]\nsparse_block:\n  backward: [100, 128]\n"
    (finding,) = check(toy(1024, rest)).findings
    assert (finding.severity, finding.line, finding.field) == (Severity.WARNING, 9, "sparse_block.backward")
    assert finding.fix == "sparse_block.backward [64, 128]"
    report = check(toy(1024, rest))
    assert (report.errors, report.warnings) == (0, 1)


def test_equal_findings_of_all_problems_are_one(check):
    lengths = [128 * each for each in range(1, 101)]
    (finding,) = check(
        toy(lengths, "  num_heads_kv: 3\npasses: [forward, backward]\nsparse_block: {backward: [64, 64]}\n")
    ).findings
    assert finding.code == "G001"
    assert (finding.problem, finding.lengths, finding.pass_name) == ("", (), "")
    assert finding.message == "num_heads_q 4 is not a multiple of num_heads_kv 3"


def test_equal_findings_of_some_problems_name_them(check):
    rest = "mask: {pattern: document, document_lens: [128, 128]}\n"
    findings = check(toy("[256, 512, 512]", rest)).findings
    (finding,) = findings
    assert finding.lengths == ("512", "512")
    assert finding.message == "document_lens sum to 256, seqlen_k is 512 (at 512, 512)"


def test_lengths_and_arch_of_the_command_line(check):
    report = check(toy(1024, arch="sm_80"), seq_lens=(256, 100), arch="sm_100")
    assert report.problem_count == 2
    assert [(each.code, each.line, each.message) for each in report.findings] == [
        ("TOY-001", 4, "seqlen_q=100 is not a multiple of tile_m=256")
    ]


def test_a_family_is_not_asked_about_a_target_that_it_does_not_know(check):
    # toy's default_config raises KeyError for other arches.
    (finding,) = check(toy(1000, arch="sm_80")).findings
    assert (finding.code, finding.line, finding.fix) == ("G303", 2, "arch sm_90 or sm_100")


@pytest.mark.parametrize(
    ("arch", "near"),
    [("sm90", "sm_90"), ("sm_90a", "sm_90"), ('"90"', "sm_90"), ("hopper", "sm_90"), ("b200", "sm_100")],
)
def test_an_arch_in_other_words(check, arch, near):
    (finding,) = check(toy(1024, arch=arch)).findings
    assert (finding.code, finding.fix) == ("G302", f"arch {near}")


def test_rules_of_one_arch_and_advice_without_a_value(check):
    rest = "config:\n  forward: {tile_n: 64}\n"
    (finding,) = check(toy(1024, rest, arch="sm_100").replace("head_dim: 64", "head_dim: 192")).findings
    assert (finding.code, finding.field, finding.fix) == ("TOY-003", "config.forward.tile_n", "use sm_90")
    assert check(toy(1024, rest).replace("head_dim: 64", "head_dim: 192")).findings == ()


def test_a_general_error_gives_way_to_the_familys_own(check):
    text = (
        "family: ranker_fa4\narch: sm_100\nproblem: {seq_len: 1024, num_heads_q: 4, head_dim: 128}\n"
        "mask: {pattern: history_candidate, history_len: 896}\nlayout: {num_blocks: 16}\n"
    )
    assert [each.code for each in check(text).findings] == ["RFA4-001"]


def test_the_sweep_asks_the_same_rules(tmp_path):
    path = tmp_path / "p.yaml"
    path.write_text(toy(1000, "  num_heads_kv: 3\n"))
    (case,) = cases(load(path).profile)
    assert [rule.code for rule, _ in check_case(case)] == ["G001", "TOY-001"]


def test_a_file_with_faults_of_form_is_not_checked_further(check):
    report = check(toy(1000, "pass: [forward]\n"))
    assert [each.code for each in report.findings] == ["PROFILE001"]
    assert report.profile is None
    assert report.problem_count == 0


@pytest.mark.parametrize(
    ("fixes", "advice", "sentence"),
    [
        ((Fix("a", 1), Fix("a", 2), Fix("a", 3)), "", "a 1, 2 or 3"),
        ((Fix("a", 1, "2.4 % more tokens"), Fix("b", True)), "", "a 1 (2.4 % more tokens); or b true"),
        ((Fix("sparse_block", (256, 128)),), "", "sparse_block [256, 128]"),
        ((Fix("mask.window", None),), "", "remove window"),
        ((Fix("config.forward.tile_m", 64), Fix("config.tile_n", 64)), "", "tile_m 64; or tile_n 64"),
        ((Fix("mask.rows[3]", (0, 1)),), "", "rows[3] [0, 1]"),
        ((), "use sm_90", "use sm_90"),
        ((Fix("a", 1),), "use sm_90", "a 1; or use sm_90"),
        ((Fix("problem.seq_len[3]", 1.0e-7),), "", "seq_len 1.0e-07"),
    ],
)
def test_wording_of_fixes(fixes, advice, sentence):
    assert fix_sentence(fixes, advice) == sentence


def test_reports_of_missing_facts_stand_at_the_nearest_line(check):
    (finding,) = check(toy(1024, "mask:\n  pattern: sliding_window\n")).findings
    assert (finding.code, finding.line, finding.column, finding.field) == ("G101", 7, 1, "mask.window")


def test_the_nearest_divisor_of_a_huge_number_is_not_searched_for_ever(check):
    heads = "num_heads_q: 1099511627777\n  num_heads_kv: 1000000"
    findings = {each.code: each for each in check(toy(1024).replace("num_heads_q: 4", heads)).findings}
    assert set(findings) == {"G001", "G003"}
    assert findings["G001"].fix == "num_heads_kv 1; or num_heads_q 1099511000000 or 1099512000000"


def test_path_is_a_path(check):
    assert isinstance(check(toy(1024)).path, Path)


def test_an_arch_of_the_command_line_is_not_the_files_fault(check):
    (finding,) = check(toy(1024), arch="sm_80").findings
    assert (finding.code, finding.line, finding.column, finding.field) == ("G303", 0, 0, "--arch")
    assert finding.fix == "--arch sm_90 or sm_100"

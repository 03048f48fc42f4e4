"""Loading: all faults at once, each with its place, its value, its limit and what to write instead."""

import os
from pathlib import Path

import pytest

from attnctl.errors import UsageError
from attnctl.profile.load import load, profile_paths
from attnctl.profile.names import nearest

PROBLEM = "problem: {seq_len: 1024, num_heads_q: 4, head_dim: 64}\n"


@pytest.fixture
def loaded(tmp_path):
    def write(text, **options):
        path = tmp_path / "p.yaml"
        path.write_text(text, encoding="utf-8")
        return load(path, **options)

    return write


def said(result):
    return [(each.line, each.column, each.code, each.field, each.fix) for each in result.findings]


def only(result):
    (finding,) = result.findings
    return finding


def test_a_good_profile(loaded):
    result = loaded("family: blocks\n" + PROBLEM)
    assert result.findings == ()
    assert result.profile.problem.seq_len == (1024,)
    assert result.family.name == "blocks"


def test_all_faults_at_once_in_the_order_of_the_file(loaded):
    result = loaded(
        "family: blocks\n"
        "pass: forward\n"
        "problem:\n"
        "  seq_len: [1024, 1e5]\n"
        "  num_heads_q: '4'\n"
        "  dtype: bf16\n"
        "config:\n"
        "  forward: {block_m: 64, block_q: true}\n"
        "search: {forward: {block_q: 64, block_kv: [64, x]}}\n"
    )
    assert result.profile is None
    assert said(result) == [
        (2, 1, "PROFILE001", "pass", "write `passes`"),
        (3, 1, "PROFILE002", "problem.head_dim", "add, for example, `head_dim: 128`"),
        (4, 19, "YAML013", "problem.seq_len[1]", "write 100000"),
        (5, 16, "PROFILE003", "problem.num_heads_q", "write 4 without quotes"),
        (6, 10, "PROFILE004", "problem.dtype", "write bfloat16"),
        (8, 13, "PROFILE001", "config.forward.block_m", "write `block_q`"),
        (8, 35, "PROFILE003", "config.forward.block_q", "write a whole number"),
        (9, 29, "PROFILE003", "search.forward.block_q", "write [64]"),
        (9, 48, "PROFILE003", "search.forward.block_kv[1]", "write a whole number"),
    ]


@pytest.mark.parametrize(
    ("value", "message", "fix"),
    [
        # exponents
        ("softmax_scale: 1e-3", "`1e-3` is text in YAML 1.1 and a number in YAML 1.2", "write 1.0e-3"),
        ("softmax_scale: 1.0e3", "`1.0e3` is text in YAML 1.1 and a number in YAML 1.2", "write 1.0e+3"),
        ("softmax_scale: 1e-7", "`1e-7` is text in YAML 1.1 and a number in YAML 1.2", "write 1.0e-7"),
        ("softmax_scale: -.5E2", "`-.5E2` is text in YAML 1.1 and a number in YAML 1.2", "write -0.5e+2"),
        ("softmax_scale: 01.5", "`01.5` has a leading zero, which makes it octal in YAML 1.1", "write 1.5"),
        ("batch_size: 1e5", "`1e5` is text in YAML 1.1 and a number in YAML 1.2", "write 100000"),
        # B61: leading zeros and base 60
        ("batch_size: 0200", "`0200` has a leading zero, which makes it octal in YAML 1.1", "write 200 or 128"),
        ("batch_size: 0128", "`0128` has a leading zero, which makes it octal in YAML 1.1", "write 128"),
        ("batch_size: 0x80", "`0x80` is not written in decimal", "write 128"),
        ("batch_size: 1_024", "`1_024` has an underscore, which only YAML 1.1 reads as a number", "write 1024"),
        (
            "batch_size: 12:30",
            "`12:30` is a number in base 60 in YAML 1.1 and text in YAML 1.2",
            "a whole number is wanted here, in decimal",
        ),
        # B62: words that are booleans, and booleans that are numbers
        (
            "batch_size: yes",
            "`yes` is a boolean in YAML 1.1 and text in YAML 1.2",
            "a whole number is wanted here, in decimal",
        ),
        ("batch_size: true", "`problem.batch_size` wants a whole number, found true", "write a whole number"),
        ('batch_size: "128"', '`problem.batch_size` wants a whole number, found "128"', "write 128 without quotes"),
        ("batch_size: 2.0", "`problem.batch_size` wants a whole number, found 2.0", "write 2"),
        ("batch_size: 0", "`problem.batch_size` is 0, must be greater than 0", "write a number greater than 0"),
        ("batch_size:", "`problem.batch_size` wants a whole number, found nothing", "give a value, or remove the line"),
        ("softmax_scale: .nan", "`.nan` is not a finite number", "a decimal number is wanted here"),
    ],
)
def test_numbers_have_exactly_their_type(loaded, value, message, fix):
    finding = only(loaded(f"family: blocks\nproblem:\n  seq_len: 64\n  num_heads_q: 1\n  head_dim: 64\n  {value}\n"))
    assert (finding.message, finding.fix, finding.line) == (message, fix, 6)


@pytest.mark.parametrize(
    ("line", "code", "message", "fix"),
    [
        ("mask: off", "YAML012", "`off` is a boolean in YAML 1.1 and text in YAML 1.2", "a mapping is wanted here"),
        ("description: NO", "YAML012", "`NO` is a boolean in YAML 1.1 and text in YAML 1.2", 'quote it: "NO"'),
        (
            "description: 1:30",
            "YAML013",
            "`1:30` is a number in base 60 in YAML 1.1 and text in YAML 1.2",
            'quote it: "1:30"',
        ),
        ("version: 3.10", "PROFILE003", "`version` wants text, found 3.10", 'quote it: "3.10"'),
        (
            "version: 2026-07-13",
            "YAML014",
            "`2026-07-13` is a date in YAML 1.1 and text in YAML 1.2",
            'quote it: "2026-07-13"',
        ),
        (
            "layout: {num_blocks:2}",
            "PROFILE001",
            "unknown field `num_blocks:2` in `layout`",
            "write `num_blocks: 2` with a space after the colon",
        ),
        ("layout: {1:2}", "PROFILE001", "unknown field `1:2` in `layout`", "write `1: 2` with a space after the colon"),
        (
            "mask: {pattern: document, document_len: 64, causal: 'false'}",
            "PROFILE003",
            '`mask.causal` wants true or false, found "false"',
            "write false without quotes",
        ),
        (
            "mask: {pattern: document, document_len: 64, causal: yes}",
            "YAML012",
            "`yes` is a boolean in YAML 1.1 and text in YAML 1.2",
            "write true",
        ),
        (
            "search: {budget: 1:30}",
            "YAML013",
            "`1:30` is a number in base 60 in YAML 1.1 and text in YAML 1.2",
            "a duration such as 90s, 10m or 1h is wanted here",
        ),
        (
            "gate: {max_regression: 3}",
            "PROFILE003",
            "`gate.max_regression` wants a percentage such as 3%, found 3",
            "write a percentage such as 3%",
        ),
        ("sparse_block: 64", "PROFILE003", "`sparse_block` wants a pair [q, kv], found 64", "write [64, 64]"),
        ("sparse_block: [64]", "PROFILE003", "`sparse_block` wants a pair [q, kv], found [64]", "write [128, 128]"),
        (
            "sparse_block: [64, 64, 64]",
            "PROFILE003",
            "`sparse_block` wants a pair [q, kv], found [64, 64, 64]",
            "write [128, 128]",
        ),
        (
            "sparse_block: {q: 64}",
            "PROFILE001",
            "unknown field `q` in `sparse_block`",
            "give `q` and `kv`, or a pair per pass",
        ),
        (
            "config: {block_q: 64}",
            "PROFILE001",
            "unknown field `block_q` in `config`",
            "write `block_q` below `config.forward`",
        ),
        (
            "search: {forward: {sparse_block: [64, 64]}}",
            "PROFILE003",
            "`search.forward.sparse_block[0]` wants a pair [q, kv], found 64",
            "write [64, 64]",
        ),
        ("schema: 2", "PROFILE004", "`schema` is 2; known: 1", "write 1"),
        ("head_dim: 64", "PROFILE001", "unknown field `head_dim`", "write `head_dim` below `problem`"),
    ],
)
def test_one_fault(loaded, line, code, message, fix):
    finding = next(iter(loaded(f"family: blocks\n{PROBLEM}{line}\n").findings))
    assert (finding.code, finding.message) == (code, message)
    assert finding.line == 3
    assert finding.fix == fix


def test_an_unknown_key_is_shown_as_written_with_what_is_wrong_with_its_value(loaded):
    result = loaded(f"family: blocks\n{PROBLEM}on: NO\n")
    assert [(each.code, each.column, each.message) for each in result.findings] == [
        ("PROFILE001", 1, "unknown field `on`"),
        ("YAML012", 5, "`NO` is a boolean in YAML 1.1 and text in YAML 1.2"),
    ]


def test_the_nearest_families_are_named(loaded):
    finding = only(loaded("family: block\n" + PROBLEM))
    assert finding.code == "PROFILE004"
    assert finding.fix == "write blocks"


def test_families_of_one_config_say_where_parameters_go(loaded):
    finding = only(loaded(f"family: ranker_fa4\narch: sm_90\n{PROBLEM}config: {{forward: {{qk_norm: true}}}}\n"))
    assert (finding.code, finding.field) == ("PROFILE001", "config.forward")
    assert finding.fix.startswith("this family has one set of parameters for all passes")


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ("", "no sequence length is given"),
        ("seqlen_k: 64, ", "`seqlen_k` is given without `seqlen_q`"),
        ("seq_len: 64, seqlen_q: 64, ", "`seq_len` and `seqlen_q` are both given"),
        ("seqlen_q: [64, 128, 256], seqlen_k: [64, 128], ", "`seqlen_q` lists 3 lengths and `seqlen_k` 2"),
    ],
)
def test_lengths_must_make_problems_unless_they_are_replaced(loaded, lengths, message):
    text = f"family: blocks\nproblem: {{{lengths}num_heads_q: 4, head_dim: 64}}\n"
    finding = only(loaded(text))
    assert (finding.code, finding.message, finding.line) == ("PROFILE006", message, 2)
    assert loaded(text, seq_lens=(64,)).findings == ()


def test_fields_are_located_as_the_file_writes_them(loaded):
    result = loaded(
        "family: blocks\n"
        "problem:\n"
        "  seq_len: [64,\n"
        "    128]\n"
        "  num_heads_q: 4\n"
        "  head_dim: 64\n"
        "sparse_block:\n"
        "  forward: [64, 64]\n"
        "config:\n"
        "  forward: {block_q: 64}\n"
    )
    assert result.findings == ()
    assert result.locate("problem.seqlen_q", 1) == ("problem.seq_len[1]", 4, 5)
    assert result.locate("problem.seqlen_k", 0) == ("problem.seq_len[0]", 3, 13)
    assert result.locate("problem.seqlen_q") == ("problem.seq_len", 3, 3)
    assert result.locate("problem.num_heads_kv") == ("problem.num_heads_q", 5, 16)
    assert result.locate("problem.dtype") == ("problem.dtype", 2, 1)
    assert result.locate("config.block_q") == ("config.forward.block_q", 10, 22)
    assert result.locate("config.block_kv") == ("config.forward.block_kv", 10, 3)
    assert result.locate("config.block_q", 0, "backward") == ("config.backward.block_q", 9, 1)
    assert result.locate("config.backward.block_q") == ("config.backward.block_q", 9, 1)
    assert result.locate("sparse_block") == ("sparse_block.forward", 8, 3)
    assert result.locate("sparse_block[1]") == ("sparse_block.forward[1]", 8, 17)
    assert result.locate("sparse_block", 0, "backward") == ("sparse_block", 7, 1)
    assert result.locate("mask.history_len") == ("mask.history_len", 1, 1)


def test_lengths_of_the_command_line_have_the_place_of_those_they_replace(loaded):
    result = loaded("family: blocks\n" + PROBLEM.replace("1024", "[1024, 2048]"), seq_lens=(64, 128))
    assert result.locate("problem.seqlen_q", 1) == ("problem.seq_len", 2, 11)


def test_flat_configs_are_located_without_a_pass(loaded):
    result = loaded(f"family: ranker_fa4\narch: sm_90\n{PROBLEM}config:\n  qk_norm: true\n")
    assert result.locate("config.qk_norm", 0, "backward") == ("config.qk_norm", 5, 12)
    assert result.locate("config.attn_logit_cap") == ("config.attn_logit_cap", 4, 1)


def test_pairs_are_one_thing_in_all_their_forms(loaded):
    forms = ("[128, 64]", "{q: 128, kv: 64}", "{kv: 64, q: 128}", "{forward: [128, 64], backward: {kv: 64, q: 128}}")
    pairs = {loaded(f"family: blocks\n{PROBLEM}sparse_block: {form}\n").profile.sparse_block for form in forms}
    assert len(pairs) == 1
    assert pairs.pop().forward == (128, 64)


def test_folders_are_walked_in_order_without_written_and_hidden_files(tmp_path):
    for name in (
        "b.yaml",
        "a.yml",
        "tuned/x.yaml",
        "sub/c.yaml",
        "sub/tuned/y.yaml",
        ".git/z.yaml",
        "notes.txt",
        ".d.yaml",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    paths = profile_paths([tmp_path, tmp_path / "a.yml", tmp_path / "notes.txt"])
    assert [path.relative_to(tmp_path) for path in paths] == [
        Path("a.yml"),
        Path("b.yaml"),
        Path("sub/c.yaml"),
        Path("notes.txt"),
    ]


def test_missing_paths_and_empty_folders_are_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="no profile in this folder"):
        profile_paths([tmp_path])
    with pytest.raises(UsageError, match="no such file or folder"):
        profile_paths([tmp_path / "missing.yaml"])


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("bf16", ("float16", "bfloat16"), ("bfloat16",)),
        ("pass", ("passes", "problem"), ("passes",)),
        ("batch", ("batch_size",), ("batch_size",)),
        ("History-Candidate", ("history_candidate", "history_len"), ("history_candidate",)),
        ("seqlenq", ("seq_len", "seqlen_q"), ("seqlen_q",)),
        ("tile_N", ("tile_m", "tile_n"), ("tile_n",)),
        ("zebra", ("tile_m", "tile_n"), ()),
        ("x" * 100_000, ("tile_m",), ()),
    ],
)
def test_nearest_names(name, known, expected):
    assert nearest(name, known) == expected


@pytest.mark.parametrize(
    ("seq_len", "code", "fix"),
    [
        ("abc", "PROFILE003", "write a whole number or a list of them"),
        ("{a: 1}", "PROFILE003", "write a whole number or a list of them"),
        ('"4096"', "PROFILE003", "write 4096 without quotes"),
        ("4096.0", "PROFILE003", "write 4096"),
        ("1e5", "YAML013", "write 100000"),
        (".inf", "YAML013", "a whole number or a list of them is wanted here, in decimal"),
    ],
)
def test_lengths_are_one_number_or_a_list(loaded, seq_len, code, fix):
    finding = only(loaded("family: blocks\n" + PROBLEM.replace("1024", seq_len)))
    assert (finding.code, finding.fix) == (code, fix)


def test_what_is_required_is_not_to_be_removed(loaded):
    findings = loaded("family: blocks\nmask:\nproblem:\n").findings
    assert [(each.field, each.fix) for each in findings] == [
        ("mask", "give a value, or remove the line"),
        ("problem", "give a value"),
    ]


def test_indenting_with_a_tab(loaded):
    assert only(loaded("problem:\n  seq_len: 8\n\thead_dim: 64\n")).fix.startswith("indent with spaces, not tabs")


def test_a_pipe_in_a_folder_is_no_profile(tmp_path):
    os.mkfifo(tmp_path / "pipe.yaml")
    (tmp_path / "a.yaml").touch()
    assert profile_paths([tmp_path]) == [tmp_path / "a.yaml"]


def test_a_folder_that_cannot_be_read_is_not_passed_over(tmp_path, monkeypatch):
    (tmp_path / "closed").mkdir()
    (tmp_path / "a.yaml").touch()

    def scandir(path):
        if str(path).endswith("closed"):  # permissions do not stop root, as which tests may run
            raise PermissionError(13, "Permission denied", path)
        return listed(path)

    listed = os.scandir
    monkeypatch.setattr(os, "scandir", scandir)
    with pytest.raises(UsageError) as raised:
        profile_paths([tmp_path])
    assert raised.value.message == f"{tmp_path / 'closed'}: cannot be read: Permission denied"

"""`attnctl explain --message TEXT` and `attnctl explain -`: from a pasted error to its rule, numbers and fix."""

import io
import json
import sys

import pytest

from attnctl.rules.registry import find_rule

S4 = "NotImplementedError: q_seq_len=1000 must be a multiple of config.block_q_dq=128 * compute_wgs=2"
NOTHING = "nothing in this text is a message that attnctl knows\nhint: "


@pytest.fixture
def stdin(monkeypatch):
    def feed(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))

    return feed


def test_a_message_is_explained_with_its_numbers(attnctl):
    done = attnctl("explain", "--message", S4)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "PAL-B003 ragged-queries-in-dq\n"
        "The query tiles of the dQ kernel do not cover the queries evenly.\n"
        "\n"
        "line 1:\n"
        f"  {S4}\n"
        "    q_seq_len         = 1000  (problem.seqlen_q in a profile)\n"
        "    config.block_q_dq = 128\n"
        "    compute_wgs       = 2  (config.compute_wgs_bwd in a profile)\n"
        "\n"
        "Here: 1000 -> 768 or 1024 (multiples of 128 * 2 = 256).\n"
        "\n"
        "Why: A program of the dQ kernel handles one tile per warp group and has no\n"
        "ragged tile.\n"
        "\n"
        "Fix: Pad to 1024 (2.4 % more tokens) or cut to 768. 1152 also works as it is\n"
        "with `block_q_dq: 64` (64 * 2 = 128) or one warp group.\n"
        "\n"
        "`attnctl explain PAL-B003` prints the whole page.\n"
    )


def test_a_log_comes_from_standard_input(attnctl, stdin):
    stdin(("step 1\n" + "".join(f"[rank{rank}]: {S4}\n" for rank in range(8)) + "done\n").encode())
    done = attnctl("explain", "-")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nline 2, 8 times:\n  NotImplementedError: q_seq_len=1000 " in done.stdout


def test_the_first_three_are_explained_and_the_rest_named(attnctl, stdin):
    stdin(
        b"Need to specify backward blocks.\n"
        b"head_dim=100 must be divisible by 64\n"
        b"SM90 tile_m must be 64, 128, or 192, got 96\n"
        b"ValueError: kv_seq_len=1000 must be a multiple of config.block_kv_dkv=128 * compute_wgs=2\n" + S4.encode()
    )
    out = attnctl("explain", "-").stdout
    heads = [line for line in out.splitlines() if line.startswith(("PAL-", "FA4-"))]
    assert [head.split()[0] for head in heads] == ["PAL-B004", "PAL-B003", "FA4-F005"]
    assert out.endswith(
        "Also:\n"
        f"  line 2: PAL-F004 {find_rule('PAL-F004').page.strip().splitlines()[0]}\n"
        f"  line 1: PAL-B002 {find_rule('PAL-B002').page.strip().splitlines()[0]}\n"
    )


def test_rules_with_the_same_message_are_named(attnctl):
    out = attnctl("explain", "--message", "have block size 128, which must be a multiple of 256.").stdout
    assert out.startswith("FA4-S007 ")
    assert "\nSGL-002 says the same: " in out


def test_a_message_that_breaks_off_says_so(attnctl):
    out = attnctl("explain", "--message", S4[:70] + "...").stdout
    assert "\nline 1, broken off:\n" in out


def test_json_is_the_documented_object(attnctl):
    done = attnctl("explain", "--message", S4, "--format", "json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    rules = document["messages"][0].pop("rules")
    assert document == {
        "version": 1,
        "messages": [
            {
                "message": "q_seq_len={} must be a multiple of config.block_q_dq={} * compute_wgs={}",
                "values": [
                    {"name": "q_seq_len", "text": "1000", "field": "problem.seqlen_q"},
                    {"name": "config.block_q_dq", "text": "128", "field": "config.block_q_dq"},
                    {"name": "compute_wgs", "text": "2", "field": "config.compute_wgs_bwd"},
                ],
                "suggestion": "1000 -> 768 or 1024 (multiples of 128 * 2 = 256)",
                "excerpt": S4,
                "line": 1,
                "occurrences": 1,
                "complete": True,
            }
        ],
    }
    assert rules == [json.loads(attnctl("explain", "PAL-B003", "--format", "json").stdout)]


def test_a_rule_and_the_list_as_json(attnctl):
    rule = json.loads(attnctl("explain", "pal-b003", "--format", "json").stdout)
    assert (rule["code"], rule["name"], rule["severity"]) == ("PAL-B003", "ragged-queries-in-dq", "error")
    assert rule["title"] == "The query tiles of the dQ kernel do not cover the queries evenly."
    assert rule["what"].startswith("`seqlen_q % (block_q_dq * compute_wgs_bwd) == 0`.")
    assert (rule["passes"], rule["arches"], rule["versions"]) == (["backward"], [], [])
    listed = json.loads(attnctl("explain", "--list", "--format", "json").stdout)
    assert rule in listed
    assert [each["code"] for each in listed] == sorted(each["code"] for each in listed)


@pytest.mark.parametrize("text", ["loss is nan", "", "q_seq_len=1000"])
def test_a_text_without_a_known_message_is_exit_code_1(attnctl, text):
    done = attnctl("explain", "--message", text)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith(NOTHING)
    assert "attnctl validate PROFILE" in done.stderr


def test_nothing_found_is_an_empty_list_in_json(attnctl):
    done = attnctl("explain", "--message", "loss is nan", "--format", "json")
    assert done.returncode == 1
    assert json.loads(done.stdout) == {"version": 1, "messages": []}


@pytest.mark.parametrize(
    "args",
    [
        (),
        ("PAL-B003", "--message", S4),
        ("--list", "--message", S4),
        ("-", "--list"),
        ("--message", S4, "--format", "xml"),
    ],
)
def test_wrong_usage_is_exit_code_2(attnctl, args):
    done = attnctl("explain", *args)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_logs_of_any_encoding(attnctl, stdin, encoding):
    stdin(f"│ Größe │\n{S4}\n".encode(encoding))
    assert attnctl("explain", "-").stdout.startswith("PAL-B003 ")


def test_bytes_that_are_no_text_do_not_stop_it(attnctl, stdin):
    stdin(bytes(range(256)) * 100 + b"\n" + S4.encode() + b"\n\xff\xfe")
    assert attnctl("explain", "-").returncode == 0


def test_control_characters_of_a_log_do_not_reach_the_terminal(attnctl, stdin):
    stdin(b"\x07\x1b]0;title\x07" + S4.encode() + b" \x1b]2;x\x00\x08\n")
    out = attnctl("explain", "-").stdout
    assert "\\x07" in out
    assert out.replace("\n", "").isprintable()


def test_a_character_may_lie_across_two_reads(attnctl, stdin, monkeypatch):
    monkeypatch.setattr("attnctl.cli.explain.PIECE", 7)
    stdin(("ä" * 30 + "\n" + S4).encode())
    assert attnctl("explain", "-").stdout.startswith("PAL-B003 ")


@pytest.mark.parametrize(
    ("code", "hint"),
    [
        ("PAL-B9", "did you mean PAL-B001, PAL-B002 or PAL-B003? "),
        ("PAL-B3", "did you mean PAL-B003? "),
        ("palb003", "did you mean PAL-B003? "),
        ("ragged-queries-in-dq", "did you mean PAL-B003? "),
        ("G999", "did you mean G001, G002 or G003? "),
        ("xyz", ""),
    ],
)
def test_the_hint_for_an_unknown_code(attnctl, code, hint):
    done = attnctl("explain", code)
    assert done.returncode == 2
    assert done.stderr == f"error: no rule has the code {code!r}\nhint: {hint}attnctl explain --list prints all codes\n"

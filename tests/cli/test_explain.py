"""`attnctl explain` and `attnctl schema`."""

import json

import jsonschema
import pytest
import yaml
from cli_profiles import GOOD

from attnctl.rules.registry import aliases, all_rules


def test_the_page_of_a_rule(attnctl):
    done = attnctl("explain", "PAL-B003")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "PAL-B003 ragged-queries-in-dq\n"
        "The query tiles of the dQ kernel do not cover the queries evenly.\n"
        "\n"
        "severity  error\n"
        "passes    backward\n"
        "\n"
        "What: `seqlen_q % (block_q_dq * compute_wgs_bwd) == 0`. 1000 queries leave 232\n"
        "over at 128 * 2 = 256.\n"
        "\n"
        "Why: A program of the dQ kernel handles one tile per warp group and has no\n"
        "ragged tile.\n"
        "\n"
        "Fix: Pad to 1024 (2.4 % more tokens) or cut to 768. 1152 also works as it is\n"
        "with `block_q_dq: 64` (64 * 2 = 128) or one warp group.\n"
        "\n"
        "Upstream says:\n"
        "  q_seq_len={} must be a multiple of config.block_q_dq={} * compute_wgs={}\n"
    )


def test_the_page_says_where_the_rule_applies(attnctl):
    page = attnctl("explain", "SGL-003").stdout
    assert "passes    forward\narches    sm_100, sm_103, sm_110\n" in page
    assert "versions  xai-v1\n" in attnctl("explain", "RFA4-003").stdout


def test_codes_may_be_written_small(attnctl):
    assert attnctl("explain", "sgl-001").stdout == attnctl("explain", "SGL-001").stdout


def test_an_unknown_code_names_the_nearest(attnctl):
    done = attnctl("explain", "PAL-B03")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: no rule has the code 'PAL-B03'\nhint: did you mean ")
    assert "PAL-B003" in done.stderr


def test_no_code_is_wrong_usage(attnctl):
    done = attnctl("explain")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--list" in done.stderr


def test_list_has_every_rule_once(attnctl):
    done = attnctl("explain", "--list")
    assert (done.returncode, done.stderr) == (0, "")
    assert [line.split()[0] for line in done.stdout.splitlines()] == sorted({*all_rules(), *aliases()})
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    assert ["FA4-E005", "error", "G001: The query heads are not a multiple of the key/value heads."] in lines


def test_a_code_of_a_family_that_all_families_share_leads_to_the_general_rule(attnctl):
    done = attnctl("explain", "fa4-e005")
    assert done.returncode == 0
    assert done.stdout.startswith("FA4-E005 is G001, which says it for all families.\n\nG001 heads-do-not-divide\n")
    assert json.loads(attnctl("explain", "FA4-E005", "--format", "json").stdout)["aliases"] == ["FA4-E005"]


@pytest.mark.parametrize("width", ["40", "200"])
def test_pages_fit_the_terminal(attnctl, width):
    done = attnctl("explain", "PAL-H002", COLUMNS=width)
    paragraphs = done.stdout.partition("\n")[2].partition("Upstream says:")[0]  # titles and messages stay whole
    longest = max(paragraphs.splitlines(), key=len)
    assert len(longest) <= min(int(width), 100) or " " not in longest.strip()


def test_the_schema_accepts_a_profile_and_refuses_an_unknown_key(attnctl):
    done = attnctl("schema")
    assert (done.returncode, done.stderr) == (0, "")
    validator = jsonschema.Draft202012Validator(json.loads(done.stdout))
    profile = yaml.safe_load(GOOD)
    assert list(validator.iter_errors(profile)) == []
    assert list(validator.iter_errors({**profile, "famly": "fa4"}))

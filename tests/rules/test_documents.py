"""The docs of rules are the rules' own text, and what is committed is current."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from attnctl.rules.documents import COMMAND, INDEX, documents
from attnctl.rules.pages import markdown, paragraph, title
from attnctl.rules.registry import all_rules, find_rule

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs" / "rules"


def test_the_committed_docs_are_current():
    committed = {path.name: path.read_text(encoding="utf-8") for path in DOCS.glob("*.md")}
    wanted = documents()
    stale = sorted(name for name in committed.keys() | wanted.keys() if committed.get(name) != wanted.get(name))
    assert stale == [], f"write them again: {COMMAND}"


def test_the_command_writes_them_and_removes_what_is_gone(tmp_path):
    assert COMMAND == "python -m attnctl.rules.documents docs/rules"
    (tmp_path / "old.md").write_text("gone")
    (tmp_path / "kept.txt").write_text("kept")
    done = subprocess.run(
        [sys.executable, *COMMAND.split()[1:-1], str(tmp_path)], cwd=ROOT, capture_output=True, timeout=120, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert {path.name for path in tmp_path.iterdir()} == {*documents(), "kept.txt"}
    assert all((tmp_path / name).read_text(encoding="utf-8") == text for name, text in documents().items())


def test_every_rule_is_in_one_file_and_in_the_index():
    files = documents()
    index = files.pop(INDEX)
    for code, rule in all_rules().items():
        heading = f"\n## {code} {rule.name}\n"
        (home,) = [name for name, text in files.items() if heading in text]
        assert f"[{code}]({home}#{code.lower()}-{rule.name}) | {rule.severity} |" in index
        assert markdown(rule) in files[home]


def test_links_of_the_index_lead_to_headings():
    files = documents()
    for name, anchor in re.findall(r"\]\(([\w.-]+)#([\w-]+)\)", files[INDEX]):
        headings = re.findall(r"^## (.+)$", files[name], re.MULTILINE)
        assert anchor in {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("code", ["PAL-B003"])
def test_markdown_is_what_explain_prints(code):
    assert markdown(find_rule(code)) == (
        "The query tiles of the dQ kernel do not cover the queries evenly.\n"
        "\n"
        "- severity: error\n"
        "- passes: backward\n"
        "\n"
        "**What:** `seqlen_q % (block_q_dq * compute_wgs_bwd) == 0`. 1000 queries leave 232 over at 128 * 2 = 256.\n"
        "\n"
        "**Why:** A program of the dQ kernel handles one tile per warp group and has no ragged tile.\n"
        "\n"
        "**Fix:** Pad to 1024 (2.4 % more tokens) or cut to 768. 1152 also works as it is with `block_q_dq: 64` "
        "(64 * 2 = 128) or one warp group.\n"
        "\n"
        "Upstream says:\n"
        "\n"
        "    q_seq_len={} must be a multiple of config.block_q_dq={} * compute_wgs={}"
    )


def test_every_page_says_what_why_and_how_to_fix():
    for rule in all_rules().values():
        assert title(rule).endswith(".")
        assert all(paragraph(rule, name) for name in ("What", "Why", "Fix")), rule.code

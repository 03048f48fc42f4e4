"""Edits: the text of a profile after a fix, whatever its form, and the rest of the file as it was."""

from pathlib import Path

import pytest

from attnctl.profile.document import Document, parse
from attnctl.profile.edits import edit_for
from attnctl.rules.check import check_profile

FIXTURES = sorted((Path(__file__).parents[1] / "rules" / "fixtures").glob("*/bad.yaml"))


def edited(text, edit):
    """As an editor would do it."""
    lines = text.splitlines(keepends=True)

    def offset(place):
        return sum(map(len, lines[: place[0] - 1])) + place[1] - 1

    return text[: offset(edit.start)] + edit.text + text[offset(edit.end) :]


def after(text, field, value):
    edit = edit_for(parse(text.encode(), Document("p.yaml")), field, value)
    return edit and edited(text, edit)


@pytest.mark.parametrize(
    ("text", "field", "value", "expected"),
    [
        ("arch: sm_80  # old\nfamily: fa4\n", "arch", "sm_90", "arch: sm_90  # old\nfamily: fa4\n"),
        ('arch: "sm_80"\n', "arch", "sm_90", "arch: sm_90\n"),
        ("a: {b: [1, 2, 3], c: 4}\n", "a.b[1]", 7, "a: {b: [1, 7, 3], c: 4}\n"),
        ("a: {b: [1,\n  2], c: 4}\n", "a.b", (5, 6), "a: {b: [5, 6], c: 4}\n"),
        ("a:\n  b: 1\n", "a.c", 2, "a:\n  c: 2\n  b: 1\n"),
        ("a: {b: 1}\n", "a.c", True, "a: {c: true, b: 1}\n"),
        ("a: {b: 1}\n", "c.d.e", 64, "c: {d: {e: 64}}\na: {b: 1}\n"),
        ("a: {b: {}}\n", "a.b.c", 2, "a: {b: {c: 2}}\n"),
        ("a:\n  b:\n  c: 1\n", "a.b.d.e", 2, "a:\n  b: {d: {e: 2}}\n  c: 1\n"),
        ("a: [1]\n", "a.b", 2, None),
        ("{a: 1}\n", "b", 2, "{b: 2, a: 1}\n"),
        ("a:\nb: 1\n", "a", 2, "a: 2\nb: 1\n"),
        ("a: {b: 1}\n", "a.b", None, "a: {b: null}\n"),
        ("ä: {b: 1}\n", "ä.b", 2, "ä: {b: 2}\n"),
        ("a:\n  - 1\n  - 2\n", "a", (5, 6), None),  # of block style: where it ends is a matter of taste
        ("a: |\n  text\n", "a", "other", None),
        ("a: {b: 1}\n", "a.c", None, None),
        ("version: 2.5\n", "version", "2.13", 'version: "2.13"\n'),
        ("a: 1\n", "--arch", "sm_90", None),
    ],
)
def test_the_text_after_an_edit(text, field, value, expected):
    assert after(text, field, value) == expected


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.parent.name)
def test_every_edit_makes_its_rule_pass(path, tmp_path):
    text = path.read_bytes().decode("utf-8", "replace")
    fixed = tmp_path / "fixed.yaml"
    for finding in check_profile(path).findings:
        assert len(finding.edits) == len(finding.fixes)
        for edit in finding.edits:
            if edit is not None:
                fixed.write_text(edited(text, edit), encoding="utf-8")
                left = {(each.code, each.field) for each in check_profile(fixed).findings}
                assert (finding.code, finding.field) not in left, edit
                assert not {code for code, _ in left if code.startswith(("YAML", "PROFILE"))}, edit

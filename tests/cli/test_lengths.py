"""`validate --seq-len` with lists and ranges: which lengths a profile supports."""

import json

import pytest
from cli_profiles import GOOD, S4
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.cli.options import parse_lengths
from attnctl.errors import UsageError
from attnctl.profile.load import load
from attnctl.report._lengths import length_table, supported
from attnctl.rules.check import check_loaded, check_profile


@pytest.mark.parametrize(
    ("texts", "values", "many"),
    [
        (["1000"], (1000,), False),
        (["1000,2000", "1000"], (1000, 2000), False),
        (["128:512:128"], (128, 256, 384, 512), True),
        (["128:500:128"], (128, 256, 384), True),
        (["3:5"], (3, 4, 5), True),
        (["7:7"], (7,), True),
        ([",".join(map(str, range(1, 10)))], tuple(range(1, 10)), True),
        ([], (), False),
    ],
)
def test_lengths(texts, values, many):
    lengths = parse_lengths(texts)
    assert (lengths.values, lengths.many) == (values, many)


@pytest.mark.parametrize("text", ["0", "-1", "1:", ":", "a", "1:2:3:4", "1.5", "5:3", "1:9:0", "1:10001", "", "9" * 20])
def test_what_is_no_length_is_wrong_usage(text):
    with pytest.raises(UsageError):
        parse_lengths([text])


def test_a_range_is_shown_as_a_table(attnctl, write):
    done = attnctl("validate", write("good.yaml", GOOD), "--seq-len", "896:1536:64")
    assert done.returncode == 1
    assert done.stdout == (
        "good.yaml: 6 of 11 lengths from 896 to 1536 supported\n"
        "  supported  6  896 to 1536 step 128\n"
        "  not        5  960, 1088, 1216, 1344, 1472  nearest supported: 896 and 1024\n"
        "    PAL-F005 seqlen_k=960 is not a multiple of block_kv=128 (remainder 64)\n"
        "    PAL-F006 seqlen_q=960 is not a multiple of block_q=64 * 2 = 128 (remainder 64)\n"
    )


def test_a_range_that_is_all_supported_passes(attnctl, write):
    done = attnctl("validate", write("good.yaml", GOOD), "--seq-len", "1024:8192:128")
    assert done.returncode == 0
    assert done.stdout == (
        "good.yaml: 57 of 57 lengths from 1024 to 8192 supported\n  supported  57  1024 to 8192 step 128\n"
    )


def test_json_has_every_length_with_its_findings(attnctl, write):
    name = write("good.yaml", GOOD)
    done = attnctl("validate", name, write("same.yaml", GOOD), "--seq-len", "960:1024:32", "--format", "json")
    document = json.loads(done.stdout)
    for file in document["files"]:
        assert [(each["length"], each["supported"]) for each in file["lengths"]] == [
            (960, False), (992, False), (1024, True),
        ]  # fmt: skip
        codes = [document["findings"][index]["code"] for index in file["lengths"][0]["findings"]]
        assert codes == ["PAL-F005", "PAL-F006"]
    last = document["files"][1]["lengths"][1]["findings"]
    assert all("=992 is not" in document["findings"][index]["message"] for index in last)


def test_few_lengths_are_shown_line_by_line(attnctl, write):
    done = attnctl("validate", write("good.yaml", GOOD), "--seq-len", "1000,1024")
    assert done.stdout.startswith("good.yaml:3:20: error PAL-F005 seqlen_k=1000 ")


def test_a_range_over_a_broken_file_says_what_is_broken(attnctl, write):
    done = attnctl("validate", write("bad.yaml", GOOD + "famly: x\n"), "--seq-len", "128:1024:128")
    assert done.returncode == 1
    assert "PROFILE001" in done.stdout


@settings(deadline=None, max_examples=25)
@given(st.lists(st.integers(1, 3000), min_size=1, max_size=40, unique=True))
def test_each_length_is_judged_as_alone(tmp_path_factory, lengths):
    path = tmp_path_factory.getbasetemp() / "s4.yaml"
    path.write_text(S4, encoding="utf-8")
    together = check_profile(path, seq_lens=lengths, by_length=True).by_length
    for length, findings in together.items():
        alone = check_loaded(load(path, seq_lens=[length]))
        assert {each.code for each in findings} == {each.code for each in alone.findings}
    good = [each for each in sorted(lengths) if supported(together[each])]
    head = next(length_table("s4.yaml", together))
    assert head == f"s4.yaml: {len(good)} of {len(lengths)} lengths from {min(lengths)} to {max(lengths)} supported"

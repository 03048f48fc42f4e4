"""Any bytes make a document with findings: never an exception, never much time or memory."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from attnctl.errors import UsageError
from attnctl.profile.document import MAX_BYTES, MAX_VALUES, Document, parse, read
from attnctl.profile.scalars import Ambiguous, resolve, spell


def parsed(data):
    return parse(data if isinstance(data, bytes) else data.encode(), Document("p.yaml"))


def codes(document):
    return [(each.code, each.line, each.column) for each in document.findings]


def test_data_and_places():
    document = parsed("family: blocks\nproblem:\n  seq_len: [64, 3.10]\n  'head_dim': 128\n")
    assert document.findings == []
    assert document.data == {"family": "blocks", "problem": {"seq_len": (64, 3.1), "head_dim": 128}}
    assert document.keys["problem", "seq_len"] == (3, 3)
    assert document.values["problem", "seq_len", 1] == (3, 17)
    assert document.keys["problem", "head_dim"] == (4, 3)
    assert document.written == {("problem", "seq_len", 1): "3.10"}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"", [("YAML002", 1, 1)]),
        (b"# nothing\n", [("YAML002", 1, 1)]),
        (b"~", [("YAML002", 1, 1)]),
        (b"\xff\xfea\x00", [("YAML001", 1, 1)]),
        (b"a: 1\nb: \xe9", [("YAML001", 2, 4)]),
        (b"a: 1\nb: \x00", [("YAML001", 2, 4)]),
        ("a: 1\nb: x\u2028c: 2".encode(), [("YAML001", 2, 5)]),
        ("# \x85\na: 1".encode(), [("YAML001", 1, 3)]),
        (b"\x7fELF\x02", [("YAML001", 1, 5)]),
        (b"- a", [("YAML003", 1, 1)]),
        (b"family:blocks", [("YAML003", 1, 1)]),
        (b"a: [1, 2\n\n", [("YAML010", 1, 4)]),
        (b"a: 'b\n\n", [("YAML010", 1, 4)]),
        (b"a:\n\t- 1", [("YAML010", 2, 1)]),
        (b"a: b: c", [("YAML010", 1, 5)]),
        (b"a: [", [("YAML010", 1, 4)]),
        (b"? [a]\n: 1", [("YAML011", 1, 3)]),
        (b"a: {{x}}", [("YAML011", 1, 5)]),
        (b"{'': 1}", [("YAML011", 1, 2)]),
        (b"a: 1\n---\nb: 2", [("YAML009", 2, 1)]),
        (b"a: 1\na: {b: [2]}\nc: 3", [("YAML008", 2, 1)]),
        (b"a: &x 1\nb: *x\n<<: *x", [("YAML006", 1, 4), ("YAML006", 2, 4), ("YAML006", 3, 1)]),
        (b"*x : 1", [("YAML006", 1, 1)]),
        (b"a: !!python/object:os.system {}", [("YAML007", 1, 4)]),
        (b"&top\na: 1", [("YAML006", 1, 1)]),
        (b"a: " + b"[" * 40 + b"]" * 40, [("YAML005", 1, 35)]),
        (b"[" * 500_000, [("YAML005", 1, 1001)]),
        (b"- " * 500_000, [("YAML005", 1, 65)]),
    ],
)
def test_faults_have_a_code_and_a_place(data, expected):
    assert codes(parsed(data)) == expected


def test_first_value_of_a_repeated_key_is_kept():
    assert parsed("a: 1\na: 2\n").data == {"a": 1}


def test_a_byte_order_mark_and_one_document_marker_are_fine():
    assert parsed(b"\xef\xbb\xbf---\na: 1\n...\n").data == {"a": 1}


def test_too_many_values_and_too_many_faults():
    assert codes(parsed(b"a: [" + b"1," * MAX_VALUES + b"1]"))[0][0] == "YAML004"
    assert codes(parsed(b"a: 1\n" * 1000))[-1] == ("YAML004", 102, 1)


def test_large_files_are_not_read(tmp_path):
    path = tmp_path / "large.yaml"
    path.write_bytes(b"#" * (MAX_BYTES + 1))
    document = read(path)
    assert codes(document) == [("YAML004", 1, 1)]
    assert "1,048,577 bytes" in document.findings[0].message


def test_devices_and_pipes_are_read_up_to_the_limit():
    assert codes(read(Path("/dev/zero")))[0][0] == "YAML004"


@pytest.mark.parametrize("name", ["missing.yaml", ".", "a\0b"])
def test_what_is_no_file_is_wrong_usage(tmp_path, name):
    with pytest.raises(UsageError):
        read(tmp_path / name)


@given(st.binary(max_size=200))
def test_any_bytes(data):
    document = parsed(data)
    assert document.data is not None or document.findings


@given(st.text(alphabet="ab:-[]{}?,&*!|>'\"#%@\n \t0.1e_<~", max_size=60))
def test_any_yaml_like_text(text):
    document = parsed(text)
    assert document.data is not None or document.findings
    assert all(each.line >= 1 and each.column >= 1 for each in document.findings)


@given(st.text(alphabet="0123456789abefoxn_+-.:EyYtTsSrRuUlLfF~ ", min_size=1, max_size=12))
def test_what_pyyaml_reads_as_another_type_is_refused_or_read_alike(text):
    try:
        theirs = yaml.safe_load(f"[{text}]")[0]
    except (yaml.YAMLError, ValueError, IndexError):
        return
    ours = parsed(f"a: [{text}]")
    if ours.findings or not isinstance(ours.data["a"], tuple) or isinstance(theirs, dict):
        return
    value = ours.data["a"][0]
    assert ours.ambiguous or (type(value) is type(theirs) and value == theirs)


@given(
    st.none() | st.booleans() | st.integers(-(2**63) + 1, 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
def test_spelling_is_read_back_by_us_and_by_pyyaml(value):
    assert resolve(spell(value)) == value
    assert yaml.safe_load(spell(value)) == value


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("on", (True,)),
        ("NO", (False,)),
        ("y", (True,)),
        ("1e5", (100000.0,)),
        ("1e-3", (0.001,)),
        ("1.0e3", (1000.0,)),
        ("-.5", (-0.5,)),
        ("0128", (128,)),
        ("0200", (200, 128)),
        ("007", (7,)),
        ("12:30", ()),
        ("0x80", (128,)),
        ("0o17", (15,)),
        ("1_024", (1024,)),
        ("2026-07-13", ()),
        (".inf", ()),
        (".NaN", ()),
        ("9" * 5000, ()),
        ("1.0e+999", ()),
        ("0x" + "f" * 5000, ()),
    ],
)
def test_ambiguous_scalars(text, meant):
    found = resolve(text)
    assert isinstance(found, Ambiguous)
    assert found.meant == meant


@given(st.from_regex(r"[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]{1,2}", fullmatch=True))
def test_the_spelling_to_use_instead_is_not_ambiguous(text):
    found = resolve(text)
    if isinstance(found, Ambiguous) and found.meant:
        (better,) = found.spelled
        assert resolve(better) == found.meant[0] == float(text)
        assert yaml.safe_load(better) == found.meant[0]


@pytest.mark.parametrize("text", ["4.0.0b36", "oN", "nO", "3%", "10m", "sm_90", "-", "+", ".", "..", "1:2:x", "=", "é"])
def test_plain_text_stays_text(text):
    assert resolve(text) == text


HOSTILE = {
    "numbers": "a: [" + "1," * 500_000,
    "keys": "a: {" + ",".join(f"k{number}: 1" for number in range(80_000)) + "}",
    "nested": "a: [" * 200_000,
    "aliases": "a: &x [1]\n" + "".join(f"b{number}: [*x, *x]\n" for number in range(40_000)),
    "strings": "''" * 500_000,
    "one string": "a: " + "x" * 1_000_000,
    "comments": "#\n" * 500_000,
    "unknown keys": "".join(f"famile{number}: 1\n" for number in range(20_000)),
    "wrong lengths": "family: blocks\nproblem: {num_heads_q: 1, head_dim: 64, seq_len: [" + "x, " * 20_000 + "]}",
    "unknown parameters": "family: blocks\nconfig: {forward: {" + "".join(f"k{n}: 1, " for n in range(20_000)) + "}}",
    "unknown search": "family: blocks\nsearch: {forward: {" + "".join(f"k{n}: 1, " for n in range(20_000)) + "}}",
    "wrong search": "family: blocks\nsearch: {forward: {block_q: [" + "x, " * 40_000 + "]}}",
    "yes": "family: blocks\nproblem: {num_heads_q: 1, head_dim: 64, seq_len: [" + "yes, " * 40_000 + "]}",
}

MEASURED = """
import json, re, sys
from pathlib import Path
from attnctl.profile.load import load
found = load(Path(sys.argv[1]))
# Not ru_maxrss: it starts at the size of the process that this one was forked from.
peak_kib = int(re.search(r"VmHWM:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])
print(json.dumps([len(found.findings), peak_kib / 1024]))
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_files_take_no_time_and_no_memory(tmp_path, name):
    path = tmp_path / "p.yaml"
    path.write_text(HOSTILE[name][:MAX_BYTES], encoding="utf-8")
    run = subprocess.run([sys.executable, "-c", MEASURED, path], capture_output=True, text=True, check=True, timeout=60)
    findings, megabytes = json.loads(run.stdout)
    assert 1 <= findings <= 101
    assert megabytes < 100


def test_what_stands_below_a_repeated_key_is_dropped_with_its_places():
    text = "family: fa4\nproblem:\n  seq_len: 4096\nproblem:\n  num_heads_q: 16\n  head_dim: !!int 3.10\n"
    document = parse(text.encode(), Document("p.yaml"))
    assert document.data == {"family": "fa4", "problem": {"seq_len": 4096}}
    assert ("problem", "num_heads_q") not in document.values
    assert document.written == {}
    assert [(each.code, each.line) for each in document.findings][:1] == [("YAML008", 4)]


@pytest.mark.parametrize(
    ("data", "place"),
    [
        (b"a: 1\r\nb: \xff\n", (2, 4)),
        (b"a: 1\rb: \xff\n", (2, 4)),
        ("ä: ".encode() + b"\xff\n", (1, 4)),
        (b"\xef\xbb\xbfa: \xff", (1, 4)),
    ],
)
def test_the_place_of_a_byte_that_is_no_text_counts_characters_and_all_line_ends(data, place):
    (finding,) = parse(data, Document("p.yaml")).findings
    assert (finding.line, finding.column) == place

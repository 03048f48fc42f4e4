"""Messages are found however they were printed, with their numbers; ordinary logs hold none."""

import random
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.rules.messages import find_messages, scan
from attnctl.rules.messages.advice import nearest_values, values_of
from attnctl.rules.messages.template import LITERAL_CHARS, TRUNCATED_CHARS, parse
from attnctl.rules.messages.window import squeeze
from attnctl.rules.registry import every_rule

LOGS = sorted((Path(__file__).parent / "logs").glob("*.log"))
ORDINARY = "".join(path.read_text(encoding="utf-8") for path in LOGS)
MESSAGES = sorted({(rule.code, text) for rule in every_rule() for text in rule.upstream})
S4 = "q_seq_len=1000 must be a multiple of config.block_q_dq=128 * compute_wgs=2"


def codes(matches):
    return [rule.code for match in matches for rule in match.rules]


def found(text):
    return find_messages([text])


def only(text):
    (match,) = found(text)
    return match


def rendered(text, values):
    """What a kernel prints: the message with its values, after what must have come before."""
    *witnesses, message = [part.strip() for part in text.split("…") if part.strip()]
    frames = "".join(f'  File "{each}.py", line 88, in forward\n    run(x)\n' for each in witnesses)
    for value in values:
        message = message.replace("{}", value, 1)
    return frames, message


@pytest.mark.parametrize(
    ("message", "code", "values"),
    [
        (
            "Block sparsity expects sparse_block_size_q=128 for subtile_factor=2.",
            "FA4-B002",
            {"sparse_block_size_q": "128", "subtile_factor": "2"},
        ),
        (
            "Block sparsity expects sparse_block_size_q=128 for q_subtile_factor=2.",
            "FA4-B002",
            {"sparse_block_size_q": "128", "q_subtile_factor": "2"},
        ),
        (
            "block-sparse arrays cover 7 m-tiles but the kernel iterates 8 (seq_len=1000)",
            "RFA4-001",
            {"seq_len": "1000"},
        ),
        ("Block sparse tensorsforward require BLOCK_SIZE_KV=128.", "SGL-001", {"BLOCK_SIZE_KV": "128"}),
        ("Need to specify backward blocks.", "PAL-B002", {}),
        (S4, "PAL-B003", {"q_seq_len": "1000", "config.block_q_dq": "128", "compute_wgs": "2"}),
        ("{q_seq_len=} must be a multiple of {config.block_q_dq=} * {compute_wgs=}", "PAL-B003", {}),
    ],
)
def test_the_messages_of_the_seed_cases(message, code, values):
    match = only(f"ValueError: {message}")
    assert codes([match]) == [code]
    assert {each.name: each.text for each in values_of(match) if each.name} == values
    assert match.complete


def test_every_message_has_enough_text_of_its_own():
    assert [text for _, text in MESSAGES if parse(text).weight < LITERAL_CHARS] == []


@pytest.mark.parametrize(("code", "text"), MESSAGES)
def test_every_message_is_found_with_its_numbers(code, text):
    numbers = [str(1000 + 37 * place) for place in range(text.count("{}"))]
    frames, message = rendered(text, numbers)
    matches = [
        match for match in found(f"{ORDINARY}{frames}RuntimeError: {message}\n{ORDINARY}") if code in codes([match])
    ]
    assert [(match.values, match.complete) for match in matches] == [(tuple(numbers), True)]
    assert matches[0].line == 1 + ORDINARY.count("\n") + frames.count("\n")
    assert message.split()[0] in matches[0].excerpt


@pytest.mark.parametrize("value", ["(4, 1000, 8, 128)", "torch.Size([1, 8, 8])", "[1, 8]", "forward"])
def test_a_value_that_begins_a_message_is_whole(value):
    (match,) = found(f"(Worker pid=139) NotImplementedError: {value}_block tensors must have dtype torch.int32\n")
    assert match.values == (squeeze(value),)


PREFIXES = [
    "",
    "E       ",
    "    | ",
    "[rank0]: ",
    "[rank12]:",
    "[default3]:",
    "3: ",
    "> ",
    "(Worker pid=139) ",
    "(RayTrainWorker pid=139, ip=node-1) ",
    "trainer-1  | ",
    "2025-01-02 03:04:05,678 ERROR ",
    "2025-01-02 03:04:05 - ERROR - ",
    "2025-01-02T03:04:05.678901234Z stderr F ",
    "[2025-01-02 03:04:05,678][ERROR] ",
    "ERROR 01-02 03:04:05 [core.py:139] ",
    "(EngineCore_0 pid=139) ERROR 01-02 03:04:05 [core.py:139] ",
    "E0102 03:04:05.678000 139 torch/elastic/agent.py:88] [rank0]: ",
    "[1,0]<stderr>:",
    "\x1b[31mERROR\x1b[0m:root:",
    "│ ",
]
NUMBERS = st.integers(0, 10**7).map(str)
VALUES = st.one_of(
    NUMBERS,
    st.sampled_from(
        ["(4, 1000, 8, 128)", "torch.Size([1, 8, 8])", "torch.float32", "float16", "forward", "None", "-1"]
    ),
)


@settings(max_examples=300, deadline=None)
@given(data=st.data())
def test_a_message_is_found_in_noise_in_every_dress(data):
    code, text = data.draw(st.sampled_from(MESSAGES))
    values = [data.draw(VALUES) for _ in range(text.count("{}"))]
    frames, message = rendered(text, values)
    message = f"NotImplementedError: {message}"
    prefix = data.draw(st.sampled_from(PREFIXES))
    width = data.draw(st.sampled_from([24, 60, 79, 1000]))
    pieces = [message[start : start + width] for start in range(0, len(message), width)]
    colour = data.draw(st.sampled_from(["", "\x1b[1;31m", "[31m", "^[[31m"]))
    ending = data.draw(st.sampled_from(["\n", "\r\n", "  \n", " │\n"]))
    log = "".join(f"{prefix}{colour}{piece}{ending}" for piece in [*frames.splitlines(), *pieces])
    matches = [match for match in found(f"{ORDINARY}{log}{prefix}done\n") if code in codes([match])]
    assert matches
    if width == 1000:  # a break may part a number from its end
        assert tuple(map(squeeze, values)) in [match.values for match in matches]


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.stem)
def test_ordinary_logs_hold_no_message(path):
    assert codes(found(path.read_text(encoding="utf-8"))) == []


@settings(max_examples=200, deadline=None)
@given(st.lists(st.characters(), max_size=2000).map("".join))
def test_random_text_holds_no_message(text):
    assert found(text) == []


@pytest.mark.parametrize(
    "text",
    [
        "none",
        "AssertionError",
        "{}",
        "xq_seq_len=1000 must be a multiple of config.block_q_dq=128 * compute_wgs=2",
        "head_dim=100 must be divisible by 640",
        "PARAM must be a multiple of 64",
        "Need to specify backward",
        "",
    ],
)
def test_what_only_looks_like_a_message_is_none(text):
    assert found(text) == []


def test_a_general_message_counts_near_its_module_only():
    error = "ZeroDivisionError: integer modulo by zero\n"
    frame = '  File "jax/experimental/pallas/ops/gpu/attention_mgpu.py", line 371, in _mha_backward\n'
    assert codes(found(frame + error)) == ["PAL-C005"]
    assert found(error) == found(error + frame) == []
    assert found(frame + "x" * 2000 + "\n" + error) == []


@pytest.mark.parametrize("end", ["", "\n", "...", "…", " [truncated]", "\nTraceback (most recent call last):\n"])
def test_a_message_that_breaks_off_is_found_by_its_beginning(end):
    match = only(f"ValueError: q_seq_len=1000 must be a multiple of config.block_q_dq=12{end}")
    assert codes([match]) == ["PAL-B003"]
    assert not match.complete
    assert match.values == ("1000",)  # 12 may be the beginning of 128


def test_a_beginning_that_several_messages_share_names_them_all():
    matches = found("ValueError: q_seq_len=1000 must be a multiple of config.block_q_d")
    assert codes(matches) == ["PAL-B003", "PAL-B005"]
    assert found("ValueError: q_seq_len=1000 must be a ") == []


def test_another_message_with_the_same_beginning_is_not_a_broken_one():
    assert found("Block sparsity requires sparse_block_size[1] to be what the mask says.\n") == []


@settings(max_examples=100, deadline=None)
@given(data=st.data())
def test_every_message_may_break_off(data):
    _, text = data.draw(st.sampled_from([each for each in MESSAGES if parse(each[1]).weight > 2 * TRUNCATED_CHARS]))
    frames, message = rendered(text, ["128"] * text.count("{}"))
    end = data.draw(st.integers(len(message) // 2, len(message) - 1))
    literal = sum(not char.isspace() and not char.isdigit() for char in message[:end])
    if literal >= TRUNCATED_CHARS + 8:
        matches = found(f"{frames}{message[:end]}\n")
        # What is left may be the whole of another message.
        assert text in [match.message for match in matches] or any(match.complete for match in matches)


def test_the_longest_message_wins_where_one_holds_another():
    assert codes(found("Block sparsity requires sparse_block_size[1]=64 to match tile_n=128.")) == ["FA4-S009"]
    assert codes(found("Block sparsity requires sparse_block_size[1]=64 to match tile_n.")) == ["SGL-001"]


def test_families_with_the_same_message_are_all_named():
    match = only("Block sparse tensors (forward) have block size 128, which must be a multiple of 256.")
    assert codes([match]) == ["FA4-S007", "FA4-S012", "SGL-002", "SGL-003"]


def test_the_source_lines_of_a_traceback_are_not_the_message():
    log = """\
    def _mha_backward(q, config):
        if config is None:
            raise ValueError("Need to specify backward blocks.")
        if q_seq_len % (config.block_q_dq * compute_wgs):
            raise NotImplementedError(
>               f"{q_seq_len=} must be a multiple of {config.block_q_dq=} * {compute_wgs=}")
E           NotImplementedError: q_seq_len=1000 must be a multiple of config.block_q_dq=128 * compute_wgs=2
"""
    match = only(log)
    assert (codes([match]), match.line, match.values) == (["PAL-B003"], 7, ("1000", "128", "2"))
    source = log.splitlines()[2]
    assert codes(found(source)) == ["PAL-B002"]  # better than nothing


def test_json_logs_and_reprs():
    line = '{"level": "error", "exc": "Traceback:\\n  File \\"a.py\\"\\nNotImplementedError: ' + S4 + '\\n"}'
    assert only(line).values == ("1000", "128", "2")


def test_equal_messages_are_counted_and_others_kept_apart():
    log = "".join(f"[rank{rank}]: {S4}\n" for rank in range(64)) + S4.replace("1000", "2000")
    first, second = found(log)
    assert (first.occurrences, first.line, first.values[0]) == (64, 1, "1000")
    assert (second.occurrences, second.line, second.values[0]) == (1, 65, "2000")


def test_a_message_with_ever_other_numbers_does_not_fill_memory():
    log = (S4.replace("1000", str(number)) + "\n" for number in range(1000, 3000))
    assert len(find_messages(log)) == scan.PER_MESSAGE


def test_the_most_telling_comes_first():
    log = f"Need to specify backward blocks.\nq_seq_len=1000 must be a multiple of config.blo\n{S4}\n"
    assert codes(found(log)) == ["PAL-B003", "PAL-B002", "PAL-B003", "PAL-B005"]


def test_pieces_do_not_matter(monkeypatch):
    draw = random.Random(1)
    lines = ORDINARY.splitlines(keepends=True)
    parts = []
    for _ in range(300):
        parts += draw.choices(lines, k=8)
        code, text = draw.choice(MESSAGES)
        frames, message = rendered(text, [str(draw.randrange(2000)) for _ in range(text.count("{}"))])
        parts.append(f"{frames}{code}: {message}\n")
    log = "".join(parts)
    whole = found(log)
    assert len(whole) > 100
    monkeypatch.setattr(scan, "PIECE", 40_000)
    for size in (40_000, 1 << 13, 977):
        assert find_messages(log[start : start + size] for start in range(0, len(log), size)) == whole


def test_one_very_long_line(monkeypatch):
    monkeypatch.setattr(scan, "PIECE", 40_000)
    log = ("x" * 50_000 + " " + S4 + " ") * 5
    (match,) = find_messages(log[start : start + 5_000] for start in range(0, len(log), 5_000))
    assert (match.occurrences, match.line, match.values) == (5, 1, ("1000", "128", "2"))
    assert len(match.excerpt) < 600
    assert S4 in match.excerpt


BROKEN = ["\n", "\r", "\x1b[", "\x1b]8;;", "{", "}", "\\n", "…", "...", " ", "0" * 200, "\0", "\ud800", "[1m", "\u2028"]
BEGINNINGS = sorted({text.partition("{}")[0] for _, text in MESSAGES})
FRAGMENTS = st.sampled_from([*BEGINNINGS, *PREFIXES, *BROKEN, S4])


@settings(max_examples=500, deadline=None)
@given(st.lists(FRAGMENTS | st.text(max_size=3), max_size=60))
def test_no_text_is_too_broken(parts):
    for match in found("".join(parts)):
        assert match.rules
        assert match.line >= 1
        assert len(match.values) <= len(match.names)
        nearest_values(match)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (S4, "1000 -> 768 or 1024 (multiples of 128 * 2 = 256)"),
        (S4.replace("128", "64"), "1000 -> 896 or 1024 (multiples of 64 * 2 = 128)"),
        (S4.replace("1000", "1024"), ""),  # fits: nothing to say
        (S4.replace("compute_wgs=2", "compute_wgs=0"), ""),
        ("self.block_q=96 must be a multiple of 64", "96 -> 64 or 128 (multiples of 64)"),
        ("q_seq_len=1000 must be a multiple of block_q * 2=256", "1000 -> 768 or 1024 (multiples of 256)"),
        ("head_dim=100 must be divisible by 64", "100 -> 64 or 128 (multiples of 64)"),
        ("head_dim=32 must be divisible by 64", "32 -> 64 (multiples of 64)"),
        ("num_q_heads=12 must be divisible by and num_kv_heads=5", "12 -> 10 or 15 (multiples of 5)"),
        (
            "Block sparsity requires sparse_block_size[0] to be a multiple of tile_m=128; got 192.",
            "192 -> 128 or 256 (multiples of 128)",
        ),
        (
            "Block sparse tensors have block size 128, which must be a multiple of 256.",
            "128 -> 256 (multiples of 256)",
        ),
        (
            "Block sparse tensors require BLOCK_SIZE_KV to be a multiple of 128.",
            "the multiples of 128 are 128, 256, 384, ...",
        ),
        ("Tile dimensions must be multiples of 16, got (120, 128)", "120 -> 112 or 128 (multiples of 16)"),
        ("Block sparsity requires sparse_block_size[1]=64 to match tile_n=128.", ""),
    ],
)
def test_numbers_that_would_work(message, expected):
    assert nearest_values(only(message)) == expected


def test_values_are_named_as_in_a_profile():
    assert [(each.name, each.number, each.field) for each in values_of(only(S4))] == [
        ("q_seq_len", 1000, "problem.seqlen_q"),
        ("config.block_q_dq", 128, "config.block_q_dq"),
        ("compute_wgs", 2, "config.compute_wgs_bwd"),
    ]

"""`attnctl show`: pictures, counts and the resource table."""

import json
from xml.etree import ElementTree as ET

import pytest
from cli_profiles import GOOD, S4, WARNS

from attnctl.report._mask.blocks import Kind
from attnctl.report._mask.drawing import COLOURS

SMALL = """\
family: ranker_fa3
arch: sm_90
passes: [forward, backward]
problem: {seq_len: 512, num_heads_q: 8, head_dim: 128}
mask: {pattern: history_candidate, history_len: 256}
config: {block_q: 64, block_kv: 128, max_concurrent_steps: 2, compute_wgs_bwd: 1,
         block_q_dkv: 128, block_kv_dkv: 64, block_q_dq: 64, block_kv_dq: 64}
"""


def coloured(attnctl, name, **variables):
    return attnctl("show", name, "--pass", "forward", **{"TERM": "xterm", **variables}).stdout


def test_a_small_mask_is_drawn_block_by_block(attnctl, write):
    done = attnctl("show", write("small.yaml", SMALL), "--pass", "forward", COLUMNS="200")
    assert (done.returncode, done.stderr) == (0, "")
    heading, config = done.stdout.splitlines()[:2]
    assert heading == "ranker_fa3 on sm_90, forward: history_candidate-b1-s512-h8-d128-bfloat16"
    assert config.startswith("  config: block_q=64 block_kv=128 max_concurrent_steps=2 ")
    rows = [line.strip() for line in done.stdout.splitlines()[2:10]]
    assert rows == ["████····"] * 4 + ["████▚▚··"] * 2 + ["████··▚▚"] * 2
    assert "  █ full  ▚ diagonal  · empty\n" in done.stdout
    assert "  queries down, keys across; a cell is 1 block, 64 queries x 128 keys\n" in done.stdout
    counts = "16 full, 4 partial (4 on the diagonal), 12 empty"
    assert f"  blocks      32 of 64 x 128 (queries x keys): {counts}\n" in done.stdout
    assert "  balance     2 to 3 blocks per block of queries, 2.5 on average\n" in done.stdout
    assert "  density     62.5% of the blocks, 50.1% of the pairs\n" in done.stdout
    assert "  operations  537.9 MFLOP needed, 671.1 MFLOP executed: 19.8% wasted on partial blocks\n" in done.stdout


DECODE = """\
family: blocks
problem: {batch_size: 1, seqlen_q: 1, seqlen_k: 100, num_heads_q: 1, head_dim: 16, dtype: float32}
mask: {pattern: causal}
config:
  forward: {block_q: 16, block_kv: 64}
"""


@pytest.mark.parametrize("width", [40, 80, 120])
def test_nothing_is_wider_than_the_terminal(attnctl, write, width):
    done = attnctl("show", write("small.yaml", SMALL), COLUMNS=str(width))
    assert max(len(line) for line in done.stdout.splitlines() if not line.startswith("ranker_fa3 on ")) <= width
    assert "12 empty" in " ".join(done.stdout.split())


def test_one_query_is_one_row_of_blocks_and_wastes_behind_its_end(attnctl, write):
    done = attnctl("show", write("decode.yaml", DECODE), COLUMNS="100")
    assert "a cell is 1 block, 16 queries x 64 keys\n" in done.stdout
    assert "6.4 kFLOP needed, 131.1 kFLOP executed: 95.1% wasted on what is behind the ends\n" in done.stdout


def test_a_kernel_that_chooses_by_itself_is_said_to(attnctl, write):
    flex = DECODE.split("config:", maxsplit=1)[0].replace("blocks", "flex").replace("seqlen_q: 1,", "seqlen_q: 100,")
    done = attnctl("show", write("flex.yaml", flex))
    assert "  config: what the kernel chooses by itself\n" in done.stdout


def test_the_resource_table_has_used_limit_and_headroom(attnctl, write):
    table = attnctl("show", write("small.yaml", SMALL), "--pass", "forward").stdout.splitlines()[-3:]
    assert table == [
        "  resource                                 used    limit  headroom",
        "  shared memory, forward kernel         167,024  232,448    65,424  bytes",
        "  registers per thread, forward kernel      160      232        72  registers",
    ]


def test_every_problem_and_pass_has_a_section(attnctl, write):
    name = write("two.yaml", SMALL.replace("seq_len: 512", "seq_len: [512, 1024]"))
    headings = [line for line in attnctl("show", name).stdout.splitlines() if line.startswith("ranker_fa3")]
    assert [heading.split(",")[1].split(":")[0].strip() for heading in headings] == ["forward", "backward"] * 2
    assert [("-s512-" in heading, "-s1024-" in heading) for heading in headings] == [(True, False)] * 2 + [
        (False, True)
    ] * 2


def test_a_long_sequence_is_scaled_down_to_the_terminal(attnctl, write):
    name = write("long.yaml", GOOD.replace("1024", "32768").replace("896", "24576"))
    for width in (24, 60, 200):
        done = attnctl("show", name, COLUMNS=str(width))
        assert done.returncode == 0
        picture = [line for line in done.stdout.splitlines() if set(line.strip()) <= set("█▒▚·") and line.strip()]
        assert len(picture) <= 32
        assert len(picture[0]) <= width
        assert 0.8 <= (len(picture[0]) - 2) / (2 * len(picture)) <= 1.25  # a square mask looks like one


def test_json_has_the_same_facts(attnctl, write):
    done = attnctl("show", write("small.yaml", SMALL), "--pass", "forward", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert (document["version"], document["profile"]) == (1, "small.yaml")
    (found,) = document["problems"]
    assert found["pass"] == "forward"
    assert found["block"] == [64, 128]
    assert found["blocks"] == {"full": 16, "partial": 4, "empty": 12, "diagonal": 4}
    assert found["per_row"] == {"fewest": 2, "most": 3, "mean": 2.5}
    assert found["flop"]["needed"] == (512 * 256 + 256) * 4 * 128 * 8
    assert found["resources"][0]["headroom"] == 65424


def test_a_terminal_without_block_characters_gets_ascii(process, write):
    done = process("show", write("small.yaml", SMALL), "--pass", "forward", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert "  ####...." in done.stdout.splitlines()


def test_colours_are_for_terminals_that_want_them(attnctl, write, monkeypatch):
    name = write("small.yaml", SMALL)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    assert "\x1b[34m████\x1b[0m" in coloured(attnctl, name)
    assert "\x1b" not in coloured(attnctl, name, NO_COLOR="1")
    assert "\x1b" not in coloured(attnctl, name, NO_COLOR="", TERM="dumb")


def test_a_narrow_terminal_gets_the_resources_below_each_other(attnctl, write):
    lines = attnctl("show", write("small.yaml", SMALL), "--pass", "forward", COLUMNS="40").stdout.splitlines()
    assert lines[-3:] == ["  registers per thread, forward kernel", "    160 of 232 registers", "    72 left"]


def test_waves_count_the_thread_blocks_of_the_launch(attnctl, write):
    text = """\
family: fa4
arch: sm_90
problem: {batch_size: 2, seq_len: 8192, num_heads_q: 16, head_dim: 128, dtype: bfloat16}
mask: {pattern: causal}
config: {forward: {tile_m: 128, tile_n: 128}}
"""
    done = attnctl("show", write("waves.yaml", text), COLUMNS="120")
    line = "  waves       15.5: 2,048 thread blocks on 132 SMs, one on each; the last wave fills 52%\n"
    assert line in done.stdout


def test_svg_holds_the_picture_and_stands_alone(attnctl, write, tmp_path):
    done = attnctl("show", write("small.yaml", SMALL), "--svg", "out/mask.svg")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "written: out/mask.svg\n")
    root = ET.fromstring((tmp_path / "out/mask.svg").read_text(encoding="utf-8"))
    svg = "{http://www.w3.org/2000/svg}"
    boxes = [each.find(f"{svg}title").text for each in root.iter(f"{svg}rect") if each.find(f"{svg}title") is not None]
    assert boxes[:2] == ["full: queries from 0, keys from 0", "empty: queries from 0, keys from 256"]
    assert sum(each.startswith("diagonal") for each in boxes) == 8  # of both passes
    assert "href" not in (tmp_path / "out/mask.svg").read_text(encoding="utf-8")
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["mask.svg"]


def test_png_has_the_colours_of_the_blocks(attnctl, write, tmp_path):
    image = pytest.importorskip("PIL.Image")
    done = attnctl("show", write("small.yaml", SMALL), "--pass", "forward", "--png", "mask.png", "--json")
    assert (done.returncode, json.loads(done.stdout)["version"]) == (0, 1)
    with image.open(tmp_path / "mask.png") as picture:
        colours = {f"#{red:02x}{green:02x}{blue:02x}" for _, (red, green, blue) in picture.getcolors(1 << 24)}
    assert {COLOURS[Kind.FULL], COLOURS[Kind.DIAGONAL], COLOURS[Kind.EMPTY]} <= colours
    assert COLOURS[Kind.PARTIAL] not in colours


def test_png_without_pillow_says_what_to_install(process, write):
    blocked = "import sys; sys.modules['PIL'] = None"
    done = process("show", write("small.yaml", SMALL), "--png", "mask.png", before=blocked)
    assert (done.returncode, done.stderr) == (
        4,
        "error: Pillow is not installed\nhint: pip install 'attnctl[report]'\n",
    )


def test_a_file_that_cannot_be_written_is_no_traceback(attnctl, write):
    done = attnctl("show", write("small.yaml", SMALL), "--svg", "small.yaml/mask.svg")
    assert done.returncode == 2
    assert done.stderr.startswith("error: small.yaml: cannot be written: ")


def test_an_invalid_profile_gives_its_findings(attnctl, write):
    name = write("s4.yaml", S4)
    shown, validated = attnctl("show", name), attnctl("validate", name)
    assert (shown.returncode, shown.stdout, shown.stderr) == (1, validated.stdout, "")


def test_warnings_do_not_stop_the_picture(attnctl, write):
    done = attnctl("show", write("warns.yaml", WARNS))
    assert done.returncode == 0
    assert "warning PAL-H003" in done.stderr
    assert done.stdout.startswith("ranker_fa3 on sm_90, forward")


def test_a_pass_that_the_profile_does_not_have_is_wrong_usage(attnctl, write):
    done = attnctl("show", write("good.yaml", GOOD), "--pass", "backward")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "error: good.yaml: no backward pass\nhint: passes of this profile: forward\n"


def test_a_missing_file_is_wrong_usage(attnctl):
    done = attnctl("show", "gone.yaml")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: gone.yaml: ")


def test_too_many_blocks_are_refused_before_they_are_counted(attnctl, write):
    done = attnctl("show", write("good.yaml", GOOD), "--seq-len", "1280000000")
    assert (done.returncode, done.stdout) == (2, "")
    assert "are more than the 268435456 that show counts" in done.stderr
    assert "--seq-len" in done.stderr

"""`attnctl show`: pictures, counts and the resource table."""

import json

from cli_profiles import GOOD, S4, WARNS

SMALL = """\
family: ranker_fa3
arch: sm_90
passes: [forward, backward]
problem: {seq_len: 512, num_heads_q: 8, head_dim: 128}
mask: {pattern: history_candidate, history_len: 256}
config: {block_q: 64, block_kv: 128, max_concurrent_steps: 2, compute_wgs_bwd: 1,
         block_q_dkv: 128, block_kv_dkv: 64, block_q_dq: 64, block_kv_dq: 64}
"""


def test_a_small_mask_is_drawn_block_by_block(attnctl, write):
    done = attnctl("show", write("small.yaml", SMALL), "--pass", "forward")
    assert (done.returncode, done.stderr) == (0, "")
    heading, config = done.stdout.splitlines()[:2]
    assert heading == "ranker_fa3 on sm_90, forward: history_candidate-b1-s512-h8-d128-bfloat16"
    assert config.startswith("  config: block_q=64 block_kv=128 max_concurrent_steps=2 ")
    rows = [line.strip() for line in done.stdout.splitlines()[2:10]]
    assert rows == ["████····"] * 4 + ["████▒▒··"] * 2 + ["████··▒▒"] * 2
    assert "  █ full  ▒ partial  · empty; a cell is 1 x 1 blocks\n" in done.stdout
    assert "  blocks      32 of 64 x 128 (queries x keys): 16 full, 4 partial, 12 empty\n" in done.stdout
    assert "  density     62.5% of the blocks, 50.1% of the pairs\n" in done.stdout
    assert "  operations  537.9 MFLOP needed, 671.1 MFLOP executed: 19.8% wasted\n" in done.stdout


def test_the_resource_table_has_used_limit_and_headroom(attnctl, write):
    table = attnctl("show", write("small.yaml", SMALL), "--pass", "forward").stdout.splitlines()[-3:]
    assert table == [
        "  resource                                 used    limit  headroom",
        "  shared memory, forward kernel         164,440  232,448    68,008  bytes",
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
        picture = [line for line in done.stdout.splitlines() if set(line.strip()) <= set("█▒·") and line.strip()]
        assert 16 <= len(picture) <= 32
        assert max(map(len, picture)) <= width


def test_json_has_the_same_facts(attnctl, write):
    done = attnctl("show", write("small.yaml", SMALL), "--pass", "forward", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    document = json.loads(done.stdout)
    assert (document["version"], document["profile"]) == (1, "small.yaml")
    (found,) = document["problems"]
    assert found["pass"] == "forward"
    assert found["block"] == [64, 128]
    assert found["blocks"] == {"full": 16, "partial": 4, "empty": 12}
    assert found["flop"]["needed"] == (512 * 256 + 256) * 4 * 128 * 8
    assert found["resources"][0]["headroom"] == 68008


def test_a_terminal_without_block_characters_gets_ascii(process, write):
    done = process("show", write("small.yaml", SMALL), "--pass", "forward", PYTHONIOENCODING="ascii")
    assert done.returncode == 0
    assert done.stdout.splitlines()[2] == "  ####...."


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

"""Lengths make problems, passes make tasks, and cases carry the kernel's defaults."""

import pytest

from attnctl.profile.load import load
from attnctl.profile.problems import cases, problems, tasks


@pytest.fixture
def profile(tmp_path):
    def write(problem, rest="", family="blocks"):
        path = tmp_path / "p.yaml"
        path.write_text(f"family: {family}\nproblem: {{{problem}, num_heads_q: 4, head_dim: 64}}\n{rest}")
        result = load(path)
        assert result.findings == ()
        return result.profile

    return write


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [
        ("seq_len: 64", [(64, 64)]),
        ("seq_len: [64, 128]", [(64, 64), (128, 128)]),
        ("seqlen_q: 64", [(64, 64)]),
        ("seqlen_q: 1, seqlen_k: [64, 128]", [(1, 64), (1, 128)]),
        ("seqlen_q: [1, 2], seqlen_k: 64", [(1, 64), (2, 64)]),
        ("seqlen_q: [1, 2], seqlen_k: [64, 128]", [(1, 64), (2, 128)]),
    ],
)
def test_lengths(profile, lengths, expected):
    assert [(each.seqlen_q, each.seqlen_k) for each in problems(profile(lengths))] == expected


def test_lengths_of_the_command_line_replace_all(profile):
    found = problems(profile("seqlen_q: [1, 2], seqlen_k: [64, 128]"), (32, 48))
    assert [(each.seqlen_q, each.seqlen_k) for each in found] == [(32, 32), (48, 48)]


def test_defaults_of_a_problem(profile):
    (problem,) = problems(profile("seq_len: 64"))
    assert (problem.num_heads_kv, problem.head_dim_v, problem.dtype, problem.batch_size) == (4, 64, "bfloat16", 1)
    assert problem.mask.pattern == "dense"


def test_tasks_are_problems_by_passes_and_name_their_version(profile):
    found = tasks(profile("seq_len: [64, 128]", "passes: [forward, backward]\n"))
    assert [(each.problem.seqlen_q, each.pass_name, each.version) for each in found] == [
        (64, "forward", "1"),
        (64, "backward", "1"),
        (128, "forward", "1"),
        (128, "backward", "1"),
    ]


def test_cases_complete_the_config_and_know_what_was_given(profile):
    rest = "passes: [forward, backward]\nconfig:\n  forward: {block_q: 16, block_kv: null}\n"
    forward, backward = cases(profile("seq_len: 1024", rest))
    assert forward.config == {"block_q": 16, "block_kv": 64}
    assert forward.given == {"block_q"}
    assert backward.config == {"block_q": 64, "block_kv": 64}
    assert backward.given == frozenset()
    assert forward.configs == backward.configs == {"forward": forward.config, "backward": backward.config}
    assert forward.sparse_block == (16, 64), "the family's own"
    assert forward.sparse_blocks == {"forward": (16, 64), "backward": (64, 64)}


def test_a_sparse_block_of_the_profile_wins(profile):
    rest = "passes: [forward, backward]\nsparse_block: {backward: [128, 64]}\n"
    forward, backward = cases(profile("seq_len: 1024", rest))
    assert (forward.sparse_block, backward.sparse_block) == ((64, 64), (128, 64))


def test_flat_configs_serve_all_passes(profile):
    rest = "arch: sm_90\npasses: [forward, backward]\nconfig: {attn_logit_cap: 30.0}\nlayout: {num_blocks: 8}\n"
    found = list(cases(profile("seq_len: 1024", rest, family="ranker_fa4")))
    assert [each.config["attn_logit_cap"] for each in found] == [30.0, 30.0]
    assert found[0].layout.num_blocks == 8

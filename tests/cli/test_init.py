"""What `init` writes is valid, and it overwrites nothing."""

import os
import pty
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnctl.cli.app import run
from attnctl.profile.initial import PATTERNS, Wishes, compose
from attnctl.profile.load import load
from attnctl.profile.problems import tasks
from attnctl.rules.check import check_profile
from attnctl_kernels.families import family_names, get_family

BUILT_IN = [name for name in family_names() if type(get_family(name)).__module__.startswith("attnctl_kernels.")]


@pytest.mark.parametrize("family", BUILT_IN)
def test_every_family_has_a_first_profile_without_findings(attnctl, tmp_path, family):
    done = attnctl("init", "p.yaml", "--yes", "--family", family)
    assert (done.returncode, done.stdout) == (0, "")
    assert check_profile(tmp_path / "p.yaml").findings == ()
    assert attnctl("validate", "--strict", "p.yaml").returncode == 0


WISHES = st.builds(
    Wishes,
    family=st.sampled_from(BUILT_IN),
    passes=st.sampled_from([("forward",), ("forward", "backward"), ("backward",)]),
    batch_size=st.one_of(st.none(), st.integers(1, 9)),
    seq_lens=st.lists(st.sampled_from([1, 7, 128, 1000, 1024, 8192]), max_size=2, unique=True).map(tuple),
    num_heads_q=st.one_of(st.none(), st.sampled_from([1, 6, 8, 16])),
    num_heads_kv=st.one_of(st.none(), st.sampled_from([1, 2, 5])),
    head_dim=st.one_of(st.none(), st.sampled_from([16, 64, 72, 128, 256])),
    dtype=st.one_of(st.none(), st.sampled_from(["bfloat16", "float16", "float32"])),
    mask=st.one_of(st.none(), st.sampled_from([*PATTERNS, "sliding_window:window=100", "document:causal=true"])),
)


@settings(max_examples=20, deadline=None)
@given(WISHES)
def test_what_is_written_is_valid_and_says_what_was_asked(tmp_path_factory, wishes):
    path = tmp_path_factory.mktemp("init") / "p.yaml"
    args = ["init", str(path), "--yes", "--family", wishes.family]
    args += [word for name in wishes.passes for word in ("--pass", name)]
    args += [word for length in wishes.seq_lens for word in ("--seq-len", str(length))]
    for option in ("batch_size", "head_dim", "dtype", "mask"):
        value = getattr(wishes, option)
        args += [] if value is None else [f"--{option.replace('_', '-')}", str(value)]
    args += [] if wishes.num_heads_q is None else ["--heads", str(wishes.num_heads_q)]
    args += [] if wishes.num_heads_kv is None else ["--kv-heads", str(wishes.num_heads_kv)]
    code = run(args)
    assert path.exists() == (code == 0)
    if code:
        assert code == 1
        assert compose(wishes).report.errors
        return
    assert check_profile(path).errors == 0
    assert path.read_text() == compose(wishes).text
    asked = tasks(load(path).profile)
    assert {each.pass_name for each in asked} == set(wishes.passes)
    assert not wishes.seq_lens or {each.problem.seqlen_q for each in asked} == set(wishes.seq_lens)
    assert wishes.head_dim in (None, asked[0].problem.head_dim)


def test_nothing_is_overwritten(attnctl, tmp_path):
    (tmp_path / "p.yaml").write_text("mine")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "nowhere")
    for name in ("p.yaml", "link.yaml"):
        done = attnctl("init", name, "--yes")
        assert done.returncode == 2
        assert done.stderr.splitlines()[0] == f"error: {name}: is there already, and is not overwritten"
    assert (tmp_path / "p.yaml").read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link.yaml", "p.yaml"]


def test_what_cannot_be_valid_is_explained_and_not_written(attnctl, tmp_path):
    done = attnctl("init", "p.yaml", "--yes", "--family", "fa4", "--head-dim", "100000")
    assert done.returncode == 1
    assert done.stderr.startswith("p.yaml:")
    assert "nothing was written" in done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--family", "fa5"], "--family fa5: no such family"),
        (["--mask", "diagonal"], "--mask diagonal: no such pattern"),
        (["--mask", "sliding_window:size=3"], "'size=3' is no fact of sliding_window"),
        (["--mask", "causal:window=3"], "'window=3' is no fact of causal"),
    ],
)
def test_wrong_words(attnctl, args, message):
    done = attnctl("init", "p.yaml", "--yes", *args)
    assert done.returncode == 2
    assert message in done.stderr


def test_answers_at_a_terminal(tmp_path, environment):
    ours, theirs = pty.openpty()
    program = "from attnctl.__main__ import main; main()"
    command = [sys.executable, "-c", program, "init", "p.yaml"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=environment, stdin=theirs, stdout=subprocess.PIPE, stderr=theirs
    )
    os.close(theirs)
    os.write(ours, b"fa4\n2048\n8\n64\nprefix_lm:prefix_len=100\n")
    out, _ = process.communicate(timeout=60)
    os.close(ours)
    assert (process.returncode, out.strip()) == (0, b"")
    (task,) = tasks(load(tmp_path / "p.yaml").profile)
    problem = task.problem
    assert (task.family, problem.seqlen_q, problem.num_heads_q, problem.head_dim) == ("fa4", 2048, 8, 64)
    assert problem.mask.prefix_len == 100

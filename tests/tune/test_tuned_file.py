"""The tuned profile on disk: merged, atomic, never lost."""

import multiprocessing
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from sweeps import file_size_limit

from attnctl.errors import AttnctlError
from attnctl.gpu.names import device_slug
from attnctl.profile.tuned import Entry, entry_key, read, store, tuned_path, unknown_fields
from attnctl_kernels.contract import Mask, Problem, Task


def problem(seqlen=1024, **changes):
    facts = {
        "batch_size": 1,
        "seqlen_q": seqlen,
        "seqlen_k": seqlen,
        "num_heads_q": 4,
        "num_heads_kv": 4,
        "head_dim": 64,
        "head_dim_v": 64,
        "dtype": "float32",
        "mask": Mask(pattern="causal"),
    }
    return Problem(**{**facts, **changes})


def task(seqlen=1024, family="blocks", version="1", arch=None, pass_name="forward", **changes):
    return Task(family=family, version=version, arch=arch, pass_name=pass_name, problem=problem(seqlen, **changes))


def entry(seqlen=1024, median_us=100.0, **changes):
    this = task(seqlen)
    facts = {
        "family": this.family,
        "version": this.version,
        "arch": this.arch,
        "pass": this.pass_name,
        "problem": this.problem,
        "config": {"block_q": 64, "block_kv": 128},
        "sparse_block": (64, 128),
        "latency": {"median_us": median_us, "p20_us": 99.0, "p80_us": 101.0, "samples": 30, "cache": "cold"},
        "against_default": {"ratio": 0.9, "low": 0.89, "high": 0.91, "verdict": "better"},
        "against_incumbent": None,
        "error": {"out": 1e-7},
        "num_sms": None,
        "versions": {"torch": "2.13.0"},
        "fingerprints": {"problem": entry_key(this, None), "rules": "0" * 64},
    }
    return Entry.model_validate({**facts, **changes})


def test_what_is_stored_is_what_is_read(tmp_path):
    path = tmp_path / "cpu" / "p.yaml"
    wanted = entry()
    store(path, "cpu", [wanted])
    assert read(path) == {wanted.fingerprints.problem: wanted}


def test_entries_are_merged_and_their_order_does_not_depend_on_history(tmp_path):
    first, second = tmp_path / "first.yaml", tmp_path / "second.yaml"
    store(first, "cpu", [entry(256)])
    store(first, "cpu", [entry(512)])
    store(second, "cpu", [entry(512)])
    store(second, "cpu", [entry(256)])
    assert first.read_bytes() == second.read_bytes()
    assert len(read(first)) == 2


def test_an_unchanged_result_does_not_touch_the_file(tmp_path):
    path = tmp_path / "p.yaml"
    store(path, "cpu", [entry()])
    before = path.stat()
    store(path, "cpu", [entry()])
    after = path.stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)


def test_small_and_odd_numbers_reload_as_numbers(tmp_path):
    path = tmp_path / "p.yaml"
    store(path, "cpu", [entry(error={"out": 1e-06, "lse": 1e22}, versions={"triton": "3.10"})])
    (found,) = read(path).values()
    assert found.error == {"out": 1e-06, "lse": 1e22}
    assert found.versions == {"triton": "3.10"}


def test_unknown_fields_are_kept_at_every_level(tmp_path):
    path = tmp_path / "p.yaml"
    store(path, "cpu", [entry(256), entry(512)])
    content = yaml.safe_load(path.read_text())
    content["reviewed_by"] = "someone"
    for raw in content["entries"]:
        raw["note"] = "kept"
    path.write_text(yaml.safe_dump(content))
    store(path, "cpu", [entry(512, median_us=50.0)])
    rewritten = yaml.safe_load(path.read_text())
    assert rewritten["reviewed_by"] == "someone"
    assert [raw["note"] for raw in rewritten["entries"]] == ["kept", "kept"]
    assert {each.latency.median_us for each in read(path).values()} == {50.0, 100.0}
    assert {unknown_fields(each) for each in read(path).values()} == {("note",)}


DAMAGED = {
    "truncated": lambda text: text[: len(text) // 2],
    "empty": lambda text: "",
    "list": lambda text: "- 1\n",
    "newer": lambda text: text.replace("schema: 1", "schema: 2"),
    "binary": lambda text: "\x00\x01",
    "no_date": lambda text: text + "reviewed: 2026-99-99\n",
    "deep": lambda text: text + "deep: " + "[" * 100_000 + "\n",
    "no_key": lambda text: text.replace("fingerprints:", "prints:"),
}


@pytest.mark.parametrize("damage", DAMAGED)
def test_a_damaged_file_is_named_and_left_alone(tmp_path, damage):
    path = tmp_path / "p.yaml"
    store(path, "cpu", [entry(256), entry(512)])
    path.write_text(DAMAGED[damage](path.read_text()))
    before = path.read_bytes()
    with pytest.raises(AttnctlError) as caught:
        store(path, "cpu", [entry()])
    assert caught.value.message.startswith(f"{path}: is not a tuned profile that can be read: ")
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["p.yaml"]


def write_many(path, numbers, barrier):
    barrier.wait()
    for number in numbers:
        store(path, "cpu", [entry(number)])


def test_concurrent_writers_lose_nothing(tmp_path):
    context = multiprocessing.get_context("fork")
    for attempt, count in enumerate((10, 10, 10)):
        path = tmp_path / str(attempt) / "p.yaml"
        barrier = context.Barrier(4)
        shares = [range(1 + count * each, 1 + count * (each + 1)) for each in range(4)]
        writers = [context.Process(target=write_many, args=(path, share, barrier)) for share in shares]
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        assert [writer.exitcode for writer in writers] == [0] * 4
        assert {each.problem.seqlen_q for each in read(path).values()} == set(range(1, 4 * count + 1))
        assert not list(path.parent.glob("*.tmp"))


def write_until_killed(path):
    number = 0
    while True:
        number += 1
        store(path, "cpu", [entry(median_us=float(number))])


def test_a_writer_killed_at_any_point_leaves_a_whole_file(tmp_path):
    path = tmp_path / "p.yaml"
    store(path, "cpu", [entry(256), entry(median_us=0.5)])
    rng = random.Random(0)
    context = multiprocessing.get_context("fork")
    for _ in range(50):
        writer = context.Process(target=write_until_killed, args=(path,))
        writer.start()
        time.sleep(rng.uniform(0.005, 0.05))
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        assert {each.problem.seqlen_q for each in read(path).values()} == {256, 1024}
    store(path, "cpu", [entry(512)])
    assert sorted(each.name for each in tmp_path.iterdir()) == ["p.yaml"]


def test_a_disk_that_takes_no_more_loses_nothing(tmp_path):
    path = tmp_path / "p.yaml"
    store(path, "cpu", [entry(256)])
    before = path.read_bytes()
    with file_size_limit(300), pytest.raises(AttnctlError) as caught:
        store(path, "cpu", [entry(512)])
    assert caught.value.message == f"{path}: cannot be written: File too large"
    assert path.read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["p.yaml"]


WRITER = """
import subprocess, sys
from pathlib import Path
from attnctl.errors import AttnctlError
from attnctl.files import write_atomic
path = Path(sys.argv[1]) / "p.yaml"
write_atomic(path, "old")
if sys.argv[2]:
    subprocess.run(["mount", "-o", sys.argv[2], path.parent], check=True)
try:
    write_atomic(path, "new" * 100_000)
except AttnctlError as error:
    print(error.message, "|", error.hint)
print(path.read_text(), [each.name for each in path.parent.iterdir()])
"""


@pytest.mark.parametrize(
    ("mount", "said"),
    [
        ("", "No space left on device | free some space, or choose another folder"),
        ("remount,ro", "Read-only file system | choose a folder on a file system that is not read-only"),
    ],
)
def test_a_full_or_read_only_disk_is_said_so(tmp_path, mount, said):
    script = f'mount -t tmpfs -o size=64k tmpfs "$1" && exec {sys.executable} -c "$3" "$1" "$2"'
    done = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh", str(tmp_path), mount, WRITER],
        capture_output=True,
        text=True,
        check=False,
    )
    if not done.stdout and ("unshare" in done.stderr or "mount" in done.stderr):
        pytest.skip(f"no tmpfs can be mounted here: {done.stderr.strip()}")
    assert done.stdout.splitlines() == [f"{tmp_path / 'p.yaml'}: cannot be written: {said}", "old ['p.yaml']"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    (tmp_path / "tuned").write_text("a file, not a folder")
    path = tmp_path / "tuned" / "cpu" / "p.yaml"
    with pytest.raises(AttnctlError, match="cannot be written: Not a directory"):
        store(path, "cpu", [entry()])


def test_device_names_are_normalised_but_never_shortened():
    assert device_slug("NVIDIA H200") == device_slug("nvidia_h200") == "nvidia_h200"
    assert len({device_slug(f"NVIDIA H100{rest}") for rest in ("", " PCIe", " NVL", " 80GB HBM3")}) == 4


@given(st.text())
def test_a_slug_is_a_fixed_point_and_a_plain_file_name(name):
    slug = device_slug(name)
    assert device_slug(slug) == slug
    assert set(slug) <= set("abcdefghijklmnopqrstuvwxyz0123456789_")


def test_the_path_is_beside_the_profile_unless_a_root_is_given():
    profile = Path("profiles/quickstart.yaml")
    assert tuned_path(profile, "NVIDIA H200") == Path("profiles/tuned/nvidia_h200/quickstart.yaml")
    assert tuned_path(profile, "cpu", Path("out")) == Path("out/cpu/quickstart.yaml")


def test_every_field_that_can_change_the_best_config_is_in_the_key():
    keys = [
        entry_key(task(), None),
        entry_key(task(), (128, 128)),
        entry_key(task(dtype="float16"), None),
        entry_key(task(head_dim=128), None),
        entry_key(task(head_dim_v=32), None),
        entry_key(task(seqlen_q=512), None),
        entry_key(task(seqlen_k=512), None),
        entry_key(task(num_heads_kv=2), None),
        entry_key(task(batch_size=2), None),
        entry_key(task(mask=Mask(pattern="dense")), None),
        entry_key(task(mask=Mask(pattern="sliding_window", window=64)), None),
        entry_key(task(mask=Mask(pattern="sliding_window", window=128)), None),
        entry_key(task(softmax_scale=1.0), None),
        entry_key(task(pass_name="backward"), None),
        entry_key(task(arch="sm_90"), None),
        entry_key(task(family="fa4"), None),
        entry_key(task(version="2"), None),
    ]
    assert len(set(keys)) == len(keys)

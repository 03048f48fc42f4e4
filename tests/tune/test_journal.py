"""Journals survive anything that may happen to the process that writes them."""

import gzip
import math
import os
import signal
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sweeps import ENVIRONMENT, PREPARED, bad, file_size_limit, ok, profile

from attnctl.errors import AttnctlError, UsageError
from attnctl.gpu.protocol import Check
from attnctl.profile.load import load
from attnctl.profile.problems import tasks
from attnctl.tune.journal import Header, Journal, OutcomeRecord, PreparedRecord, read
from attnctl.tune.resume import Mode, open_journal
from attnctl_kernels.contract import Candidate


@pytest.fixture
def header(tmp_path):
    (task,) = tasks(load(profile(tmp_path)).profile)
    return Header(profile="p", task=task, space="s", rules="r", cache="cold", environment=ENVIRONMENT)


def outcome(number, result=None):
    return OutcomeRecord(candidate=Candidate(config={"n": number}), result=result or ok(100.0 + number))


def filled(path, header, count=3):
    journal = Journal.create(path, header)
    journal.append(PreparedRecord(prepared=PREPARED))
    for number in range(count):
        journal.append(outcome(number))
    journal.close()
    return path


def test_what_is_appended_is_read_with_every_sample(tmp_path, header):
    recorded = read(filled(tmp_path / "j.jsonl", header))
    assert recorded.header == header
    assert recorded.prepared == PREPARED
    assert [each.result for each in recorded.outcomes.values()] == [ok(100.0 + number) for number in range(3)]


def test_errors_that_are_no_numbers_come_back(tmp_path, header):
    path = filled(tmp_path / "j.jsonl", header, count=0)
    journal = Journal.resume(path, read(path))
    check = Check(error={"out": math.nan, "lse": math.inf}, checked_fraction=1.0)
    journal.append(outcome(0, bad().model_copy(update={"check": check})))
    (record,) = read(path).outcomes.values()
    assert math.isnan(record.result.check.error["out"])
    assert record.result.check.error["lse"] == math.inf


def test_a_compressed_journal_is_read_too_even_if_it_was_cut(tmp_path, header):
    path = filled(tmp_path / "j.jsonl", header)
    packed = tmp_path / "j.jsonl.gz"
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert read(packed).outcomes == read(path).outcomes
    whole = packed.read_bytes()
    packed.write_bytes(whole[: len(whole) - 20])
    assert read(packed).header == header


@settings(max_examples=30)
@given(st.data())
def test_a_torn_last_line_is_ignored_and_cut_off(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("torn")
    (task,) = tasks(load(profile(folder)).profile)
    header = Header(profile="p", task=task, space="s", rules="r", cache="cold", environment=ENVIRONMENT)
    path = filled(folder / "j.jsonl", header)
    lines = path.read_bytes().splitlines(keepends=True)
    cut = data.draw(st.integers(len(lines[0]), sum(map(len, lines))))
    path.write_bytes(b"".join(lines)[:cut])
    whole = sum(1 for end in range(3, len(lines) + 1) if sum(map(len, lines[:end])) <= cut)
    recorded = read(path)
    assert len(recorded.outcomes) == whole
    journal = Journal.resume(path, recorded)
    journal.append(outcome(7))
    journal.close()
    assert len(read(path).outcomes) == whole + 1


def test_a_killed_writer_leaves_every_finished_append(tmp_path, header):
    path = tmp_path / "j.jsonl"
    told_end, tell_end = os.pipe()
    child = os.fork()
    if child == 0:
        journal = Journal.create(path, header)
        for number in range(100_000):
            journal.append(outcome(number))
            os.write(tell_end, b".")
    time.sleep(0.3)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    os.close(tell_end)
    told = 0
    while chunk := os.read(told_end, 1 << 16):
        told += len(chunk)
    os.close(told_end)
    assert told > 0
    assert len(read(path).outcomes) in (told, told + 1)


@pytest.mark.parametrize("content", [b"", b"no journal\n", b'{"record":"done"}\n', b"\x00\xff\n"])
def test_other_files_are_refused_by_name(tmp_path, content):
    path = tmp_path / "j.jsonl"
    path.write_bytes(content)
    with pytest.raises(AttnctlError, match="not a journal of attnctl"):
        read(path)


def test_a_journal_of_another_format_says_which(tmp_path):
    path = tmp_path / "j.jsonl"
    path.write_text('{"record":"header","format":99,"profile":"p"}\n')
    with pytest.raises(AttnctlError, match=r"j\.jsonl:1: format: 99 is another format of journals; .* reads 1"):
        read(path)


def test_a_missing_journal_is_wrong_usage(tmp_path):
    with pytest.raises(UsageError, match="no such file"):
        read(tmp_path / "j.jsonl")


def test_a_full_disk_is_said_so(tmp_path, header):
    journal = Journal.create(tmp_path / "j.jsonl", header)
    record = outcome(0, bad(reason="long" * 2000))
    with file_size_limit(4000), pytest.raises(AttnctlError, match=r"j\.jsonl: cannot be written: File too large"):
        journal.append(record)
    assert read(tmp_path / "j.jsonl").header == header


CHANGES = {
    "kernel 1 then, 2 now": lambda it: {"environment": it.environment.model_copy(update={"versions": {"kernel": "2"}})},
    "device": lambda it: {"environment": it.environment.model_copy(update={"uuid": "GPU-2"})},
    "SMs": lambda it: {"environment": it.environment.model_copy(update={"num_sms": 66})},
    "threads None then, 2 now": lambda it: {"environment": it.environment.model_copy(update={"threads": 2})},
    "power limit in W None then, 350.0 now": lambda it: {
        "environment": it.environment.model_copy(update={"power_limit_w": 350.0})
    },
    "cache policy cold then, warm now": lambda it: {"cache": "warm"},
    "other rules": lambda it: {"rules": "new"},
    "another space": lambda it: {"space": "new"},
    "another task": lambda it: {"task": it.task.model_copy(update={"pass_name": "backward"})},
}


@pytest.mark.parametrize("reason", CHANGES)
def test_a_journal_that_does_not_fit_is_set_aside_and_never_mixed(tmp_path, header, reason):
    path = filled(tmp_path / "j.jsonl", header)
    before = path.read_bytes()
    said = []
    now = header.model_copy(update=CHANGES[reason](header))
    journal, done = open_journal(path, now, Mode.AUTO, said.append)
    assert not done
    assert not journal.recorded.outcomes
    assert (tmp_path / "j.1.jsonl").read_bytes() == before
    assert len(said) == 1
    assert reason in said[0]
    with pytest.raises(UsageError, match="nothing to resume"):
        open_journal(path, header, Mode.RESUME, said.append)


def test_temperature_and_neighbours_do_not_make_it_another_device(tmp_path, header):
    path = filled(tmp_path / "j.jsonl", header)
    environment = header.environment.model_copy(update={"temperature_c": 60, "other_processes": (1,)})
    said = []
    journal, _ = open_journal(path, header.model_copy(update={"environment": environment}), Mode.AUTO, said.append)
    assert len(journal.recorded.outcomes) == 3
    assert said == [f"resuming {path}: it has 3 candidates (--fresh starts again)"]


def test_fresh_keeps_what_was_there(tmp_path, header):
    path = filled(tmp_path / "j.jsonl", header)
    open_journal(path, header, Mode.FRESH, [].append)
    open_journal(path, header, Mode.FRESH, [].append)
    assert sorted(each.name for each in tmp_path.glob("*.jsonl")) == ["j.1.jsonl", "j.2.jsonl", "j.jsonl"]
    assert len(read(tmp_path / "j.1.jsonl").outcomes) == 3


def test_a_journal_on_a_full_disk_closes_without_another_word(tmp_path, header):
    journal = Journal.create(tmp_path / "j.jsonl", header)
    with file_size_limit(4000):
        with pytest.raises(AttnctlError):
            journal.append(outcome(0, bad(reason="long" * 2000)))
        journal.close()


def test_a_compressed_journal_with_damage_inside_is_named(tmp_path):
    path = tmp_path / "j.jsonl.gz"
    path.write_bytes(gzip.compress(b"")[:10] + b"\xff" * 20)
    with pytest.raises(AttnctlError, match=r"j\.jsonl\.gz: cannot be read: Error -3"):
        read(path)

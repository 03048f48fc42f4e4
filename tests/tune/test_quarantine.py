"""What is in quarantine, for whom, and the file when something else has been at it."""

import pytest
from sweeps import BLOCKS, ENVIRONMENT, bad, profile

from attnctl.errors import AttnctlError
from attnctl.profile.load import load
from attnctl.profile.problems import tasks
from attnctl.tune.quarantine import Quarantine
from attnctl_kernels.contract import Candidate, Outcome

HANGS = Candidate(config={"block_q": 16, "block_kv": 16}, sparse_block=(16, 16))
DAMAGED = {"not text": b"\xff\xfe", "Invalid JSON": b"{", "entries": b'{"entries": 1}'}


@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_named_and_left_alone(tmp_path, content):
    (task,) = tasks(load(profile(tmp_path)).profile)
    quarantine = Quarantine(tmp_path)
    quarantine.path.write_bytes(content)
    with pytest.raises(AttnctlError, match=r"quarantine\.json: is damaged"):
        quarantine.find(task, ENVIRONMENT)
    assert quarantine.path.read_bytes() == content


def test_a_folder_in_its_place_is_named(tmp_path):
    (task,) = tasks(load(profile(tmp_path)).profile)
    quarantine = Quarantine(tmp_path)
    quarantine.path.mkdir()
    with pytest.raises(AttnctlError, match=r"quarantine\.json: cannot be read: Is a directory"):
        quarantine.find(task, ENVIRONMENT)


def test_another_run_finds_what_was_put_there(tmp_path):
    (task,) = tasks(load(profile(tmp_path)).profile)
    Quarantine(tmp_path).add(task, HANGS, ENVIRONMENT, bad(Outcome.TIMEOUT, "deadline of 30 s passed"))
    (entry,) = Quarantine(tmp_path).find(task, ENVIRONMENT).values()
    assert (entry.candidate, entry.outcome, entry.reason) == (HANGS, Outcome.TIMEOUT, "deadline of 30 s passed")
    assert entry.versions == ENVIRONMENT.versions


@pytest.mark.parametrize(
    "change",
    [
        {"versions": {"kernel": "2"}},
        {"versions": {"kernel": "1", "torch": "2.12"}},
        {"driver": "580.2"},
        {"device_name": "nvidia_h100"},
    ],
    ids=["another version", "another package", "another driver", "another device"],
)
def test_what_hung_with_other_versions_or_elsewhere_is_tried_again(tmp_path, change):
    (task,) = tasks(load(profile(tmp_path)).profile)
    quarantine = Quarantine(tmp_path)
    quarantine.add(task, HANGS, ENVIRONMENT, bad(Outcome.TIMEOUT))
    assert quarantine.find(task, ENVIRONMENT.model_copy(update=change)) == {}
    quarantine.add(task, HANGS, ENVIRONMENT.model_copy(update=change), bad(Outcome.WORKER_DIED))
    assert quarantine.find(task, ENVIRONMENT)[HANGS.key].outcome is Outcome.TIMEOUT, "one does not replace the other"


def test_another_problem_is_another_matter(tmp_path):
    (task,) = tasks(load(profile(tmp_path)).profile)
    (other,) = tasks(load(profile(tmp_path, BLOCKS.replace("seq_len: 128", "seq_len: 256"), "other.yaml")).profile)
    Quarantine(tmp_path).add(task, HANGS, ENVIRONMENT, bad(Outcome.WRONG_RESULT))
    assert Quarantine(tmp_path).find(other, ENVIRONMENT) == {}

"""The quarantine file when something else has been at it."""

import pytest
from sweeps import ENVIRONMENT, profile

from attnctl.errors import AttnctlError
from attnctl.profile.load import load
from attnctl.profile.problems import tasks
from attnctl.tune.quarantine import Quarantine

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

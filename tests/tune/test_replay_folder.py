"""`--replay FOLDER`: never a real device in place of recorded sweeps."""

from pathlib import Path

import pytest

from attnctl.cli.tune import _journals
from attnctl.errors import UsageError


def test_journals_are_found_however_deep(tmp_path):
    deep = tmp_path / "nvidia_h200" / "p" / "forward.jsonl.gz"
    deep.parent.mkdir(parents=True)
    deep.touch()
    assert _journals([tmp_path, Path("named.jsonl")]) == [deep, Path("named.jsonl")]


def test_folder_without_journals_is_refused(tmp_path):
    with pytest.raises(UsageError, match="there is no journal"):
        _journals([tmp_path])

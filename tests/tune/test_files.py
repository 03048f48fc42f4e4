"""What may stand where a file is to be written: links, pipes, devices, nothing."""

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from attnctl.errors import AttnctlError
from attnctl.files import append, write_atomic


def test_a_link_stays_and_the_file_behind_it_is_replaced(tmp_path):
    target = tmp_path / "elsewhere" / "real.json"
    target.parent.mkdir()
    target.write_text("old")
    link = tmp_path / "link.json"
    link.symlink_to(target)
    write_atomic(link, "new")
    assert link.is_symlink()
    assert target.read_text() == "new"


def test_a_pipe_is_written_to_and_not_replaced(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    write_atomic(pipe, "text")
    reader.join(10)
    assert read == ["text"]
    assert pipe.is_fifo()


def test_a_device_behind_a_link_is_not_replaced(tmp_path):
    """As root, a rename over /dev/stdout or /dev/full would take it from the whole machine."""
    full = tmp_path / "full"
    full.symlink_to("/dev/full")
    with pytest.raises(AttnctlError, match="No space left on device"):
        write_atomic(full, "text")
    assert full.is_symlink()
    assert Path("/dev/full").is_char_device()


@pytest.mark.skipif(not os.access("/dev/shm", os.W_OK), reason="there is no /dev/shm")
def test_a_file_in_shared_memory_is_replaced_like_any_other():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = Path(folder, "tuned.yaml")
        for text in ("old", "new"):
            write_atomic(path, text)
        assert path.read_text() == "new"


def test_standard_output_that_is_a_file_keeps_what_it_has(tmp_path):
    out = tmp_path / "out"
    program = "from pathlib import Path; from attnctl.files import write_atomic; write_atomic(Path('/dev/fd/1'), 'new')"
    with out.open("w") as file:
        file.write("old ")
        file.flush()
        subprocess.run([sys.executable, "-c", program], stdout=file, check=True)
    assert out.read_text() == "old new"


def test_what_is_appended_to_may_be_in_a_folder_that_is_not_there(tmp_path):
    path = tmp_path / "a" / "b.md"
    append(path, "one\n")
    append(path, "two\n")
    assert path.read_text() == "one\ntwo\n"
    with pytest.raises(AttnctlError, match="cannot be written"):
        append(path / "c.md", "three\n")

"""The terminal pictures of the README: what commands print, run for real in a terminal of their own.

    python docs/pictures/make.py [NAME...]        run the commands, keep what they print, draw it
    python docs/pictures/make.py --draw [NAME...] draw again what was kept

A picture is two files beside this one: ``NAME.ansi``, the bytes that the command wrote to a pseudo-terminal, and
``NAME.svg``, drawn from them by rich. `tune` replays a sweep that was recorded on an H200; `bench` measures on this
machine's processor, after `tune`.
"""

from __future__ import annotations

import argparse
import fcntl
import io
import os
import pty
import re
import shlex
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
ROWS = 50
_FONT = re.compile(r"@font-face\s*{[^}]*}\s*")  # rich names one on the web: any monospace will do


@dataclass(frozen=True, slots=True)
class Picture:
    """A command, and the files of the repository that it finds in its folder."""

    command: str
    columns: int
    files: tuple[str, ...]
    before: tuple[str, ...] = ()
    anywhere: bool = True  # the same output on any machine


PICTURES = {
    "validate": Picture("attnctl validate video.yaml", 110, ("docs/pictures/video.yaml",)),
    "show": Picture("attnctl show window-8k-d256.yaml", 110, ("profiles/window-8k-d256.yaml",)),
    "tune": Picture(
        "attnctl tune ranker-8k.yaml --replay ranker-8k.jsonl.gz --strategy exhaustive",
        142,
        ("profiles/ranker-8k.yaml", "tests/data/journals/ranker-8k.jsonl.gz"),
    ),
    "bench": Picture(
        "attnctl bench quickstart.yaml --against default",
        110,
        ("profiles/quickstart.yaml",),
        before=("attnctl tune quickstart.yaml",),
        anywhere=False,
    ),
}


def recorded(picture: Picture) -> str:
    """What the command writes to a terminal of that width; its progress and messages, on stderr, are left out."""
    with tempfile.TemporaryDirectory() as folder:
        for file in picture.files:
            shutil.copy(ROOT / file, folder)
        for command in picture.before:
            _run(command, Path(folder), picture.columns)
        return _run(picture.command, Path(folder), picture.columns)


def _run(command: str, folder: Path, columns: int) -> str:
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS")},
        "TERM": "xterm-256color",
        "COLUMNS": str(columns),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")]),
    }
    with (
        tempfile.TemporaryFile() as messages,
        subprocess.Popen(
            [sys.executable, "-m", *shlex.split(command)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=follower,
            stderr=messages,
        ) as process,
    ):
        os.close(follower)
        output = b"".join(iter(lambda: _read(leader), b""))
        os.close(leader)
        if process.wait() not in (0, 1):  # 1: findings, which a picture may be about
            messages.seek(0)
            sys.exit(f"{command}: exit code {process.returncode}\n{messages.read().decode(errors='replace')}")
    return output.decode().replace("\r\n", "\n")


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 1 << 16)
    except OSError:  # the other end is closed
        return b""


def drawn(picture: Picture, output: str) -> str:
    """The terminal as SVG."""
    from rich.console import Console  # noqa: PLC0415 - recording needs no rich
    from rich.text import Text  # noqa: PLC0415

    console = Console(record=True, width=picture.columns, file=io.StringIO(), force_terminal=True, legacy_windows=False)
    console.print(Text.assemble(("$ ", "bold green"), (picture.command, "bold")))
    console.print(Text.from_ansi(output), soft_wrap=False)
    svg = console.export_svg(title="attnctl", unique_id=picture.command.split()[1])
    return _FONT.sub("", svg)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PICTURES))
    parser.add_argument("--draw", action="store_true", help="draw what was kept")
    arguments = parser.parse_args()
    for name in arguments.names or PICTURES:
        picture, kept = PICTURES[name], HERE / f"{name}.ansi"
        if not arguments.draw:
            kept.write_text(recorded(picture), encoding="utf-8")
        (HERE / f"{name}.svg").write_text(drawn(picture, kept.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()

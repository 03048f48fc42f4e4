"""The terminal pictures of the README are what the commands print today, or did on the device that they name."""

import importlib.util
import re
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs/pictures"


def _script():
    spec = importlib.util.spec_from_file_location("make_pictures", FOLDER / "make.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


SCRIPT = _script()


@pytest.mark.parametrize("name", [name for name, picture in SCRIPT.PICTURES.items() if picture.anywhere])
def test_what_was_kept_is_what_the_command_prints(name):
    kept = (FOLDER / f"{name}.ansi").read_text(encoding="utf-8")
    assert SCRIPT.recorded(SCRIPT.PICTURES[name]) == kept, f"python docs/pictures/make.py {name}"


@pytest.mark.parametrize("name", SCRIPT.PICTURES)
def test_the_picture_shows_what_was_kept_and_asks_nobody(name):
    """Word by word: how rich draws them may change."""
    kept = (FOLDER / f"{name}.ansi").read_text(encoding="utf-8")
    svg = (FOLDER / f"{name}.svg").read_text(encoding="utf-8")
    shown = "".join(ET.fromstring(svg).itertext())
    fresh = "".join(ET.fromstring(SCRIPT.drawn(SCRIPT.PICTURES[name], kept)).itertext())
    assert shown.split("attnctl", 1)[1].split() == fresh.split("attnctl", 1)[1].split()
    assert not re.search(r"(url\(|href=)[\"']?http", svg)


@pytest.mark.parametrize("name", SCRIPT.PICTURES)
def test_the_readme_shows_it(name):
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert f"](docs/pictures/{name}.svg)" in readme

"""Families of the tests, put beside the real ones for as long as a test runs."""

import sys
from pathlib import Path

import pytest

import attnctl_kernels
from attnctl.rules import registry
from attnctl_kernels import families

FOLDER = Path(__file__).parent / "families"


def forget_families():
    for cached in (families.family_names, families.get_family, registry.all_rules):
        cached.cache_clear()
    for name in ("toy", "broken", "forward_only"):
        for module in [each for each in sys.modules if each.startswith(f"attnctl_kernels.{name}")]:
            del sys.modules[module]


@pytest.fixture
def family_folder(monkeypatch):
    monkeypatch.setattr(attnctl_kernels, "__path__", [*attnctl_kernels.__path__, str(FOLDER)])
    forget_families()
    yield FOLDER
    forget_families()

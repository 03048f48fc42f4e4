"""What needs no GPU needs no framework either: proven in a fresh interpreter that cannot import one."""

import pytest
from cli_profiles import GOOD, S4

BLOCK = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names}:
            raise ImportError(f"{{name}} is not there")

sys.meta_path.insert(0, Blocked())
"""
FRAMEWORKS = ("torch", "jax", "cutlass", "flash_attn", "triton", "scipy")


def without(*names):
    return BLOCK.format(names=(*FRAMEWORKS, *names))


@pytest.mark.parametrize("name", [*FRAMEWORKS, "numpy", "rich"])
def test_the_blocker_blocks(process, name):
    done = process("--version", before=f"{without('numpy', 'rich')}\nimport {name}")
    assert done.returncode == 1
    assert f"ImportError: {name} is not there" in done.stderr


def test_validate_finds_the_same(process, write):
    name = write("s4.yaml", S4)
    light, full = process("validate", name, before=without("numpy", "rich")), process("validate", name)
    assert (light.returncode, light.stdout, light.stderr) == (full.returncode, full.stdout, full.stderr)
    assert light.returncode == 1


@pytest.mark.parametrize(
    "args", [["--help"], ["--version"], ["explain", "PAL-B003"], ["explain", "--list"], ["schema"]], ids=" ".join
)
def test_commands_that_only_read(process, args):
    light, full = process(*args, before=without("numpy", "rich")), process(*args)
    assert (light.returncode, light.stdout, light.stderr) == (0, full.stdout, "")


def test_show_needs_numpy_only(process, write):
    name = write("good.yaml", GOOD)
    light, full = process("show", name, before=without("rich")), process("show", name)
    assert (light.returncode, light.stdout, light.stderr) == (0, full.stdout, "")

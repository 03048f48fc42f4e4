"""Compilers' exceptions in one line."""

import pytest

from attnctl_kernels.fa4.failures import is_out_of_resources, one_line

RED, OFF = "\x1b[91m", "\x1b[0m"
REGISTERS = "PTX assembly failed: (C7602) Insufficient registers (128) to compile instruction at line 9 in function "
PTXAS = f"{RED}error:{OFF} {REGISTERS}{'kernel_cutlass_' * 9}. Try 158 or higher.\n\n  --> flash_fwd_sm90.py:4"
WIDTH = "expects the N-mode to satisfy 8 <= N <= 256 and N % 8 == 0. but got 272"
USER = f"\n{RED}\x1b[1merror:{OFF} {WIDTH}\n  --> flash_fwd_sm90.py:97\n"


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (RuntimeError(PTXAS), f"RuntimeError: {REGISTERS}the kernel. Try 158 or higher."),
        (ValueError(USER), f"ValueError: {WIDTH}"),
        (ValueError("one\ntwo"), "ValueError: one"),
        (KeyError(), "KeyError"),
    ],
)
def test_line_that_says_something(error, line):
    assert one_line(error) == line


def test_bare_assertion_shows_itself():
    with pytest.raises(AssertionError) as caught:
        assert 1 + 1 == 3
    caught.value.args = (None,)  # as the tracer raises it
    assert one_line(caught.value).startswith("AssertionError at test_fa4_failures.py:")
    assert one_line(caught.value).endswith("assert 1 + 1 == 3")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", True),
        ("too many resources requested for launch", True),
        ("requested shared memory exceeds the limit", True),
        ("an illegal memory access was encountered", False),
        ("CUDA out of memory", False),
    ],
)
def test_refused_launch(text, expected):
    assert is_out_of_resources(RuntimeError(text)) is expected

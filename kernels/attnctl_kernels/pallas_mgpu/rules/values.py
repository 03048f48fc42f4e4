"""What several rules need: parameters of the flat config, and values that work."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from attnctl_kernels.contract import Case
from attnctl_kernels.rule import Fix, Violation, length_fixes, multiples_below, nearest_multiples

GRANULE = 64  # rows of a wgmma; 16-bit elements of a 128-byte swizzle row
FORWARD_BLOCKS = ("block_q", "block_kv")
BACKWARD_BLOCKS = ("block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")


def number(case: Case, name: str) -> int:
    """The parameter, or 0 where it is missing or makes no sense: another rule says so."""
    value = case.config.get(name)
    return value if isinstance(value, int) and value > 0 else 0


def block(case: Case, name: str) -> int:
    """The block, or 0 where it is missing or none that a kernel has (PAL-C001, PAL-C004): nothing follows from it."""
    value = number(case, name)
    return 0 if value % GRANULE else value


def trains(case: Case) -> bool:
    return "backward" in case.passes


def granule_fixes(field: str, value: int) -> tuple[Fix, ...]:
    nearest = nearest_multiples(value, GRANULE) if value > 0 else (GRANULE,)
    return tuple(Fix(field, each) for each in nearest)


def largest_block(below: int, works: Callable[[int], bool]) -> int | None:
    """The largest legal block under ``below`` that works: smaller ones never need more of the device."""
    return next((block for block in multiples_below(below, GRANULE) if works(block)), None)


def ragged(
    case: Case, length_name: str, block_name: str, factor: int = 1, factor_name: str = ""
) -> Iterator[Violation]:
    """``length % (block * factor) == 0``; ``factor_name`` is the parameter that holds the factor, if one does."""
    length: int = getattr(case.problem, length_name)
    rows = block(case, block_name)
    divisor = rows * factor
    if not divisor or length % divisor == 0:
        return
    fixes = list(length_fixes(f"problem.{length_name}", length, divisor))
    smaller = largest_block(rows, lambda each: length % (each * factor) == 0)
    if smaller:
        fixes.append(Fix(f"config.{block_name}", smaller))
    if factor_name and length % rows == 0:
        fixes.append(Fix(f"config.{factor_name}", 1))
    factors = f"{block_name}={rows}"
    if factor_name:
        factors += f" * {factor_name}={factor} = {divisor}"
    elif factor > 1:
        factors += f" * {factor} = {divisor}"
    yield Violation(
        f"problem.{length_name}",
        f"{length_name}={length} is not a multiple of {factors} (remainder {length % divisor})",
        tuple(fixes),
    )

"""FA4-E014, X001, X002: what the environment says, and what the caches do not notice."""

from __future__ import annotations

import re
from collections.abc import Iterator

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case
from attnctl_kernels.fa4.call import USUAL_SMS
from attnctl_kernels.rule import Fix, Violation, rule

_ARCH = re.compile(r"(?:sm_?|SM_?)?(\d+)(\d)[af]?")
_QUACK, _CUDA = re.compile(r"quack[^/]*\d"), re.compile(r"cu(da)?[^/a-z]*\d")
KERNEL, TARGET = "FLASH_ATTENTION_ARCH", "CUTE_DSL_ARCH"


@rule(
    "FA4-E014",
    why="one names the kernel, the other what it is compiled for",
    upstream=(
        "Invalid arch format: {}",
        "Cannot determine the target GPU's SM count; set FLASH_ATTENTION_NUM_SMS",
        "FLASH_ATTENTION_NUM_SMS must be positive",
    ),
)
def environment_contradicts_the_arch(case: Case) -> Iterator[Violation]:
    """The variables that name the target are malformed, or name different targets.

    What: `FLASH_ATTENTION_ARCH` and `CUTE_DSL_ARCH` are written `sm_90`, `sm_90a` or `90` and are the profile's `arch`;
    `FLASH_ATTENTION_NUM_SMS` is above 0.

    Why: On a machine without a GPU the first chooses the kernel, the second the instructions, and the third what the
    heuristics count with. The kernel of sm_90 compiled for sm_100 fails at its first instruction.

    Fix: For an H100: `sm_90`, `sm_90a` and 132.
    """
    name_of = case.arch or ""
    for variable in (KERNEL, TARGET):
        value = case.config.get(variable)
        if value is None:
            continue
        match = _ARCH.fullmatch(str(value))
        if match is None or f"sm_{match[1]}{match[2]}" != name_of:
            fault = "is not written like sm_90" if match is None else f"is not the arch of the profile, {name_of}"
            right = f"{name_of}a" if variable == TARGET and name_of not in ("sm_80", "sm_86", "sm_89") else name_of
            yield Violation(f"config.{variable}", f"{variable} {value} {fault}", (Fix(f"config.{variable}", right),))
    count = case.config.get("FLASH_ATTENTION_NUM_SMS")
    if isinstance(count, int) and count < 1:
        usual = (ARCHES[name_of].num_sms if name_of in ARCHES else 0) or USUAL_SMS
        fix = Fix("config.FLASH_ATTENTION_NUM_SMS", usual)
        yield Violation("config.FLASH_ATTENTION_NUM_SMS", f"FLASH_ATTENTION_NUM_SMS {count} is not above 0", (fix,))


@rule("FA4-X001", why="the key of the compiled kernel holds a function's source and closure, not the globals it reads")
def mod_reads_globals(case: Case) -> Iterator[Violation]:
    """A score_mod or mask_mod reads module globals that can change.

    What: Where `mod_reads_globals` is true, `mod_cute_hash` is true as well: a `__cute_hash__` is set by hand and
    changes with the values that the function reads.

    Why: A kernel is compiled once per key and kept. `WINDOW = 128`, read by a mask_mod and later set to 256, is not
    part of the key: the kernel for 128 runs on, without a message. A hash that was set once stays on the function, also
    when its code changes.

    Fix: Pass such values through the closure, through defaults or through aux_tensors.
    """
    if case.config.get("mod_reads_globals") and not case.config.get("mod_cute_hash"):
        fixes = (Fix("config.mod_reads_globals", False, "values in the closure"), Fix("config.mod_cute_hash", True))
        yield Violation("config.mod_reads_globals", "a score_mod or mask_mod reads globals, and no hash says so", fixes)


@rule("FA4-X002", why="the key on disk holds the versions of cutlass and tvm-ffi alone")
def cache_outlives_its_compilers(case: Case) -> Iterator[Violation]:
    """The cache on disk is kept when quack-kernels or the CUDA toolkit changes.

    What: With `FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED: 1`, the path in `FLASH_ATTENTION_CUTE_DSL_CACHE_DIR` names the
    version of quack and of CUDA.

    Why: The key has flash-attn-4's sources, Python's minor version, cutlass and tvm-ffi. Kernels call into
    quack-kernels too, and are assembled by the toolkit: after an upgrade of either the old binary is loaded.

    Fix: `FLASH_ATTENTION_CUTE_DSL_CACHE_DIR: /cache/fa4/quack-0.3.1-cuda-13.0`, or clear the folder with each upgrade.
    """
    folder = case.config.get("FLASH_ATTENTION_CUTE_DSL_CACHE_DIR")
    if case.config.get("FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED") != 1:
        return
    missing = [
        word for word, pattern in (("quack", _QUACK), ("cuda", _CUDA)) if not pattern.search(str(folder or "").lower())
    ]
    if missing:
        field = "config.FLASH_ATTENTION_CUTE_DSL_CACHE_DIR"
        where = f"the path {folder}" if folder else "the default path"
        fix = Fix("config.FLASH_ATTENTION_CUTE_DSL_CACHE_ENABLED", 0)
        advice = "write the versions into the path, as in fa4/quack-0.3.1-cuda-13.0"
        yield Violation(field, f"{where} names no version of {' or '.join(missing)}", (fix,), advice)

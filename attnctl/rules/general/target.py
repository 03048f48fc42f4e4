"""What the profile asks for against what the family has: arch, version, passes.

These are asked before anything else, on a case without defaults, so that no family is asked about an arch that it
does not know.
"""

from __future__ import annotations

from collections.abc import Iterator

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case, join_words
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Fix, Violation, rule


@rule("G301", why="tiles, shared memory and registers differ from arch to arch")
def arch_missing(case: Case) -> Iterator[Violation]:
    """The family needs an arch, and the profile names none.

    What: Profiles of GPU families name an `arch`.

    Why: Shared memory per block is 232448 bytes on sm_90 and 101376 on sm_86: a config that fits one fails on the
    other. Without an arch there is no limit to check against.

    Fix: `arch: sm_90` for H100 and H200, `sm_80` for A100, `sm_86` for A10 and RTX 30, `sm_89` for L4, L40 and RTX
    40, `sm_100` for B200, `sm_103` for B300, `sm_120` for RTX 50. `--arch` sets it on the command line.
    """
    arches = get_family(case.family).arches
    if case.arch is None and arches:
        fixes = tuple(Fix("arch", each) for each in arches)
        yield Violation("arch", f"{case.family} needs an arch", fixes)


@rule("G302", why="its limits are not known")
def arch_unknown(case: Case) -> Iterator[Violation]:
    """An arch that attnctl does not know.

    What: `arch` is one of the compute capabilities in attnctl's table, written `sm_` and the number.

    Why: Every limit is a property of the arch. `sm_91` does not exist, and `sm90`, `90` and `hopper` are spelt
    otherwise; `sm_90a` names an instruction set of the same arch.

    Fix: `sm_90` for `sm90`, `sm_90a` or `hopper`.
    """
    if case.arch is not None and case.arch not in ARCHES:
        supported = get_family(case.family).arches or tuple(ARCHES)
        near = [each for each in _near(case.arch) if each in supported] or list(supported)
        message = f"arch {case.arch} is not known; known: {', '.join(ARCHES)}"
        yield Violation("arch", message, tuple(Fix("arch", each) for each in near))


@rule(
    "G303",
    why="the kernel is not built for it",
    upstream=(  # flash-attn-4
        "Unsupported forward architecture family SM{}",
        "Config targets SM{}, but the problem targets SM{}",
        "Unsupported compute capability. Supported: 8.x, 9.x, 10.x, 11.x, 12.x",
    ),
    aliases=("FA4-F001",),
)
def arch_unsupported(case: Case) -> Iterator[Violation]:
    """The family does not run on this arch.

    What: `arch` is one that the family supports.

    Why: Kernels use instructions of one generation: wgmma exists on sm_90 alone, tcgen05 on sm_100, sm_103 and
    sm_110.

    Fix: Use another family for this arch, or one of the arches that the message names: a kernel for sm_90 alone does
    not run on sm_80, and not on sm_100 either.
    """
    arches = get_family(case.family).arches
    if case.arch in ARCHES and arches and case.arch not in arches:
        message = f"{case.family} does not support {case.arch}; supported: {', '.join(arches)}"
        yield Violation("arch", message, tuple(Fix("arch", each) for each in arches))


@rule("G304", why="rules move between versions, so those of another version would be the wrong ones")
def version_unknown(case: Case) -> Iterator[Violation]:
    """A version of the kernel that attnctl does not know.

    What: `version` is one of the family's versions whose rules attnctl has.

    Why: Rules change: flash-attn-4 demanded KV blocks equal to its tile before it allowed multiples. Checking
    4.0.0b20 by the rules of 4.0.0b36 would pass what fails.

    Fix: Leave `version` out to use the newest that attnctl knows, or name one of those in the message.
    """
    versions = get_family(case.family).versions
    if case.version not in versions:
        message = f"version {case.version} of {case.family} is not known; known: {', '.join(versions)}"
        yield Violation("version", message, tuple(Fix("version", each) for each in reversed(versions)))


@rule("G305", why="the kernel does not have it")
def pass_unsupported(case: Case) -> Iterator[Violation]:
    """The family does not have this pass.

    What: Every one of `passes` is a pass of the family.

    Why: Some kernels have no backward pass, others exist for training alone.

    Fix: A family with a forward pass alone takes `passes: [forward]`. Gradients need another family.
    """
    passes = get_family(case.family).passes
    if case.pass_name not in passes:
        message = f"{case.family} has no {case.pass_name} pass; it has: {join_words(passes, 'and')}"
        yield Violation("passes", message, (Fix("passes", passes),))


@rule("G306", why="it would be tuned and stored twice")
def pass_repeated(case: Case) -> Iterator[Violation]:
    """A pass is listed twice.

    What: `passes` names each pass once.

    Why: Each pass of each problem is one task with one entry in the tuned profile.

    Fix: `[forward, forward]` -> `[forward]`, or `[forward, backward]` if that was meant.
    """
    unique = tuple(dict.fromkeys(case.passes))
    if len(unique) < len(case.passes):
        repeated = next(each for each in unique if case.passes.count(each) > 1)
        yield Violation("passes", f"{repeated} is listed {case.passes.count(repeated)} times", (Fix("passes", unique),))


def _near(arch: str) -> list[str]:
    from attnctl.profile.names import nearest  # noqa: PLC0415 - only for names that are wrong

    digits = "".join(each for each in arch if each.isdigit())
    return [f"sm_{digits}"] if f"sm_{digits}" in ARCHES else list(nearest(arch, tuple(ARCHES), 2))

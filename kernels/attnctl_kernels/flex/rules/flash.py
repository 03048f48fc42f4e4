"""FLEX-011 to FLEX-014: flash-attn-4 as FlexAttention's backend."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from attnctl_kernels.arch import ARCHES
from attnctl_kernels.contract import Case
from attnctl_kernels.families import get_family
from attnctl_kernels.flex import options
from attnctl_kernels.rule import Fix, Severity, Violation, check, rule

FAMILY = "fa4"
HOPPER_AND_OLDER = ("sm_80", "sm_86", "sm_89", "sm_90")
_TRITON = Fix("config.BACKEND", "TRITON")


@rule(
    "FLEX-011",
    why="the flash backend has no other way to run it",
    upstream=(
        "BACKEND='FLASH' but flash attention cannot be used: {}",
        "CUTE flash attention library is not available.",
        "Returning max scores is not supported with BACKEND='FLASH'.",
        (
            "FLASH backend backward does not support differentiating through logsumexp (dLSE). This happens when the "
            "loss "
            "depends on the LSE output of flex_attention."
        ),
        (
            "Mixed query, key, and value dtype is not supported on this platform, got query.dtype: {}, key.dtype: {}, "
            "and "
            "value.dtype: {}."
        ),
        "NYI: Flex Flash Attention bwd doesn't support captured grads yet.",
        "NYI: Flex Flash Attention bwd doesn't support mutated grads yet.",
        "Input buffers require gradients (not supported by flash attention",
    ),
)
def flash_backend_cannot_do_this(case: Case) -> Iterator[Violation]:
    """The call needs something that the FLASH backend does not have.

    What: With `BACKEND: FLASH`, all tensors have one element type; max_scores are not returned; no gradient flows
    through the log-sum-exp, or into tensors that score_mod or mask_mod capture; and where `dynamic` is set they
    capture no Python numbers. flash-attn-4 is installed.

    Why: The functions are compiled into flash-attn-4's kernels, which have a fixed set of outputs and inline captured
    numbers as constants.

    Fix: `BACKEND: TRITON` has all of these. A number that changes can be captured as a tensor on the device.
    """
    if options.kernel(case) != "flash":
        return
    problem = case.problem
    if problem.dtype_kv not in (None, problem.dtype):
        message = f"the FLASH backend does not mix dtype {problem.dtype} with dtype_kv {problem.dtype_kv}"
        yield Violation("problem.dtype_kv", message, (Fix("problem.dtype_kv", problem.dtype), _TRITON))
    reasons = {"return_max_scores": "does not return max_scores"}
    reasons["captured_tensors_need_grad"] = "gives captured tensors no gradient"
    if not options.is_forward(case):
        reasons["needs_lse_grad"] = "gives the log-sum-exp no gradient"
    if options.switch(case, "dynamic"):
        reasons["captured_scalars"] = "cannot inline captured numbers that change"
    for name, reason in reasons.items():
        if options.switch(case, name):
            name = f"config.{name}"  # noqa: PLW2901 - from here on the field
            yield Violation(name, f"the FLASH backend {reason}", (_TRITON, Fix(name, value=False)))


@rule("FLEX-012", why="the FLASH backend passes block sizes and shapes through to flash-attn-4")
def flash_attention_refuses(case: Case) -> Iterator[Violation]:
    """flash-attn-4 cannot run this problem with these blocks.

    What: With `BACKEND: FLASH` every rule of the family `fa4` about the problem, the arch and the sparse block holds.

    Why: FlexAttention calls flash-attn-4 with `block_size=BLOCK_SIZE` and leaves the tile to it. The usual 128 x 128
    is refused on sm_100 (query blocks are multiples of 256), and on sm_90 at head_dim 256 (key blocks of 80 or less)
    and, in the backward pass, at head_dim 192.

    Fix: sm_100: `sparse_block: [256, 128]`. sm_90, head_dim 192: [128, 96]. Or `BACKEND: TRITON`.
    """
    if options.kernel(case) != "flash" or case.arch not in ARCHES:
        return
    inner = _as_fa4(case)
    for field, found in _errors(inner).items():
        code, violation = found[0]
        fixes = [fix for fix in violation.fixes if fix.field != "arch" and not _still(inner, fix, field)]
        yield Violation(field, f"{code}: {violation.message}", (*fixes, _TRITON))


def _as_fa4(case: Case) -> Case:
    """The call that FlexAttention makes: no tile given, blocks always stated."""
    family = get_family(FAMILY)
    sparse = {name: block for name, block in case.sparse_blocks.items() if case.problem.mask.pattern != "dense"}
    block = case.sparse_block if case.problem.mask.pattern != "dense" else None
    configs = {name: family.default_config(case.problem, name, case.arch, sparse.get(name)) for name in case.passes}
    return replace(
        case,
        family=FAMILY,
        version=family.versions[-1],
        config=family.default_config(case.problem, case.pass_name, case.arch, block),
        sparse_block=block,
        given=frozenset({"sparse_block"} if block else ()),
        configs=configs,
        sparse_blocks=sparse,
        layout=None,
    )


def _errors(inner: Case) -> dict[str, list[tuple[str, Violation]]]:
    """By field; what is about tiles, which FlexAttention cannot set, stands at the sparse block."""
    found: dict[str, list[tuple[str, Violation]]] = {}
    for each, violation in check(inner, get_family(FAMILY).rules()):
        if each.severity is Severity.ERROR:
            field = "sparse_block" if violation.field.startswith("config.") else violation.field
            found.setdefault(field, []).append((each.code, violation))
    return found


def _still(inner: Case, fix: Fix, field: str) -> bool:
    """Whether flash-attn-4 refuses at the same place with the fix in place."""
    head, _, name = fix.field.partition(".")
    if head == "sparse_block":
        changed = replace(inner, sparse_block=fix.value)
    elif head == "problem":
        changed = replace(inner, problem=inner.problem.model_copy(update={name: fix.value}))
    else:
        return True
    block, blocks = changed.sparse_block, dict(changed.sparse_blocks)
    if head == "sparse_block":
        blocks = dict.fromkeys(blocks, block)
    config = get_family(FAMILY).default_config(changed.problem, changed.pass_name, changed.arch, block)
    return field in _errors(replace(changed, config=config, sparse_blocks=blocks))


@rule(
    "FLEX-013",
    why="the FLASH backend reads both lists",
    upstream=("Flash attention with block mask but without full blocks is not supported yet",),
)
def full_blocks_not_listed(case: Case) -> Iterator[Violation]:
    """The mask has no lists of full blocks, and the FLASH backend needs them.

    What: With `BACKEND: FLASH` and a mask, `separate_full_blocks` is true, as it is by default.

    Why: The forward lowering refuses a mask without full blocks; the backward one asserts that the transposed lists are
    there too.

    Fix: Leave `separate_full_blocks` out of `create_block_mask`.
    """
    if options.kernel(case) == "flash" and case.problem.mask.pattern != "dense":
        name = "separate_full_blocks"
        if not options.switch(case, name, default=True):
            message = "the FLASH backend needs the full blocks apart"
            yield Violation(f"config.{name}", message, (Fix(f"config.{name}", value=True), _TRITON))


@rule(
    "FLEX-014",
    passes=("backward",),
    why="blocks of dQ are added up by several programs, whose order has to be fixed ahead",
    upstream=(
        (
            "Deterministic backward for flex_attention with block_mask and BACKEND='FLASH' requires SM100+ (compute "
            "capability >= 10.0)."
        ),
        (
            "Deterministic backward for flex_attention with block_mask and BACKEND='FLASH' requires dQ write-order "
            "metadata."
        ),
        (
            "Deterministic backward for flex_attention with block_mask and BACKEND='FLASH' requires dQ KV "
            "scheduler-order "
            "metadata."
        ),
    ),
)
def deterministic_gradients_without_an_order(case: Case) -> Iterator[Violation]:
    """Deterministic gradients of a block mask are asked of the FLASH backend, which cannot order them.

    What: With `BACKEND: FLASH`, a mask and `deterministic` (`torch.use_deterministic_algorithms`), the arch is sm_100
    or newer, and the mask is created with `compute_dq_write_order=True`.

    Why: Programs of several key blocks add to the same dQ. On sm_100 they can wait for their turn, which the mask
    lists. On sm_90 there is no such order.

    Fix: sm_90: `BACKEND: TRITON`, whose dQ has one owner. sm_100: `compute_dq_write_order: true`.
    """
    if (
        options.kernel(case) != "flash"
        or not options.switch(case, "deterministic")
        or case.problem.mask.pattern == "dense"
    ):
        return
    field, off = "config.deterministic", Fix("config.deterministic", value=False)
    if case.arch in HOPPER_AND_OLDER:
        yield Violation(field, f"the FLASH backend has no deterministic gradients on {case.arch}", (_TRITON, off))
    elif not options.switch(case, "compute_dq_write_order"):
        fixes = (Fix("config.compute_dq_write_order", value=True), _TRITON, off)
        yield Violation(field, "the mask has no order in which dQ is written", fixes)

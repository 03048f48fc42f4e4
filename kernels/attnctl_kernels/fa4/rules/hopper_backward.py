"""FA4-B013 to B016 and B020: the backward kernel of sm_90."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from attnctl_kernels.contract import Case
from attnctl_kernels.fa4 import resources
from attnctl_kernels.fa4.backward import COUNTS, Sm90Backward, sm90_backward, sm90_registers, sm90_smem_bytes
from attnctl_kernels.fa4.call import Call
from attnctl_kernels.fa4.rules.hopper_products import modelled
from attnctl_kernels.rule import Fix, Severity, Violation, divisors_around, rule

HOPPER = ("sm_90",)


@rule(
    "FA4-B013",
    passes=("backward",),
    arches=HOPPER,
    why="dK and dV of a group are added up in one buffer, by two warp groups",
    upstream=("GQA backward requires head_dim == head_dim_v", "GQA backward assumes 2 warp groups"),
)
def grouped_heads_not_possible(case: Case) -> Iterator[Violation]:
    """Grouped heads in the backward pass, with head dimensions that differ or other than two warp groups (sm_90).

    What: Where num_heads_q is above num_heads_kv, head_dim equals head_dim_v and `num_wg` is 2.

    Why: The query heads of a group add to the same dK and dV, in float32, in the room that K and V had. The sum of both
    is laid out for one head dimension.

    Fix: (192, 128) with 16 on 4 heads: repeat the keys to 16 heads, which a sum over the group undoes in the gradient.
    """
    call = Call(case)
    if call.group < 2:
        return
    if call.dims[0] != call.dims[1]:
        dims = f"head_dim {call.dims[0]} differs from head_dim_v {call.dims[1]}"
        message = f"{dims}, with {call.group} query heads per key/value head"
        fix = Fix("problem.num_heads_kv", case.problem.num_heads_q, "keys and values repeated")
        yield Violation("problem.head_dim_v", message, (fix,))
    groups = case.config.get("num_wg")
    if isinstance(groups, int) and groups != 2:
        message = f"num_wg {groups} does not go with grouped heads, which need 2"
        yield Violation("config.num_wg", message, (Fix("config.num_wg", 2),))


@rule(
    "FA4-B014",
    passes=("backward",),
    arches=HOPPER,
    why="one index walks all rings, and warp groups share a product evenly",
    upstream=(
        "assert self.dO_stage in [1, self.Q_stage]",
        "assert self.PdS_stage in [1, self.Q_stage]",
        "dQ_single_wg only supports 2 warp groups",
        "assert self.num_wg_dQ % self.AtomLayoutMdQ == 0",
        "assert self.num_mma_threads + 128 == self.num_threads",
    ),
)
def stages_or_layouts_do_not_fit(case: Case) -> Iterator[Violation]:
    """The stages or thread layouts of the backward kernel do not fit each other (sm_90).

    What: `num_stages_dO` and `num_stages_PdS` are 1 or `num_stages_Q`. `num_wg` is 1 to 3, and 2 with `dQ_single_wg`.
    `AtomLayoutMSdP` and `AtomLayoutNdKV` divide it; `AtomLayoutMdQ` divides the warp groups that compute dQ, which is
    one with `dQ_single_wg`.

    Why: dO and dS run one step per step of Q: a ring of 1 waits, a ring of the same length goes along, any other would
    be out of step. The kernel says so in bare assertions, and says nothing of `AtomLayoutNdKV`: with 2 of 3 warp groups
    the third has no part of dK and dV to compute.

    Fix: `num_stages_Q: 2`: `num_stages_dO: 3` -> 1 or 2.
    """
    config = sm90_backward(case)
    if config is None:
        for name in COUNTS:
            value = case.config.get(name)
            if isinstance(value, int) and value < 1:
                yield Violation(f"config.{name}", f"{name} {value} is below 1", (Fix(f"config.{name}", 1),))
        return
    for name in ("num_stages_dO", "num_stages_PdS"):
        if getattr(config, name) not in (1, config.num_stages_Q):
            fixes = tuple(Fix(f"config.{name}", each) for each in dict.fromkeys((1, config.num_stages_Q)))
            message = f"{name} {getattr(config, name)} is neither 1 nor num_stages_Q {config.num_stages_Q}"
            yield Violation(f"config.{name}", message, fixes)
    if config.dQ_single_wg and config.num_wg != 2:
        fixes = (Fix("config.num_wg", 2), Fix("config.dQ_single_wg", False))
        yield Violation("config.num_wg", f"dQ_single_wg needs num_wg 2, not {config.num_wg}", fixes)
        return
    if config.num_wg > max(resources.REGISTER_CAP):
        fixes = (Fix("config.num_wg", max(resources.REGISTER_CAP)),)
        yield Violation("config.num_wg", f"num_wg {config.num_wg} is above {max(resources.REGISTER_CAP)}", fixes)
        return
    layouts = (
        ("AtomLayoutMSdP", "S and dP", config.num_wg),
        ("AtomLayoutNdKV", "dK and dV", config.num_wg),
        ("AtomLayoutMdQ", "dQ", config.num_wg_dQ),
    )
    for name, results, groups in layouts:
        value = getattr(config, name)
        if groups % value:
            fixes = tuple(Fix(f"config.{name}", each) for each in divisors_around(groups, value))
            message = f"{name} {value} does not divide the {groups} warp group{'s' * (groups > 1)} of {results}"
            yield Violation(f"config.{name}", message, fixes)


def _fixes(config: Sm90Backward, works: Callable[[Sm90Backward], bool]) -> tuple[Fix, ...]:
    """The largest smaller tile, or fewer stages, with which alone it works."""
    sides, stages = range(128, 0, -16), (1,)
    choices: dict[str, Sequence[int]] = {"tile_m": sides, "tile_n": sides}
    choices |= {"num_stages_dO": stages, "num_stages_PdS": stages}
    fixes = []
    for name, values in choices.items():
        smaller = (each for each in values if each < getattr(config, name))
        changed: list[dict[str, Any]] = [{name: each} for each in smaller]
        fixes += [Fix(f"config.{name}", each[name]) for each in changed if works(replace(config, **each))][:1]
    return tuple(fixes)


@rule(
    "FA4-B015",
    passes=("backward",),
    arches=HOPPER,
    why="the launch is refused after the kernel has been compiled",
)
def backward_shared_memory_exceeded(case: Case) -> Iterator[Violation]:
    """The backward tile does not fit into shared memory (sm_90).

    What: Q and dO in their stages, K, V, dS in its stages (and P likewise, unless it stays in registers), dQ in
    float32, and two rows of statistics take at most 232448 bytes.

    Why: Nothing checks it before the launch. At head_dim 128 the kernel's own 80 x 128 with two stages of each takes
    232448 bytes, to the last: Q 40960, dO 40960, K 32768, V 32768, dS 40960, dQ 40960, and 3072 for barriers and
    statistics on a boundary of 1024. 96 rows do not fit.

    Fix: 96 -> 80 rows, or `num_stages_PdS: 1`.
    """
    config = modelled(case)
    needed = sm90_smem_bytes(case.problem, config) if config else 0
    if config and needed > resources.SMEM_LIMIT:
        message = (
            f"a backward tile of {config.tile_m} x {config.tile_n} with {config.num_stages_Q}, {config.num_stages_dO} "
            f"and {config.num_stages_PdS} stages needs {needed} bytes of shared memory, the limit is "
            f"{resources.SMEM_LIMIT}"
        )
        fixes = _fixes(config, lambda each: sm90_smem_bytes(case.problem, each) <= resources.SMEM_LIMIT)
        yield Violation("config.tile_m", message, fixes, "" if fixes else "use a smaller tile and fewer stages")


@rule(
    "FA4-B016",
    passes=("backward",),
    arches=HOPPER,
    severity=Severity.WARNING,
    why="what does not fit is kept in local memory, which is many times slower",
)
def backward_accumulators_spill(case: Case) -> Iterator[Violation]:
    """The accumulators of the backward tile do not fit into registers (sm_90).

    What: Per thread of two warp groups, twice `tile_m * tile_n / 256` for S and dP, or `tile_m * head_dim / 256` for dQ
    if that is more, and `tile_n * head_dim / 256` for dK and `tile_n * head_dim_v / 256` for dV, are at most 216 (128
    with three warp groups).

    Why: dK and dV are kept over the whole walk. At head_dim 128, 80 x 128: 80 + 64 + 64 = 208.

    Fix: Fewer rows or keys per tile.
    """
    config = modelled(case)
    if config is None:
        return
    held, cap = sm90_registers(case.problem, config), resources.REGISTER_CAP[config.num_wg]
    if held > cap:
        message = f"the backward accumulators take {held} registers per thread, {cap} are free"
        fixes = _fixes(config, lambda each: sm90_registers(case.problem, each) <= cap)
        yield Violation("config.tile_n", message, fixes, "" if fixes else "use a smaller tile")


@rule(
    "FA4-B020",
    passes=("backward",),
    arches=HOPPER,
    why="the store of dQ along block lists has no order",
    upstream=("Deterministic not implemented for block-sparse backward",),
)
def deterministic_and_sparse(case: Case) -> Iterator[Violation]:
    """A deterministic backward pass with block lists (sm_90).

    What: With block lists, `deterministic` is false.

    Why: Programs add their parts of dQ in the order in which they finish. Dense calls wait for each other in order; the
    path along block lists asserts that nobody asked for that.

    Fix: `deterministic: false`, or sm_100 with a write order (FA4-B019).
    """
    if case.config.get("deterministic") and Call(case).sparse:
        message = "deterministic does not go with block lists on sm_90"
        fixes = (Fix("config.deterministic", False), Fix("mask.pattern", "dense"))
        yield Violation("config.deterministic", message, fixes)

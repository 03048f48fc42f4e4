"""Cases of FlexAttention, as the tool makes them, and fixes in place."""

import os
from dataclasses import replace

from attnctl_kernels.contract import Case, Layout, Mask, Problem
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Severity, check

FAMILY = get_family("flex")
CAUSAL = Mask(pattern="causal")
THOROUGH = int(os.environ.get("ATTNCTL_EXAMPLES", "1"))  # times as many random examples


def case_of(
    pass_name="forward", *, arch="sm_90", version="2.13", mask=CAUSAL, block=None, written=None, layout=None, **facts
):
    seqlen_q = facts.pop("seqlen_q", 4096)
    facts = {
        "batch_size": 1,
        "seqlen_q": seqlen_q,
        "seqlen_k": seqlen_q,
        "num_heads_q": 8,
        "num_heads_kv": facts.get("num_heads_q", 8),
        "head_dim": 128,
        "head_dim_v": facts.get("head_dim", 128),
        "dtype": "bfloat16",
        "mask": mask,
        **facts,
    }
    problem, written = Problem(**facts), written or {}
    config = {**FAMILY.default_config(problem, pass_name, arch, block), **written}
    sparse = block or FAMILY.sparse_block(problem, pass_name, config)
    given = frozenset(written) | ({"sparse_block"} if block else frozenset())
    return Case(
        family="flex",
        version=version,
        arch=arch,
        problem=problem,
        pass_name=pass_name,
        config=config,
        sparse_block=sparse,
        given=given,
        passes=(pass_name,),
        configs={pass_name: config},
        sparse_blocks={pass_name: sparse},
        layout=Layout(**layout) if layout else None,
    )


def found(case):
    """Code -> the violations."""
    by_code = {}
    for rule, violation in check(case, FAMILY.rules()):
        by_code.setdefault(rule.code, []).append(violation)
    return by_code


def errors(case):
    return {rule.code for rule, _ in check(case, FAMILY.rules()) if rule.severity is Severity.ERROR}


def applied(case, fix):
    """``case`` with the fix in place, defaults anew; None where its pass is no longer asked for."""
    head, _, name = fix.field.partition(".")
    problem, layout = case.problem, case.layout
    block = case.sparse_block if "sparse_block" in case.given else None
    written = {key: value for key, value in case.config.items() if key in case.given}
    if head == "passes":
        return None
    if head == "problem":
        problem = problem.model_copy(update={name: fix.value})
    elif head == "layout":
        layout = replace(layout or Layout(), **{name: fix.value})
    elif head == "sparse_block":
        block = fix.value
    elif head == "config":
        written = {key: value for key, value in {**written, name: fix.value}.items() if value is not None}
    facts = {key: getattr(problem, key) for key in type(problem).model_fields}
    return case_of(
        case.pass_name,
        arch=fix.value if head == "arch" else case.arch,
        version=fix.value if head == "version" else case.version,
        block=block,
        written=written,
        layout={name: getattr(layout, name) for name in layout.__dataclass_fields__} if layout else None,
        **facts,
    )

"""Problems, cases and upstream's own entry, for the tests of family fa4."""

from attnctl_kernels.contract import Case, Mask, Problem
from attnctl_kernels.fa4.spec import FAMILY
from attnctl_kernels.rule import Severity, check

CAUSAL = Mask(pattern="causal")


def make_problem(seqlen_q=1024, seqlen_k=None, *, heads=4, heads_kv=None, head_dim=128, head_dim_v=None, **more):
    return Problem(
        batch_size=more.pop("batch_size", 1),
        seqlen_q=seqlen_q,
        seqlen_k=seqlen_k or seqlen_q,
        num_heads_q=heads,
        num_heads_kv=heads_kv or heads,
        head_dim=head_dim,
        head_dim_v=head_dim_v or head_dim,
        dtype=more.pop("dtype", "bfloat16"),
        **{"mask": CAUSAL, **more},
    )


def make_case(problem, pass_name="forward", arch="sm_90", block=None, **config):
    """As the profile loader makes it: what is not given carries the kernel's default."""
    complete = {**FAMILY.default_config(problem, pass_name, arch, block), **config}
    sparse_block = block or FAMILY.sparse_block(problem, pass_name, complete)
    return Case(
        family="fa4",
        version=FAMILY.versions[-1],
        arch=arch,
        problem=problem,
        pass_name=pass_name,
        config=complete,
        sparse_block=sparse_block,
        given=frozenset(config) | ({"sparse_block"} if block else frozenset()),
        passes=(pass_name,),
        configs={pass_name: complete},
        sparse_blocks={pass_name: sparse_block},
    )


def codes(case, severity=None):
    return {rule.code for rule, _ in check(case, FAMILY.rules()) if severity in (None, rule.severity)}


def errors(case):
    return codes(case, Severity.ERROR)

"""Problems, configs and cases that several test files of this family use."""

from attnctl.rules.messages import find_messages
from attnctl_kernels.contract import Candidate, Case, Mask, Problem, Task
from attnctl_kernels.families import get_family
from attnctl_kernels.rule import Severity, check

BACKWARD_BLOCKS = ("block_q_dkv", "block_kv_dkv", "block_q_dq", "block_kv_dq")
VERSION = "0.11.2"
CAUSAL = Mask(pattern="causal")


def make_problem(seqlen_q=512, seqlen_k=None, *, heads=2, heads_kv=None, head_dim=64, batch_size=1, **changes):
    facts = {
        "batch_size": batch_size,
        "seqlen_q": seqlen_q,
        "seqlen_k": seqlen_q if seqlen_k is None else seqlen_k,
        "num_heads_q": heads,
        "num_heads_kv": heads if heads_kv is None else heads_kv,
        "head_dim": head_dim,
        "head_dim_v": head_dim,
        "dtype": "float16",
    }
    return Problem(**(facts | changes))


def make_config(block_q=64, block_kv=64, steps=2, *, wgs=1, backward=None, **changes):
    """``backward``: the four blocks of the backward kernels, in upstream's order."""
    config = {"block_q": block_q, "block_kv": block_kv, "max_concurrent_steps": steps, "compute_wgs_bwd": wgs}
    if backward:
        config |= dict(zip(BACKWARD_BLOCKS, backward, strict=True))
    return config | changes


def make_case(problem, config, pass_name="forward", passes=None, family="pallas_mgpu"):
    return Case(family, VERSION, "sm_90", problem, pass_name, config, passes=passes or (pass_name,))


def make_task(problem, pass_name="forward"):
    return Task(family="pallas_mgpu", version=VERSION, arch="sm_90", pass_name=pass_name, problem=problem)


def make_candidate(config):
    return Candidate(config=config)


def errors(case):
    """Codes of the errors that our rules find."""
    rules = get_family(case.family).rules()
    return {rule.code for rule, _ in check(case, rules) if rule.severity is Severity.ERROR}


def told_by(message):
    """Codes of the rules to which `explain --message` leads."""
    return {rule.code for match in find_messages([message]) for rule in match.rules}

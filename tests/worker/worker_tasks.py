"""Tasks and candidates of the ``faulty`` family."""

from attnctl.gpu.protocol import Hello
from attnctl_kernels.contract import Candidate, Mask, Problem, Task

HELLO = Hello(family="faulty", arch=None, device="cpu")
# Query blocks 0..3 by key blocks 0..3 of 64: row 1 sees nothing, nobody sees key block 2.
BLOCKS = Mask(pattern="blocks", block_size=(64, 64), rows=((0,), (), (0, 3), (1, 3)))


def problem(**changes):
    facts = {
        "batch_size": 1,
        "seqlen_q": 256,
        "seqlen_k": 256,
        "num_heads_q": 2,
        "num_heads_kv": 1,
        "head_dim": 32,
        "head_dim_v": 32,
        "dtype": "float32",
        "mask": Mask(pattern="causal"),
    }
    return Problem(**facts | changes)


def task(pass_name="forward", seed=0, **changes):
    return Task(family="faulty", version=None, arch=None, pass_name=pass_name, problem=problem(**changes), seed=seed)


def candidate(fault="none", delay_us=0, sparse_block=None):
    return Candidate(config={"fault": fault, "delay_us": delay_us}, sparse_block=sparse_block)

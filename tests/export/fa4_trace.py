"""``python fa4_trace.py EXPORTED.py``: run exported code against flash-attn-4 with fake tensors, up to the launch.

The mask, its lists and the tensors are those that attnctl's own launcher makes. Prints the compiled tile.
"""

import sys
from pathlib import Path

from attnctl_kernels.contract import Candidate, Mask, Problem
from attnctl_kernels.fa4 import launch

kernel = launch.forward_entry()  # sets the environment that flash-attn-4 reads when it is imported
exported = {}
exec(compile(Path(sys.argv[1]).read_text(), sys.argv[1], "exec"), exported)
(lengths,) = exported["FORWARD"]
problem = Problem(
    batch_size=1,
    seqlen_q=lengths[0],
    seqlen_k=lengths[1],
    num_heads_q=1,
    num_heads_kv=1,
    head_dim=64,
    head_dim_v=64,
    dtype="bfloat16",
    mask=Mask(pattern="causal"),
)
arguments = exported["FORWARD"][lengths]
tile_m, tile_n = arguments["tile_mn"]
candidate = Candidate(config={"tile_m": tile_m, "tile_n": tile_n}, sparse_block=exported["SPARSE_BLOCK"][lengths])

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

with FakeTensorMode():
    inputs = launch._fake_inputs(problem)
    mask = launch._mask_arguments(problem, candidate, inputs.q.device)
    blocks = mask.pop("block_sparse_tensors")
    with launch._recording(kernel) as recorder:
        out, lse, *_ = exported["attention"](inputs.q, inputs.k, inputs.v, block_lists=blocks[:4], **mask)
sys.stdout.write(
    f"{tuple(out.shape)} {tuple(lse.shape)} {(tile_m, tile_n) == candidate.sparse_block} {recorder.compiled}\n"
)

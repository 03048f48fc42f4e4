"""``python fa4_trace.py EXPORTED.py``: run exported code against flash-attn-4 with fake tensors, up to the launch.

The mask, its lists and the tensors are those that attnctl's own launcher makes. Prints the compiled tile.
"""

import sys
from pathlib import Path

from attnctl_kernels.contract import Candidate, Mask, Problem, Task
from attnctl_kernels.fa4.launch.arguments import fake_inputs, mask_arguments
from attnctl_kernels.fa4.launch.entry import interface
from attnctl_kernels.fa4.launch.recording import recording

upstream = interface()  # sets the environment that flash-attn-4 reads when it is imported
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
task = Task(family="fa4", version=None, arch="sm_90", pass_name="forward", problem=problem)
candidate = Candidate(config={"tile_m": tile_m, "tile_n": tile_n}, sparse_block=exported["SPARSE_BLOCK"][lengths])

from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: E402

with FakeTensorMode():
    inputs = fake_inputs(task)
    mask = mask_arguments(task, candidate, inputs.q.device)
    blocks = mask.pop("block_sparse_tensors")
    with recording([upstream._flash_attn_fwd]) as recorders:
        out, lse, *_ = exported["attention"](inputs.q, inputs.k, inputs.v, block_lists=blocks[:4], **mask)
sys.stdout.write(
    f"{tuple(out.shape)} {tuple(lse.shape)} {(tile_m, tile_n) == candidate.sparse_block} "
    f"{any(recorders[0].compiled.values())}\n"
)

# The choice of the backward config, which is upstream's again behind the call.
own = upstream._tile_size_bwd_sm90
upstream._flash_attn_bwd = lambda *_, **__: upstream._tile_size_bwd_sm90(64, 64, causal=False, local=False)
chosen = exported["gradients"](*[inputs.q] * 6)
sys.stdout.write(f"{chosen == exported['BACKWARD'][lengths]} {upstream._tile_size_bwd_sm90 is own}\n")

"""What ptxas makes of the Pallas kernels of `ranker_fa3`, beside JAX's own: registers, spills, instructions of loops.

Needs no GPU: XLA compiles for a description of one. Needs jax 0.11 with its CUDA 13 plugin (jax-cuda13-plugin and
jax-cuda13-pjrt), ptxas and libdevice (nvidia-cuda-nvcc, nvidia-nvvm) and, for the loops, an nvdisasm beside that ptxas.

    python benchmarks/pallas_ptxas.py
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ |= {
    "JAX_SKIP_CUDA_CONSTRAINTS_CHECK": "1",  # there is no driver to ask
    "MOSAIC_GPU_DUMP_PTXAS": "1",
    "MOSAIC_GPU_DUMP_SASS": "1",
}

import jax
import jax.numpy as jnp
from jax.experimental import topologies
from jax.experimental.pallas.ops.gpu import attention_mgpu
from jax.sharding import SingleDeviceSharding

from attnctl_kernels.ranker_fa3.sm90.dkv import dkv
from attnctl_kernels.ranker_fa3.sm90.dq import dq
from attnctl_kernels.ranker_fa3.sm90.forward import forward
from attnctl_kernels.ranker_fa3.sm90.scores import Scores

H200 = """
gpu_device_info {
  threads_per_block_limit: 1024 threads_per_warp: 32 threads_per_core_limit: 2048 core_count: 132 fpus_per_core: 128
  shared_memory_per_block: 49152 shared_memory_per_block_optin: 232448 shared_memory_per_core: 233472
  registers_per_core_limit: 65536 registers_per_block_limit: 65536
  block_dim_limit_x: 2147483647 block_dim_limit_y: 65535 block_dim_limit_z: 65535
  memory_bandwidth: 4800000000000 l2_cache_size: 52428800 clock_rate_ghz: 1.98 device_memory_size: 150000000000
  cuda_compute_capability { major: 9 minor: 0 }
}
platform_name: "CUDA"
device_description_str: "NVIDIA H200"
"""
SHAPE = (2, 8192, 16)
WATCHED = ("HGMMA", "MUFU", "FFMA", "FMUL", "FADD", "FMNMX", "FSEL", "ISETP", "LDL", "STL")
LABEL = re.compile(r"\s*(\.L_x_\d+):")
INSTRUCTION = re.compile(r"/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\d+ )?([A-Z0-9]+)[^;]*?(?:`\((\.L_x_\d+)\))?\s*;")


@contextlib.contextmanager
def captured() -> Iterator[Callable[[], str]]:
    """What XLA writes to the process's own standard output and error meanwhile."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log"
        kept = os.dup(1), os.dup(2)
        with path.open("w") as log:
            sys.stdout.flush()
            os.dup2(log.fileno(), 1)
            os.dup2(log.fileno(), 2)
            try:
                yield lambda: path.read_text(errors="replace")
            finally:
                os.dup2(kept[0], 1)
                os.dup2(kept[1], 2)


def loops(sass: str) -> Iterator[Counter[str]]:
    """Instructions of the innermost loops that hold matrix products."""
    labels: dict[str, int] = {}
    found: list[str] = []
    seen_until = -1
    for line in sass.splitlines():
        if label := LABEL.match(line):
            labels[label[1]] = len(found)
        elif code := INSTRUCTION.search(line):
            found.append(code[1])
            begin = labels.get(code[2] or "", -1)
            body = Counter(found[begin:])
            if code[1] == "BRA" and begin > seen_until and body["HGMMA"]:
                seen_until = len(found)
                yield body


def report(name: str, function: Callable[..., Any], *args: Any) -> None:
    with captured() as log:
        jax.jit(function).lower(*args).compile()
        text = log()
    print(name)
    for line in text.splitlines():
        if re.search(r"spill stores|Used \d+ registers|C75\d\d", line):
            print("   ", line.removeprefix("ptxas info    : ").strip())
    for body in loops(text):
        print(f"    loop of {body.total()}:", *(f"{each} {body[each]}" for each in WATCHED if body[each]))


def main() -> None:
    target = topologies.get_topology_desc("1x1x1", "cuda", target_config=H200, topology="1x1x1")
    array = partial(jax.ShapeDtypeStruct, sharding=SingleDeviceSharding(target.devices[0]))
    batch_size, seqlen, heads = SHAPE
    bound, rows = array((batch_size, 4), jnp.int32), array((batch_size, heads, seqlen), jnp.float32)

    def tensor(head_dim: int, dtype: Any = jnp.bfloat16) -> Any:
        return array((*SHAPE, head_dim), dtype)

    q = tensor(128, jnp.float16)
    config = attention_mgpu.TuningConfig(64, 128, 2)
    report("JAX's dense forward, 64 x 128", lambda q, k, v: attention_mgpu.attention(q, k, v, config, True), q, q, q)
    for head_dim, block_q, block_kv in ((128, 64, 128), (128, 128, 64), (64, 64, 192), (64, 128, 128), (256, 64, 64)):
        q = tensor(head_dim)
        kernel = partial(forward, scores=Scores(0.1), block_q=block_q, block_kv=block_kv, stages=2, schedule=True)
        report(f"forward, head_dim {head_dim}, {block_q} x {block_kv}", kernel, q, q, q, bound)
    for each in (dq, dkv):
        for head_dim, block_q, block_kv, wgs in (
            (128, 64, 64, 2),
            (128, 64, 128, 1),
            (64, 64, 64, 2),
            (256, 64, 64, 1),
        ):
            q = tensor(head_dim)
            kernel = partial(each, scores=Scores(0.1), block_q=block_q, block_kv=block_kv, stages=2, wgs=wgs)
            name = f"{each.__name__}, head_dim {head_dim}, {block_q} queries, {block_kv} keys, {wgs} warp groups"
            report(name, kernel, q, q, q, q, rows, rows, bound)


if __name__ == "__main__":
    main()

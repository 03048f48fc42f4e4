"""How long 10,000 problems take to validate in one process.

    python benchmarks/many_problems.py [--problems N] [--family fa4|blocks]

One profile lists N sequence lengths, half of which break a rule. Prints one line.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

from attnctl.rules.check import check_profile

PROFILES = {
    "fa4": """\
schema: 1
family: fa4
arch: sm_90
problem: {{batch_size: 2, seq_len: {lengths}, num_heads_q: 16, head_dim: 128, dtype: bfloat16}}
mask: {{pattern: causal}}
config:
  forward: {{tile_m: 128, tile_n: 128, mma_pv_is_rs: true, intra_wg_overlap: true}}
""",
    "blocks": """\
schema: 1
family: blocks
problem: {{batch_size: 2, seq_len: {lengths}, num_heads_q: 16, head_dim: 128, dtype: bfloat16}}
mask: {{pattern: causal}}
sparse_block: [128, 128]
config:
  forward: {{block_q: 64, block_kv: 64}}
""",
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=10_000)
    parser.add_argument("--family", choices=sorted(PROFILES), default="fa4")
    arguments = parser.parse_args()
    lengths = [128 * (1 + number // 2) + number % 2 for number in range(arguments.problems)]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "many.yaml")
        path.write_text(PROFILES[arguments.family].format(lengths=lengths), encoding="utf-8")
        begun, cpu_begun = time.perf_counter(), time.process_time()
        report = check_profile(path)
        seconds, cpu_seconds = time.perf_counter() - begun, time.process_time() - cpu_begun
    print(
        f"{arguments.family}: {report.problem_count} problems, {len(report.findings)} findings in {seconds:.2f} s "
        f"({cpu_seconds:.2f} s of processor time)"
    )


if __name__ == "__main__":
    main()

"""What `attnctl show` costs, cold, against `python -c "import torch"`.

    python benchmarks/show.py [--repeat N]

One profile of 8192 tokens, and a causal mask of 131072 tokens in blocks of 128: a million blocks. The commands take
turns; see benchmarks/validate.py.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from validate import ATTNCTL, TORCH, machine, medians, print_shares

PROFILE = """\
schema: 1
family: fa4
arch: sm_90
problem: {{batch_size: 1, seq_len: {tokens}, num_heads_q: 16, head_dim: 128, dtype: bfloat16}}
mask: {{pattern: causal}}
sparse_block: [128, 128]
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=15)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        commands = {'python -c "import torch"': TORCH}
        for tokens in (8192, 131072):
            profile = Path(folder, f"{tokens}.yaml")
            profile.write_text(PROFILE.format(tokens=tokens), encoding="utf-8")
            commands[f"attnctl show, {tokens} tokens"] = (*ATTNCTL, "show", str(profile))
        print(f"{machine()}; median of {arguments.repeat}\n")
        print_shares(medians(commands, arguments.repeat))


if __name__ == "__main__":
    main()

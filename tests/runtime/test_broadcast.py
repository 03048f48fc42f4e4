"""What docs/runtime.md says to do without a shared folder, between real processes."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tuned_profiles import store_tuned, tile, write

ROOT = Path(__file__).parents[2]
RECIPE = next(
    block
    for block in re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "runtime.md").read_text(), re.DOTALL)
    if "broadcast_object_list" in block
)
PROGRAM = """
import sys
import torch.distributed as dist
rank, ranks, store, recipe = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4]
dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
names = {}
exec(recipe, names)
print(names["config"])
dist.destroy_process_group()
"""


def test_all_ranks_get_what_rank_0_reads(tmp_path):
    """Each has a tuned profile of its own, as nodes have that share no folder."""
    pytest.importorskip("torch")
    tiles = [(64, 64), (128, 64), (16, 16)]
    ranks = []
    for rank, (block_q, block_kv) in enumerate(tiles):
        folder = tmp_path / f"node{rank}"
        store_tuned(write(folder), 1024, tile(block_q, block_kv))
        recipe = RECIPE.replace("profiles/ranker-8k.yaml", str(write(folder))).replace("8192", "1024")
        command = [sys.executable, "-c", PROGRAM, str(rank), str(len(tiles)), str(tmp_path / "store"), recipe]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "kernels")])}
        ranks.append(subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True))
    said = [rank.communicate(timeout=120)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0, 0]
    assert set(said) == {"{'block_q': 64, 'block_kv': 64, 'sparse_block': (64, 64)}\n"}

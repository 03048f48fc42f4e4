"""How long it takes to look through block arrays: processor and wall time, with and without reading the file.

    python benchmarks/layout.py [--heads 64] [--blocks 1250]

64 heads of 1250 x 1250 full blocks are 1e8 indices.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from attnctl.layouts.read import read_arrays
from attnctl.profile.load import load
from attnctl.rules.check import check_loaded
from attnctl_kernels.block_arrays.lists import survey
from attnctl_kernels.masks import EMPTY, block_lists, classify

PROFILE = """\
family: ranker_fa4
arch: sm_100
problem: {{seq_len: {tokens}, num_heads_q: {heads}, head_dim: 128}}
mask: {{pattern: {mask}}}
layout: {{path: layout.npz}}
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--heads", type=int, default=64)
    parser.add_argument("--blocks", type=int, default=1250)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder) / "profile.yaml"
        mask = f"history_candidate, history_len: {args.blocks * 128}"
        text = PROFILE.format(tokens=args.blocks * 128, heads=args.heads, mask=mask)
        profile.write_text(text, encoding="utf-8")
        loaded = load(profile)
        assert loaded.profile is not None
        tokens = args.blocks * 128
        lists = block_lists(classify(loaded.profile.mask, tokens, tokens, 128, 128) != EMPTY)
        arrays = _arrays(lists, args.heads)
        np.savez(Path(folder) / "layout.npz", **arrays)
        indices = sum(each.size for name, each in arrays.items() if name.endswith("idx"))
        print(f"{indices:.3g} indices")
        _timed("look through the lists", lambda: _surveys(arrays, args.blocks))
        _timed("read the file", lambda: read_arrays(Path(folder) / "layout.npz"))
        findings = _timed("all rules, file read", lambda: check_loaded(loaded).findings)
        print(f"{len(findings)} findings")


def _arrays(lists: Any, heads: int) -> dict[str, Any]:
    """The lists of one head, for each head anew; all blocks are full."""
    names = ("full_block_cnt", "full_block_idx")
    return {name: np.tile(each, (1, heads, *[1] * each.ndim)) for name, each in zip(names, lists[:2], strict=True)}


def _surveys(arrays: dict[str, Any], blocks: int) -> None:
    survey(arrays["full_block_cnt"], arrays["full_block_idx"], blocks)


def _timed(what: str, call: Callable[[], Any]) -> Any:
    wall, processor = time.perf_counter(), time.process_time()
    result = call()
    print(f"{what}: {time.process_time() - processor:.2f} s of processor time, {time.perf_counter() - wall:.2f} s")
    return result


if __name__ == "__main__":
    main()

"""Profiles that several tests of the command line use: one that is fine, and the five seed cases."""

GOOD = """\
family: ranker_fa3
arch: sm_90
problem: {seq_len: 1024, num_heads_q: 8, head_dim: 128}
mask: {pattern: history_candidate, history_len: 896}
config: {block_q: 64, block_kv: 128, max_concurrent_steps: 2}
"""

WARNS = GOOD.replace("block_q: 64", "block_q: 128")

# Backward sparse blocks of 64 for tiles of 64 with a factor of 2.
S0 = """\
family: fa4
arch: sm_90
passes: [forward, backward]
problem: {batch_size: 2, seq_len: 4096, num_heads_q: 16, head_dim: 128}
mask: {pattern: history_candidate, history_len: 3072}
sparse_block:
  forward: [128, 128]
  backward: [64, 128]
config:
  backward: {tile_m: 64, tile_n: 128, subtile_factor: 2}
"""

# Block arrays of another sequence length.
S1 = """\
family: ranker_fa4
version: xai-v1
arch: sm_100
passes: [forward, backward]
problem: {batch_size: 4, seq_len: 1000, num_heads_q: 8, head_dim: 128}
layout:
  num_blocks: 16
"""

# Key blocks that are not the key tile.
S2 = """\
family: sglang_fa4
arch: sm_90
problem: {seq_len: 8192, num_heads_q: 16, head_dim: 128}
mask: {pattern: sliding_window, window: 1024}
sparse_block: [128, 64]
config:
  forward: {tile_m: 128, tile_n: 128}
"""

# A backward pass without backward blocks.
S3 = """\
family: ranker_fa3
arch: sm_90
passes: [forward, backward]
problem: {batch_size: 4, seq_len: 1024, num_heads_q: 8, head_dim: 128}
mask: {pattern: history_candidate, history_len: 896}
config:
  block_q: 64
  block_kv: 128
  max_concurrent_steps: 2
  compute_wgs_bwd: 1
"""

# A length that two warp groups of 128 rows do not divide.
S4 = """\
family: ranker_fa3
arch: sm_90
passes: [forward, backward]
problem:
  batch_size: 4
  seq_len: 1000
  num_heads_q: 8
  head_dim: 128
mask: {pattern: history_candidate, history_len: 896}
config: {block_q: 64, block_kv: 128, max_concurrent_steps: 2, compute_wgs_bwd: 2,
         block_q_dkv: 128, block_kv_dkv: 64, block_q_dq: 128, block_kv_dq: 64}
version: xai
"""

"""RTRI: what the ranker's Triton kernels need, most of which nothing upstream checks."""

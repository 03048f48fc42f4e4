"""The ranker's Pallas Triton kernels of x-algorithm (`phoenix/xrex/pallas/ranker_attention.py` and `_v2.py`)."""

"""The Pallas history/candidate ranker of x-algorithm (`phoenix/xrex/pallas/ranker_attention_fa3.py`)."""

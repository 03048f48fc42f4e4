"""The CuTe DSL history/candidate ranker of x-algorithm (`cutedsl/ranker_attention_fa4.py`)."""

"""The CI gate: the rules, the tuned files, and a benchmark against what was there before."""

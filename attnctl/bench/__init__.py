"""Comparisons of what is on disk with the default, the incumbent and other families, and the gate."""

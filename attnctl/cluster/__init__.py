"""Tuning on a Ray cluster: the same sweep, whose devices and compile workers are on other machines.

Everything that imports ray is below this package, and is imported only when `tune --executor ray` asks for it.
"""

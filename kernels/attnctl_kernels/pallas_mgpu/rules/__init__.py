"""Rules of the TuningConfig kernels; `ranker_fa3` shares them, so each code exists once.

The order of upstream's own checks does not matter here: all faults are reported at once.
"""

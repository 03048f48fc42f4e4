"""A rank: waits until it may ask, and prints what it gets. Arguments: profile, length, a file to wait for, or `-`."""

import sys
import time
import warnings
from pathlib import Path

import attnctl

profile, seqlen, gate = sys.argv[1:]
while gate != "-" and not Path(gate).exists():
    time.sleep(0.01)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    config = attnctl.load_config(profile, seqlen_q=int(seqlen))
sys.stdout.write(f"{config} {[each.category.__name__ for each in caught]}\n")

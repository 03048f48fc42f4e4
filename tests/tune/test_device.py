"""The device must be what the profile is for; who else computes on it is told."""

from pathlib import Path

import pytest
from sweeps import ENVIRONMENT, profile

from attnctl.errors import Unavailable
from attnctl.profile.load import load
from attnctl.tune.device import check_device

FA4 = """\
schema: 1
family: fa4
arch: sm_90
problem: {batch_size: 2, seq_len: 8192, num_heads_q: 16, head_dim: 128, dtype: bfloat16}
mask: {pattern: causal}
"""


def check(tmp_path, **facts):
    said = []
    loaded = load(profile(tmp_path, FA4))
    check_device(Path("p.yaml"), loaded.profile, ENVIRONMENT.model_copy(update=facts), said.append)
    return said


def test_other_processes_on_the_device_are_told(tmp_path):
    assert check(tmp_path) == []
    assert check(tmp_path, other_processes=(7, 9)) == ["other processes compute on cuda:0: 7, 9; times may be noisy"]


def test_another_architecture_is_refused(tmp_path):
    with pytest.raises(Unavailable, match=r"p\.yaml: is for sm_90, and cuda:0 .* is sm_100"):
        check(tmp_path, arch="sm_100")

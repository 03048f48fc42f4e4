"""Public reports about performance gates (B58): noise neither passes nor blames."""

import pytest
from simulated_device import SimulatedDevice, benchmark, write_profile, write_tuned

from attnctl.errors import ExitCode
from attnctl.gate.run import Gated
from attnctl.report import _gate as report


def gated(tmp_path, times_us, *, band, stored_us=100.0, against=("default", "incumbent"), **machine):
    path = write_profile(tmp_path)
    write_tuned(path, stored_us)
    match, _ = benchmark(path, SimulatedDevice(times_us, **machine), band=band, against=against)
    return Gated(path, (1, 1), matches=[match])


def said(found):
    return "\n".join([*report.text(found), *report.commands(found), *report.markdown([found]), report.junit([found])])


def test_thirteen_percent_of_noise_against_a_band_of_ten_is_inconclusive(tmp_path):
    found = gated(tmp_path, {128: 100.0, 64: 100.0, 16: 100.0}, band=0.10, swings=0.13)
    assert found.exit_code is ExitCode.INCONCLUSIVE
    text = said(found)
    assert "inconclusive" in text
    assert "::warning " in text
    for blame in ("::error", "<failure", "regression", "❌", "| ✅ pass"):
        assert blame not in text


def test_a_real_slow_down_fails(tmp_path):
    found = gated(tmp_path, {128: 120.0, 64: 100.0, 16: 100.0}, band=0.05, noise=0.01)
    assert found.exit_code is ExitCode.FINDINGS
    assert '<failure type="regression"' in said(found)


def test_a_machine_that_became_slower_is_no_regression(tmp_path):
    """Stored as 22.5 ms, now 25.5; so is what ran beside it."""
    found = gated(tmp_path, {128: 25500.0, 64: 25500.0, 16: 25500.0}, band=0.05, stored_us=22500.0)
    assert found.exit_code is ExitCode.OK


@pytest.mark.parametrize("noise", [0.08, 0.3])
def test_noise_above_the_band_is_named(tmp_path, noise):
    found = gated(tmp_path, {128: 100.0, 64: 100.0, 16: 100.0}, band=0.005, noise=noise)
    assert found.exit_code is ExitCode.INCONCLUSIVE
    assert "noise of" in said(found) or "neither clears nor exceeds" in said(found)


def test_a_config_that_fails_is_a_failure_and_no_regression(tmp_path):
    found = gated(tmp_path, {128: "out is wrong", 64: 100.0, 16: 100.0}, band=0.05)
    assert found.exit_code is ExitCode.FINDINGS
    assert "config-fails" in said(found)
    assert "regression" not in said(found)

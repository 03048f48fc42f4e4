"""What is wrong with a profile that can neither be tuned nor benchmarked."""

from __future__ import annotations

from attnctl.profile.load import Loaded
from attnctl.rules.check import check_loaded
from attnctl.rules.finding import Finding
from attnctl_kernels.rule import Severity

_TARGET = {"arch", "version", "passes"}  # errors there leave nothing to measure; others bar single configs


def stopping_findings(loaded: Loaded) -> list[Finding]:
    """Without a profile all findings, otherwise the errors that no candidate can mend."""
    findings = check_loaded(loaded).findings
    if loaded.profile is None:
        return list(findings)
    return [each for each in findings if each.severity is Severity.ERROR and each.field in _TARGET]

"""A family without a backward pass, which runs on any device and has no rules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from attnctl_kernels.contract import Family, Frozen, PassName, Problem, Scalar, SparseBlock


class NoParameters(Frozen):
    pass


class ForwardOnly(Family):
    name = "forward_only"
    title = "a family without a backward pass"

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return {"forward": NoParameters}[pass_name]

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        return {}

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        return {}


FAMILY = ForwardOnly()

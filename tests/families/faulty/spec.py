"""A family whose configs name a fault: it stands for every way in which a kernel goes wrong.

It is found through ``ATTNCTL_FAMILY_PATH=tests/families``, as any family outside the tree.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, get_args

from pydantic import BaseModel, ConfigDict, Field

from attnctl_kernels.contract import Family, PassName, Problem, Scalar, SparseBlock

Fault = Literal[
    "none",
    "nan_fast",  # writes NaN, at once
    "nan_blind_rows",  # softmax over nothing is 0 / 0
    "ignores_sparsity",  # dense attention, whatever the mask
    "reads_unseen",  # weight 0 times every key, also those that nobody sees
    "illegal",  # raises as CUDA does on an illegal access
    "device_assert",  # a real sticky CUDA error
    "abort",  # SIGABRT
    "scribbles",  # into tensors that it was not given
    "device_hang",  # a kernel that does not end
    "slow_sparse",  # slower than without a mask
    "slow_dense",  # slow without a mask only
    "orphan",  # exits, and a child of it holds the pipes open
    "hang",  # and is deaf to SIGTERM, and so is a child of it
    "oom",  # takes memory until somebody stops it, 2 GiB at most
    "memory_error",  # asks for more than there is
    "launch_refused",  # the launcher's own OutOfResources
    "raises_beside",  # a CUDA error once another call has run between two of its own
    "aborts_beside",  # SIGABRT, likewise
    "wrong_beside",  # one row is wrong, likewise
    "scribbles_beside",  # into an input that all share, likewise
    "writes_first_half",
    "writes_second_half",
    "accumulates",  # adds into its output
    "accumulates_inside",  # adds into a buffer of its own
    "flaky",  # one row is wrong in every 20th run
    "tail_zero_weight",  # rounds the keys up to 64 with zeros, and does not mask them
    "writes_inputs",
    "wrong_row",  # one row of one head
    "wrong_shape",
    "prints",  # a lot, to stdout
    "bind_error",
    "leaks",  # raises an exception that holds 10 MB, in a cycle
    "compile_error",
    "compile_abort",
    "compile_hang",
    "compile_disk_full",  # its cache takes no more, in the compile worker
    "bind_disk_full",  # or where it is measured
    "compile_oom",  # a compiler that the worker has started takes memory until somebody stops it, 2 GiB at most
]
FAULTS: tuple[str, ...] = get_args(Fault)


class Config(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    fault: Fault | None = None
    delay_us: Annotated[int, Field(ge=0)] | None = None


class Faulty(Family):
    name = "faulty"
    title = "Plain attention with a fault of your choice"
    passes = ("forward", "backward")
    flat_config = True

    def config_model(self, pass_name: PassName) -> type[BaseModel]:
        return Config

    def default_config(
        self, problem: Problem, pass_name: PassName, arch: str | None, sparse_block: SparseBlock | None
    ) -> dict[str, Scalar]:
        return {"fault": "none", "delay_us": 0}

    def space(self, problem: Problem, pass_name: PassName, arch: str | None) -> Mapping[str, Sequence[Any]]:
        return {"fault": ("none",), "delay_us": (0, 1000, 2000)}


FAMILY = Faulty()

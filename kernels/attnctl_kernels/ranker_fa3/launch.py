"""Lower, compile and call attnctl's own Pallas kernels. Worker processes only.

A call is one XLA program, as in ``pallas_mgpu``: the kernel, or the two kernels of the backward pass behind the sum of
``out * dout`` over each row.
"""

from __future__ import annotations

import numpy as np

from attnctl_kernels.contract import Candidate, CompileError, Task
from attnctl_kernels.pallas_mgpu.launch import Arrays, PallasLauncher, Program, scale_of
from attnctl_kernels.ranker_fa3 import attention as own
from attnctl_kernels.ranker_fa3.sm90.scores import Scores
from attnctl_kernels.ranker_fa3.spec import FAMILY, PARAMETERS, bound_of


class RankerLauncher(PallasLauncher):
    family = "ranker_fa3"
    lse_unit = 1.0

    def sources(self) -> dict[str, str]:
        return FAMILY.sources()

    def program(self, task: Task, candidate: Candidate) -> Program:
        problem, scale = task.problem, scale_of(task.problem)
        config = {name: value for name, value in candidate.config.items() if name in PARAMETERS}
        bound = np.array([bound_of(problem)] * problem.batch_size, np.int32)

        def forward(inputs: Arrays, _outputs: Arrays) -> Arrays:
            out, lse = own.attention(*inputs, bound, config, softmax_scale=scale, return_lse=True)
            return out, lse

        def backward(inputs: Arrays, _outputs: Arrays) -> Arrays:
            q, k, v, out, lse, dout = inputs
            tuning = own.tuning(config, problem.head_dim)
            return own.backward(tuning, Scores(scale), q, k, v, bound, out, lse, dout)

        if problem.mask.pattern not in ("dense", "history_candidate"):
            raise CompileError(f"ranker_fa3 has no {problem.mask.pattern} mask")
        return {"forward": forward, "backward": backward}[task.pass_name]


LAUNCHER = RankerLauncher()

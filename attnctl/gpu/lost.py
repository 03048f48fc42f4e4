"""What became of a worker that is lost, and who is to blame."""

from __future__ import annotations

from attnctl.errors import Unavailable
from attnctl.gpu.protocol import PhaseName, Result
from attnctl_kernels.contract import Outcome

# No kernel and no driver ends a process by these: a user, a job scheduler or the system has.
_FROM_OUTSIDE = frozenset(f"killed by {name}" for name in ("SIGKILL", "SIGTERM", "SIGHUP", "SIGINT"))


class WorkerLost(Exception):
    """The worker died, hung, or took too much memory. By now it has been killed with its process group."""

    def __init__(
        self,
        phase: PhaseName,
        reason: str,
        *,
        timed_out: bool = False,
        out_of_memory: bool = False,
        tail: str = "",
        subject: str | None = None,
        begun: bool = True,
        result: Result | None = None,
    ) -> None:
        super().__init__(f"{reason} in {phase}")
        self.phase = phase
        self.reason = reason
        self.timed_out = timed_out
        self.out_of_memory = out_of_memory
        self.tail = tail  # the end of what the worker printed during this request
        self.subject = subject  # finals: the contender at fault, where that is known
        self.result = result  # where the worker lived to tell it
        self.begun = begun  # False: it ended before it had said anything about the request, which is not to blame

    @property
    def blamed(self) -> bool:
        """False: what the worker was busy with is innocent, and should be given another one, once."""
        return self.begun and self.reason not in _FROM_OUTSIDE

    def as_result(self) -> Result:
        """What it means for the candidate that the worker was busy with."""
        if self.result is not None:
            return self.result
        if self.timed_out:
            outcome = Outcome.TIMEOUT
        elif self.out_of_memory:
            outcome = Outcome.OUT_OF_RESOURCES
        else:
            outcome = Outcome.WORKER_DIED
        return Result(outcome=outcome, reason=self.reason, detail=self.tail)

    def as_unavailable(self) -> Unavailable:
        """What it means where no candidate is to blame."""
        last_line = self.tail.rpartition("\n")[2]
        return Unavailable(f"the worker was lost in {self.phase}: {self.reason}", last_line)

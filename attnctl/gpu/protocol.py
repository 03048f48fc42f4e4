"""What the tool and its worker processes say to each other: one JSON object per line, over pipes of their own.

The tool sends a :class:`Request`; the worker answers with any number of :class:`Phase` lines, so that the tool
can hold each phase to its own deadline, and one reply. A worker never lets an exception of a kernel
escape: it is a :class:`Result` with an outcome. A worker that dies or hangs is the tool's to notice.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from attnctl_kernels.contract import Candidate, Compiled, Frozen, Outcome, Span, Task

PhaseName = Literal["start", "prepare", "compile", "first_call", "check", "timing", "finals"]
CachePolicy = Literal["cold", "warm"]


class Hello(Frozen):
    """First request: import the framework, open the device, describe it."""

    op: Literal["hello"] = "hello"
    family: str
    arch: str | None
    device: str  # "cpu", "cuda:0"; "none": compile workers open no device


class Prepare(Frozen):
    """Make inputs and the reference for a task; later requests are about this task."""

    op: Literal["prepare"] = "prepare"
    task: Task
    cache: CachePolicy = "cold"


class Measure(Frozen):
    """Check a candidate, then time it. ``best_us`` allows giving up on one that is clearly slower."""

    op: Literal["measure"] = "measure"
    candidate: Candidate
    best_us: float | None = None
    max_samples: int = 2000
    second_seed: bool = False  # repeat the check on another seed, and more often (winners)
    probes: bool = False  # run the small probe problems even if each costs a compilation


class Contender(Frozen):
    """One slot of the finals; the incumbent runs twice, under two names."""

    name: str
    candidate: Candidate


class Finals(Frozen):
    """Time contenders interleaved: cycles of one sample each, in rotating and alternating order."""

    op: Literal["finals"] = "finals"
    contenders: tuple[Contender, ...]
    cycles: int


class Compile(Frozen):
    """Compile ahead, without a GPU, into the family's cache. Compile workers only."""

    op: Literal["compile"] = "compile"
    task: Task
    candidate: Candidate


class Bye(Frozen):
    op: Literal["bye"] = "bye"


Request = Annotated[Hello | Prepare | Measure | Finals | Compile | Bye, Field(discriminator="op")]
REQUEST: TypeAdapter[Request] = TypeAdapter(Request)


class Environment(Frozen):
    """What was measured on. ``device_name`` is the slug that names the tuned folder."""

    device_name: str
    device: str
    arch: str | None
    uuid: str | None = None
    num_sms: int | None = None
    threads: int | None = None  # CPU: threads of the framework, from the process's affinity
    l2_bytes: int | None = None
    memory_bytes: int | None = None
    driver: str | None = None
    versions: dict[str, str] = {}
    power_limit_w: float | None = None
    clock_default_mhz: int | None = None
    clock_max_mhz: int | None = None
    temperature_c: int | None = None
    other_processes: tuple[int, ...] = ()

    @property
    def lock_name(self) -> str:
        """The physical device: its UUID where it has one, or else the machine's name for it."""
        index = self.device.partition(":")[2]
        return self.uuid or (f"{self.device_name}-{index}" if index else self.device_name)

    @property
    def running_versions(self) -> dict[str, str]:
        """What a result depends on: packages, compiler, kernel sources and driver."""
        driver = {"driver": self.driver} if self.driver else {}
        return {**self.versions, **driver}


class Prepared(Frozen):
    """Facts about the task that go with every result."""

    density: float  # visible pairs over all pairs
    flop: float  # operations that the mask needs, for effective TFLOP/s
    tolerance: dict[str, float]  # per output: allowed RMS error over the reference's RMS
    row_tolerance: dict[str, float] = {}  # likewise for the worst single row
    baseline_error: dict[str, float]  # what plain PyTorch at this dtype makes against the same reference
    seconds: float
    device_bytes: int = 0  # that inputs and references hold; 0 where that is not known


class Timing(Frozen):
    """Latency of one call, in microseconds; ``samples_us`` are in measured order."""

    median_us: float
    p20_us: float
    p80_us: float
    min_us: float
    count: int
    samples_us: tuple[float, ...]
    cache: CachePolicy
    graph_calls: int = 0  # > 0: each sample is one CUDA graph of this many calls
    gave_up: bool = False  # stopped after the estimate: more than twice the best so far


class Check(Frozen):
    """How far the outputs are from the reference: RMS error over RMS of the reference, per output."""

    error: dict[str, float]
    worst_row: dict[str, float] = {}  # the same for the worst single row
    checked_fraction: float  # of the (batch, head) pairs; that all elements are finite is checked everywhere
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()  # it is right, and still something is wrong with it


class Result(Frozen):
    """What happened to one candidate."""

    reply: Literal["result"] = "result"
    outcome: Outcome
    reason: str = ""  # one line for people
    detail: str = ""  # the end of the compiler's or framework's message; strings only, never an exception
    timing: Timing | None = None
    check: Check | None = None
    compiled: Compiled | None = None
    lists_us: float | None = None  # building the block lists, to the device; None: the kernel reads none
    seconds: dict[str, float] = {}  # wall time per phase
    poisoned: bool = False  # sticky device error: this worker must be replaced
    span: Span | None = None  # set by the worker that answered; None: it was lost


class Ready(Frozen):
    reply: Literal["ready"] = "ready"
    environment: Environment
    compiles: bool = True  # False: the family has nothing to compile ahead, so a compile pool is no use
    device_count: int = 1  # of this kind on this machine, as far as the worker may see them


class PreparedReply(Frozen):
    reply: Literal["prepared"] = "prepared"
    prepared: Prepared


class Cycle(Frozen):
    """One round of the finals: a sample per contender, and the machine's state."""

    samples_us: dict[str, float]
    sm_clock_mhz: int | None = None
    throttle: tuple[str, ...] = ()  # NVML's reasons: "thermal", "power_brake", "power_cap"


class FinalsReply(Frozen):
    reply: Literal["finals"] = "finals"
    cycles: tuple[Cycle, ...]
    failed: dict[str, Result] = {}  # contenders that failed here, by name
    broken: Result | None = None  # what ended the cycles, where nothing tells which contender it was
    span: Span | None = None  # set by the worker that answered


class CompileReply(Frozen):
    reply: Literal["compiled"] = "compiled"
    result: Result  # outcome ok, or compile_error


class Failed(Frozen):
    """The worker cannot serve at all (a missing package, no device): not a candidate's fault."""

    reply: Literal["failed"] = "failed"
    reason: str
    hint: str = ""  # what works instead
    extra: str | None = None  # the optional dependency group that would bring what is missing


class Phase(Frozen):
    """Sent when a phase begins, and again while finals go on; it starts the phase's deadline. Not a reply."""

    reply: Literal["phase"] = "phase"
    name: PhaseName
    subject: str | None = None  # finals: the contender that is being bound and checked


Reply = Annotated[
    Result | Ready | PreparedReply | FinalsReply | CompileReply | Failed | Phase, Field(discriminator="reply")
]
REPLY: TypeAdapter[Reply] = TypeAdapter(Reply)

"""What a compiler says about a config that the rules let through: faults that `validate --compile` finds."""

from __future__ import annotations

from attnctl.rules.form import Said, form
from attnctl_kernels.rule import Severity


@form("COMPILE001", why="what does not compile cannot run")
def does_not_compile(kernel: str, reason: str) -> Said:
    """The kernel does not compile.

    What: Tracing or compiling the kernel with this config raised an error, though every rule about it holds.

    Why: Rules describe what is known about a release of a kernel. A newer compiler, another release of the package or a
    corner that no rule covers shows only here.

    Fix: Read the compiler's message; `attnctl explain --message` may know it. Try the kernel's own default by leaving
    `config` out, then the nearest tiles: `tile_n: 112` instead of 128.
    """
    return f"{kernel} does not compile: {reason}", "use a tile that compiles; without `config` the kernel takes its own"


@form("COMPILE002", why="a compiler that dies takes the program that runs it along")
def compiler_died(kernel: str, reason: str) -> Said:
    """The compiler aborted, was killed, or took too much memory.

    What: The process that compiled this config ended by a signal (SIGABRT from an assertion inside the compiler,
    SIGKILL), or held more memory than its share of the machine and was stopped.

    Why: An abort cannot be caught. A program that compiles this config when it starts ends without a traceback, and a
    pool of processes that waits for the dead one waits for ever.

    Fix: Use another tile, such as the kernel's own, which it takes where `config` is left out. Where it was stopped for
    memory, compile with fewer workers: `--jobs 1`. The log in `.attnctl/logs` has the compiler's last words.
    """
    return f"compiling {kernel} ended its process: {reason}", "use another tile; the log is in .attnctl/logs"


@form("COMPILE003", why="a program that compiles it when it starts would hang as long")
def compiler_hangs(kernel: str, seconds: str) -> Said:
    """Compiling passed its deadline.

    What: The compiler was still busy when the deadline of `--deadline` (300 s) had passed, and was killed.

    Why: A kernel of this kind compiles in 5 to 60 seconds. Unrolled loops over large tiles can take minutes, and some
    configs never end.

    Fix: On a slow or busy machine give it more time: `--deadline 900`, or `--jobs 1`. Otherwise use a smaller tile.
    """
    return f"{kernel} was not compiled after {seconds} s", "use a smaller tile, or allow more with --deadline"


@form("COMPILE004", why="local memory is off the chip: each access goes through the caches", severity=Severity.WARNING)
def kernel_spills(kernel: str, local_bytes: int, registers: int) -> Said:
    """The kernel keeps values in local memory.

    What: The compiled kernel has a frame of local memory per thread. Registers that the compiler spilled are there, and
    arrays that it indexes with values known only at run time.

    Why: A kernel of 384 threads that spills 256 bytes moves 98,304 bytes per block and pass through the L1 cache, which
    shares its memory with the tiles. Of 681 fa4 candidates that ran on an H200, 85 had local memory, 8 to 872 bytes of
    it, and the fastest of those took 1.01 times as long as the best of its sweep (1.08 times in the forward pass). The
    kernel's own default may be one: 192 x 128 at head_dim 64 has 120 bytes and took 1.09 times as long as 192 x 64.

    Fix: Use a smaller tile, so that the accumulators fit: `tile_n: 96` instead of 128, or `tile_m: 128` instead of 192.
    `attnctl tune` measures whether it matters.
    """
    fault = f"{kernel} keeps {local_bytes} bytes per thread in local memory, at {registers} registers"
    return fault, "use a smaller tile, or measure with `attnctl tune` whether it matters"


@form("COMPILE005", why="the driver refuses to launch it")
def kernel_over_limit(kernel: str, resource: str, used: int, limit: int, arch: str) -> Said:
    """The compiled kernel asks for more than the arch has.

    What: Compiling succeeded, and the kernel's dynamic shared memory or its registers are over the limit of the arch.

    Why: The compiler does not know the launch, so nothing fails before the first call: with
    `CUDA_ERROR_INVALID_VALUE`, or a message about shared memory. On sm_90 a block has 232,448 bytes.

    Fix: Use a smaller tile. Two stages of K and V at `head_dim: 128` in bfloat16 take 1,024 bytes per column of
    `tile_n`: 96 instead of 128 saves 32,768.
    """
    return f"{kernel} asks for {used} {resource}; {arch} has {limit}", "use a smaller tile"

"""Consumer groups issue their products in turns: one multiplies while another computes its softmax."""

from cutlass import Int32, cute

from attnctl_kernels.ranker.sm90.traits import ForwardTraits

WARP_GROUP = 128  # threads
FIRST_BARRIER = 1  # of the named barriers: one per consumer group


def start_turns(t: ForwardTraits, group: Int32) -> None:
    if _taken(t):
        _first_turn(group)


@cute.jit
def _first_turn(group: Int32):
    if group == 0:
        cute.arch.barrier_arrive(barrier_id=FIRST_BARRIER, number_of_threads=2 * WARP_GROUP)


def take_turn(t: ForwardTraits, group: Int32) -> None:
    if _taken(t):
        cute.arch.barrier(barrier_id=FIRST_BARRIER + group, number_of_threads=2 * WARP_GROUP)


def pass_turn(t: ForwardTraits, group: Int32) -> None:
    if _taken(t):
        following = (group + 1) % t.warp_groups
        cute.arch.barrier_arrive(barrier_id=FIRST_BARRIER + following, number_of_threads=2 * WARP_GROUP)


def _taken(t: ForwardTraits) -> bool:
    return t.turns and t.warp_groups > 1

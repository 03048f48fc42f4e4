"""Compile what a sweep asks for first while its device is being opened, which takes as long as a kernel does."""

from __future__ import annotations

from collections.abc import Collection

from attnctl.gpu.interfaces import PoolLike
from attnctl.tune.space import Space
from attnctl.tune.strategies import Stop, Strategy
from attnctl_kernels.contract import Task


def compile_early(pool: PoolLike, task: Task, space: Space, strategy: Strategy, suspects: Collection[str]) -> None:
    """One candidate for every compile worker, but none of ``suspects``, by :attr:`Candidate.key`.

    What the device has to say, such as a config that is tuned for it, may lead to others. They are compiled as well.
    """
    choose, given = strategy.start(space), {each.key: each for each in space.required}
    while len(given) < pool.size and not isinstance(choice := choose({}, given), Stop):
        given[choice.key] = choice
    for key, candidate in given.items():
        if key not in suspects:
            pool.submit(task, candidate)

"""Workers say when they were busy, and which of them it was."""

import os
import time

import pytest
from worker_tasks import HELLO, candidate, task

from attnctl.gpu.protocol import Compile, Contender, Finals, Measure, Prepare
from attnctl.worker.server import Server
from attnctl_kernels.contract import Outcome


@pytest.fixture(scope="module")
def server(surroundings):
    """A worker's loop in this process: the stamps are the same."""
    server = Server(type("Channel", (), {"send": lambda self, reply: None})())
    server.answer(HELLO)
    server.answer(Prepare(task=task()))
    return server


def test_a_measurement_and_a_compilation_have_spans_of_their_own(server):
    before = time.time()
    measured = server.answer(Measure(candidate=candidate()))
    compiled = server.answer(Compile(task=task(), candidate=candidate())).result
    after = time.time()
    assert measured.outcome is compiled.outcome is Outcome.OK
    assert (measured.span.lane, compiled.compiled.span.lane) == ("measure", "compile")
    assert measured.span.worker == compiled.compiled.span.worker == os.getpid()
    times = [measured.span.begun, measured.span.ended, compiled.compiled.span.begun, compiled.compiled.span.ended]
    assert [before, *times, after] == sorted([before, *times, after])


def test_a_failed_compilation_has_a_span(server):
    failed = server.answer(Compile(task=task(), candidate=candidate("compile_error"))).result
    assert failed.outcome is Outcome.COMPILE_ERROR
    assert failed.span.lane == "compile"


def test_a_process_of_the_finals_has_a_span(server):
    before = time.time()
    contenders = tuple(Contender(name=name, candidate=candidate()) for name in ("incumbent", "again"))
    reply = server.answer(Finals(contenders=contenders, cycles=2))
    assert len(reply.cycles) == 2
    assert (reply.span.lane, reply.span.worker) == ("measure", os.getpid())
    assert before <= reply.span.begun <= reply.span.ended <= time.time()

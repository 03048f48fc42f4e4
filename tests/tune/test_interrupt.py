"""Which signals end a sweep, and what a sweep does without anybody who watches it."""

import os
import signal
import sys

import pytest

from attnctl.report._live import live
from attnctl.tune.interrupt import Interrupted, Interrupts


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_the_sweep(number):
    before = signal.signal(number, signal.default_int_handler)  # whoever runs the tests may ignore it
    try:
        with pytest.raises(Interrupted, match=number.name) as caught, Interrupts():
            os.kill(os.getpid(), number)
        assert caught.value.exit_code == 128 + number
        assert signal.getsignal(number) is signal.default_int_handler
    finally:
        signal.signal(number, before)


def test_a_signal_that_the_caller_ignores_stays_ignored():
    old = signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does
    try:
        with Interrupts():
            os.kill(os.getpid(), signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, old)


def test_a_sweep_outlives_who_was_watching_it(monkeypatch):
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1) as nobody:
        monkeypatch.setattr(sys, "stderr", nobody)
        progress = live(terminal=False)
        progress.say("one")
        progress.finals(1, 3, 2)
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), writing)  # what is left in the buffer needs a place

"""Promises of ``tfgrpo.flows.orchestration.interrupts``."""

from __future__ import annotations

import signal
import threading

import pytest

from tfgrpo.flows.orchestration.interrupts import termination_interrupts


def test_a_termination_is_an_interrupt_while_it_is_open_and_what_it_was_afterwards():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), termination_interrupts():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_in_another_thread_it_does_nothing():
    seen = []

    def work():
        with termination_interrupts():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGTERM)]

"""The coverage tracer doubles and triples the time of what it sees: it is off where it would see nothing new."""

from collections.abc import Iterator
from contextlib import contextmanager

import coverage

_stopped: list[coverage.Coverage] = []
"""The tracers that are off."""


@contextmanager
def untraced() -> Iterator[None]:
    """Stop the coverage tracer meanwhile."""
    stopped: list[coverage.Coverage] = []
    while (tracer := coverage.Coverage.current()) is not None:  # pytest-cov has two in a worker
        tracer.stop()
        stopped.append(tracer)
    _stopped.extend(stopped)
    try:
        yield
    finally:
        for tracer in reversed(stopped):
            _stopped.remove(tracer)
            tracer.start()


@contextmanager
def traced() -> Iterator[None]:
    """Show the coverage tracer what is made for many tests, though that which asks for it first is not traced."""
    started = [*_stopped]
    for tracer in reversed(started):
        tracer.start()
    try:
        yield
    finally:
        for tracer in started:
            tracer.stop()

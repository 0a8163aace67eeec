"""Score in worker processes: a pool of one scorer, whose processes are ended past a limit and replaced.

A call blocks its thread, at most as long as its limits say. A limit, an exit or an allocation without end costs the attempt
that the worker was asked about; the others go on. A scorer whose calls do not end for several items in a row is not asked for
a while, so that it cannot keep the machine busy without bound.
"""

from __future__ import annotations

import contextlib
import json
import os
import pickle
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from tfgrpo.rewarders.calling import Work, late, missing, patience, size
from tfgrpo.rewarders.scorer import Abstained, RewardContext, Scorer, Verdict
from tfgrpo.rewarders.threads import is_async
from tfgrpo.rewarders.worker import LONGEST, PROGRAM, decoded, receive, send

MOST_FAULTS: Final = 4
"""Items in a row whose calls ended a worker, after which the scorer is not asked for a while: the attempts at one are alike."""
PAUSE_S: Final = 30.0
"""How long it is not asked."""
START_S: Final = 120.0
"""Most seconds for a worker to import what the scorer needs, and to read what it is asked about."""
_LOOK_S: Final = 0.5
"""How often a silent worker is looked after: a copy of it that its code forked may keep the connection open."""
_LEAST_MEMORY: Final = 1 << 30
_GREEDY: Final = 4
"""Workers of which each may take all that it is allowed at the same time."""
_ENDED: Final = "scoring has ended"


def worker_count() -> int:
    """Return how many processes one scorer may have: as many as cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_limit() -> int:
    """Return the bytes of data that one worker may allocate: of half the machine's memory, a share for a few greedy ones.

    Not one for each core: libraries allocate, though they do not touch, tens of megabytes for each core.
    """
    try:
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError, AttributeError):
        return _LEAST_MEMORY
    return max(_LEAST_MEMORY, whole // (2 * min(worker_count(), _GREEDY)))


class NotIsolated(Exception):
    """A worker process cannot make the scorer."""


class _Unreadable(Exception):
    """A worker cannot read some of what it was asked about: their indices."""


class _Worker:
    """One process and the connection to it."""

    def __init__(self) -> None:
        """Start it. Raises ``OSError``, or ``ImportError`` where the system has no such processes."""
        ends: list[int] = []
        try:
            ours, theirs, lifeline, their_lifeline = ends = _connections()
            self.process = subprocess.Popen(  # noqa: S603 - our own module, by the interpreter that runs us
                [sys.executable, "-P", "-c", PROGRAM, str(theirs), str(their_lifeline), str(Path(__file__).parents[2])],
                pass_fds=(theirs, their_lifeline),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C at a terminal is the owner's, and children of the scorer end with it
            )
        except BaseException:
            for end in ends:
                os.close(end)
            raise
        os.close(theirs)
        os.close(their_lifeline)
        self.connection = socket.socket(fileno=ours)
        self._lifeline = os.fdopen(lifeline, "wb", buffering=0)
        self._poll = select.poll()
        self._poll.register(self.connection, select.POLLIN)
        self.fresh = True
        """It was not idle yet: what ends it, ends it while it is asked."""
        self.begun = False
        """The scorer's code was called since it was asked."""

    def make(self, scorer: Scorer) -> None:
        """Have it make the scorer. Raises ``NotIsolated``."""
        deadline = time.monotonic() + START_S
        try:
            self.say(pickle.dumps((sys.path, scorer.source, memory_limit())), START_S)
            answer = self.next(deadline)
        except TimeoutError:
            raise NotIsolated(f"its process could not make it within {START_S:g} s") from None
        except (OSError, EOFError) as error:
            raise NotIsolated(f"its process ended{self.ended()} while it made it") from error
        except Exception as error:
            raise NotIsolated(f"its options cannot be sent to a process: {error}") from error
        if answer != b"ready":
            raise NotIsolated(f"its process cannot make it: {_text(answer, 'refused ')}")

    def say(self, body: bytes, limit_s: float) -> None:
        """Send a message. Raises ``OSError``."""
        self.connection.settimeout(limit_s)
        send(self.connection, body)

    def next(self, deadline: float) -> bytes:
        """Return its next message. Raises ``TimeoutError``, ``EOFError`` when it has ended, ``ValueError`` for no message."""
        while not self._poll.poll(1000 * min(_LOOK_S, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                raise TimeoutError
            if self.process.poll() is not None and not self._poll.poll(0):
                raise EOFError
        self.connection.settimeout(min(START_S, max(1.0, deadline - time.monotonic())))
        return receive(self.connection, LONGEST)

    def ask(self, body: bytes, patience_s: float, tell: Callable[[bytes], None]) -> None:
        """Send work, and pass on the verdicts until all is done.

        Raises ``_Unreadable``, ``TimeoutError`` when a call takes longer than ``patience_s``, and ``OSError``, ``EOFError`` or
        ``ValueError`` when it has ended or sends what is no message.
        """
        self.begun = False
        self.say(body, START_S)
        deadline = time.monotonic() + START_S
        while (message := self.next(deadline)) != b"done":
            if message == b"begin":
                self.begun, deadline = True, time.monotonic() + patience_s
            elif message.startswith(b"unreadable "):
                raise _Unreadable(*json.loads(message.removeprefix(b"unreadable ")))
            else:
                tell(message)

    def is_alive(self) -> bool:
        """Return whether an idle worker can be asked: code of the scorer may have ended it since its last answer."""
        return self.process.poll() is None and not self._poll.poll(0)

    def ended(self) -> str:
        """Return how the process ended, as the end of a sentence; it gets a moment to."""
        try:
            code = self.process.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            return ": it closed its connection"
        if code >= 0:
            return f" with exit code {code}"
        with contextlib.suppress(ValueError):
            return f" by {signal.Signals(-code).name}"
        return f" by signal {-code}"

    def kill(self) -> None:
        """End the process and its children, from any thread; the one that asks it finds the connection ended."""
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()  # its code may have left the group
        self.process.wait()

    def release(self) -> None:
        """End it and close the connection, which no other thread may use any more."""
        self.kill()
        self.connection.close()
        self._lifeline.close()


class WorkerPool:
    """The worker processes of one scorer. Several threads may use it at once."""

    def __init__(self, scorer: Scorer, most: int | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        """``most``: processes at a time; None: as many as cores. ``clock``: of the pause after many faults."""
        self._scorer = scorer
        self._most = most or worker_count()
        self._clock = clock
        self._changed = threading.Condition()  # guards the fields below
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._starting = 0
        self._works = False
        """A process has made the scorer: one that does not is a fault, not a scorer that cannot be isolated."""
        self._faults: set[str] = set()
        """Items of the calls since the last verdict, all of which ended a worker."""
        self._paused_until = -1.0
        self._pause = ""
        """Why it is not asked."""
        self._closed = False

    def warm(self) -> None:
        """Start one process, so that the first call finds it. Raises ``NotIsolated``."""
        self._give_back(self._taken())

    def close(self) -> None:
        """End every process, whatever it is doing."""
        with self._changed:
            self._closed = True
            idle, busy = [*self._idle], [*self._busy]
            self._idle.clear()
            self._changed.notify_all()
        for worker in busy:
            worker.kill()
        for worker in idle:
            worker.release()

    def perform(self, work: Work, limit_s: float, given_up: threading.Event | None = None) -> dict[int, Verdict | None]:
        """Return the verdict on each attempt by its index; None for one that cannot be sent to another process.

        Raises ``NotIsolated`` when no process can make the scorer. When it is ``given_up``, no further call begins.
        """
        parts = _parts(work)
        names = [work.item_id if isinstance(work, RewardContext) else work[at].sample_id for at in range(len(parts))]
        unsent = [index for index, part in enumerate(parts) if part is None]
        found: dict[int, Verdict | None] = dict.fromkeys(self._with_inseparable(unsent, range(len(parts))))
        left = [index for index in range(len(parts)) if index not in found]
        alone = False
        while left:
            if (refusal := self._refusal(given_up)) is not None:
                return found | dict.fromkeys(left, refusal)
            asked = left[:1] if alone else left
            try:
                fault = self._ask([parts[index] for index in asked], limit_s, asked, found, names)
            except _Unreadable as error:
                unread = [asked[at] for at in error.args]
                found |= dict.fromkeys(self._with_inseparable(unread, asked))
            else:
                unanswered = [index for index in asked if index not in found]
                lost = unanswered if fault is None or alone else self._lost(unanswered)
                found |= dict.fromkeys(lost, fault or missing(self._scorer))
                alone = alone or not lost
            left = [*(index for index in asked if index not in found), *left[len(asked) :]]
        return found

    @property
    def _together(self) -> bool:
        """Whether attempts are scored together, so that none can be asked about without the others."""
        return self._scorer.scope == "group" or (self._scorer.scope == "batch" and not self._scorer.per_item)

    def _with_inseparable(self, lost: Sequence[int], asked: Sequence[int]) -> Sequence[int]:
        return asked if lost and self._together else lost

    def _lost(self, unanswered: Sequence[int]) -> Sequence[int]:
        """Return the attempts that an ended process costs; none when each is asked about alone to find out."""
        if self._together or len(unanswered) < 2:
            return unanswered
        in_order = self._scorer.scope == "item" and not is_async(self._scorer.call)
        return unanswered[:1] if in_order else []

    def _ask(
        self,
        parts: Sequence[bytes | None],
        limit_s: float,
        indices: Sequence[int],
        found: dict[int, Verdict | None],
        names: Sequence[str],
    ) -> Abstained | None:
        """Ask a worker about some attempts, and add their verdicts. Return why it was ended, None if it answered.

        Raises ``NotIsolated``, and ``_Unreadable`` with the places of attempts that it cannot read.
        """
        # Threads of a library may use every core.
        cpu_s = self._scorer.cpu_s or limit_s * worker_count()
        body = pickle.dumps((parts[:1] if self._scorer.scope == "group" else parts, limit_s, cpu_s))

        def tell(message: bytes) -> None:
            at, verdict = decoded(self._scorer.rewarder_id, message)
            found[indices[at]] = verdict
            self._faults.clear()

        while True:
            try:
                worker = self._taken()
            except NotIsolated as error:
                if self._closed:
                    return Abstained(self._scorer.rewarder_id, _ENDED)
                if not self._works:
                    raise
                self._count_fault(names[indices[0]], str(error))
                return self._broken(f"{error}, though it did before")
            try:
                worker.ask(body, patience(self._scorer, limit_s), tell)
            except _Unreadable:
                self._give_back(worker)
                raise
            except (OSError, EOFError, ValueError, LookupError, TypeError) as error:
                fault = self._fault(worker, error, limit_s, cpu_s)
                self._drop(worker)
                self._count_fault(names[next((at for at in indices if at not in found), indices[0])], fault.reason)
                if worker.begun or worker.fresh or self._closed:
                    return fault  # else it ended while it was idle, which costs no attempt
            else:
                self._give_back(worker)
                return None

    def _fault(self, worker: _Worker, error: Exception, limit_s: float, cpu_s: float) -> Abstained:
        """Return the verdict on the attempt that a worker did not answer."""
        if self._closed:
            return Abstained(self._scorer.rewarder_id, _ENDED)
        if isinstance(error, TimeoutError):
            return late(self._scorer, limit_s)
        if not isinstance(error, OSError | EOFError):
            return self._broken("its process sent what is no verdict")
        how = worker.ended()
        if worker.process.returncode == -signal.SIGPROF:
            return replace(late(self._scorer, cpu_s), reason=f"no score within {cpu_s:g} s of processor time")
        return self._broken(f"its process ended{how}")

    def _broken(self, reason: str) -> Abstained:
        return Abstained(self._scorer.rewarder_id, reason, broke=True)

    def _refusal(self, given_up: threading.Event | None) -> Abstained | None:
        """Return the verdict on everything while the scorer is not asked."""
        with self._changed:
            if self._closed or (given_up is not None and given_up.is_set()):
                return Abstained(self._scorer.rewarder_id, _ENDED)
            if self._clock() < self._paused_until:
                return self._broken(self._pause)
        return None

    def _count_fault(self, item: str, why: str) -> None:
        with self._changed:
            self._faults.add(item)
            if len(self._faults) >= MOST_FAULTS:
                self._faults.clear()
                self._paused_until = self._clock() + PAUSE_S
                self._pause = f"not asked for {PAUSE_S:g} s, after {MOST_FAULTS} items in a row: {why}"

    def _taken(self) -> _Worker:
        """Return an idle worker, or a new one as soon as there may be one. Raises ``NotIsolated``."""
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._closed or self._idle or len(self._busy) + self._starting < self._most
                )
                if self._closed:
                    raise NotIsolated(_ENDED)
                if not self._idle:
                    self._starting += 1
                    break
                worker = self._idle.pop()
                self._busy.add(worker)
            if worker.is_alive():
                return worker
            self._drop(worker)
        return self._started()

    def _started(self) -> _Worker:
        try:
            worker = _Worker()
        except (OSError, ImportError, AttributeError, ValueError) as error:
            raise NotIsolated(f"no process can be started: {error}") from error
        finally:
            with self._changed:
                self._starting -= 1
                self._changed.notify()
        with self._changed:
            self._busy.add(worker)  # from now on the end of the pool ends it
            closed = self._closed
        try:
            if closed:
                raise NotIsolated(_ENDED)
            worker.make(self._scorer)
        except BaseException:
            self._drop(worker)
            raise
        self._works = True
        return worker

    def _give_back(self, worker: _Worker) -> None:
        worker.fresh = False
        with self._changed:
            if not self._closed:
                self._busy.discard(worker)
                self._idle.append(worker)
                self._changed.notify()
                return
        self._drop(worker)

    def _drop(self, worker: _Worker) -> None:
        worker.release()
        with self._changed:
            self._busy.discard(worker)
            self._changed.notify()


def _parts(work: Work) -> list[bytes | None]:
    """Return what a process is sent for each attempt, of a group the same; None for what cannot be sent."""
    if isinstance(work, RewardContext):
        return [_pickled(replace(work, judge=None))] * size(work)
    # One by one, so that each attempt has a record of its own, which the scorer's code may change.
    return [_pickled(item) for item in work]


def _pickled(value: object) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001 - values of the user's
        return None


def _connections() -> list[int]:
    """Return descriptors of two connected sockets, and of the write end and the read end of a pipe.

    None is that of a standard stream, which may be closed here, and which a child gets others for.
    """
    import fcntl  # noqa: PLC0415 - POSIX only

    pair = socket.socketpair()
    read, write = os.pipe()
    low = [*(each.detach() for each in pair), write, read]
    ends: list[int] = []
    try:
        ends += [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 3) for each in low]
    finally:
        for each in low:
            os.close(each)
    return ends


def _text(answer: bytes, prefix: str) -> str:
    return answer.decode(errors="replace").removeprefix(prefix)[:300]

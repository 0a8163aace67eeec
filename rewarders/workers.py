"""Call a scorer that may hang, exit or allocate without end: in worker processes, or in threads where it cannot be isolated.

Past its limit a process is ended and replaced, and a thread, which cannot be ended, is abandoned; that costs the attempt that
it was asked about. A scorer whose calls do not end for several items in a row is not asked for a while.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import pickle
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from copy import deepcopy
from dataclasses import replace
from itertools import chain
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from tfgrpo.rewarders.calling import (
    BEGIN,
    READY,
    UNREADABLE,
    Work,
    each_scored,
    is_async,
    no_score,
    perform,
    size,
    unless_it_raises,
)
from tfgrpo.rewarders.scorer import Abstained, RewardContext, Scorer, Verdict, Verdicts
from tfgrpo.rewarders.threads import RewarderThreads, all_of, is_cancellation
from tfgrpo.stores.json_values import frozen
from tfgrpo.stores.outcomes import RewardScore

PROGRAM: Final = (
    "import sys; sys.path.append(sys.argv[1]); from tfgrpo.rewarders.worker import main; main()"  # where ``tfgrpo`` is
)
# Items in a row whose calls ended a worker, after which the scorer is not asked for a while: the attempts at one are alike
MOST_FAULTS: Final = 4
# Abandoned calls of one scorer that still run, at which it is no longer called
MOST_HANGING: Final = 4
PAUSE_S: Final = 30.0
# Most seconds for a worker to import what the scorer needs, and to read what it is asked about
START_S: Final = 120.0
CALLS: Final = 8
ENDED: Final = "scoring has ended"
_NOT_SENT: Final = "what it is asked about cannot be sent to another process"
# Single attempts that one process is asked about in one message
_TOGETHER: Final = 64
# How often a silent worker is looked after: a copy of it that its code forked may keep the connection open
_LOOK_S: Final = 0.5
# Most seconds between the pieces of one message
_STALLED_S: Final = 30.0
# How much later than its limit a call is given up that ends its coroutines at the limit itself
_SLACK_S: Final = 0.5
# Bytes of the longest message; the length of a greater one is text that the scorer's code wrote into the connection
_LONGEST: Final = 1 << 29
_LEAST_MEMORY: Final = 1 << 30
# Workers of which each may take all that it is allowed at the same time
_GREEDY: Final = 4
_LOG: Final = logging.getLogger("tfgrpo.rewarders")


def worker_count() -> int:
    """Return how many processes one scorer may have: as many as cores."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class NotIsolated(Exception):
    """A worker process cannot make the scorer."""


class NotSent(NotIsolated):
    """It cannot be asked about these attempts; about others it may."""


class _Process:
    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer
        # Since it was idle; before that, what ends it ends it while it is asked
        self.begun = True
        try:
            (ours, theirs), (end, lifeline) = socket.socketpair(), os.pipe()
            with theirs, os.fdopen(end) as theirs_alive:
                self.process = subprocess.Popen(  # noqa: S603 - our own module, by the interpreter that runs us
                    [sys.executable, "-P", "-c", PROGRAM, str(Path(__file__).parents[2])],
                    stdin=theirs.fileno(),
                    stdout=theirs_alive,
                    stderr=subprocess.DEVNULL,
                    start_new_session=True,  # Ctrl-C at a terminal is the owner's, and children of the scorer end with it
                )
        except (OSError, ImportError, AttributeError, ValueError) as error:
            raise NotIsolated(f"no process can be started: {error}") from error
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            ours.setsockopt(socket.SOL_SOCKET, option, struct.pack("ll", int(_STALLED_S), 0))
        self._connection = Connection(ours.detach())
        self._poll = select.poll()  # that of the connection makes a selector for each message
        self._poll.register(self._connection, select.POLLIN)
        self._lifeline = os.fdopen(lifeline, "wb", buffering=0)

    def make(self) -> None:
        # Not one share for each core: libraries allocate, though they do not touch, tens of megabytes for each.
        whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        memory = max(_LEAST_MEMORY, whole // (2 * min(worker_count(), _GREEDY)))
        try:
            self._connection.send((sys.path, self._scorer.source, memory))
            answer = self._received(time.monotonic() + START_S)
        except TimeoutError:
            raise NotIsolated(f"its process could not make it within {START_S:g} s") from None
        except (OSError, EOFError) as error:
            raise NotIsolated(f"its process ended{self.ended()} while it made it") from error
        except Exception as error:
            raise NotIsolated(f"its options cannot be sent to a process: {error}") from error
        if answer != READY:
            reason = answer.decode(errors="replace").removeprefix("refused ")[:300]
            raise NotIsolated(f"its process cannot make it: {reason}")

    def ask(self, calls: Sequence[Sequence[bytes]], limit_s: float, cpu_s: float) -> Iterator[Verdicts | Abstained]:
        """Yield its answer to each call. Raises ``TimeoutError``, ``EOFError`` at its end, ``ValueError`` and the like."""
        self._connection.send((calls, limit_s, cpu_s))
        slack_s = _SLACK_S if is_async(self._scorer.call) else 0.0
        for _ in calls:
            message = self._received(time.monotonic() + START_S)
            if message == UNREADABLE:
                raise NotSent(_NOT_SENT)
            if message != BEGIN:
                raise ValueError("it does not begin")
            self.begun = True
            answer = json.loads(self._received(time.monotonic() + limit_s + slack_s))
            yield tuple(map(self._verdict, answer)) if isinstance(answer, list) else self._fault(answer)

    def _verdict(self, row: Any) -> Verdict:
        if "score" not in row:
            return self._fault(row)
        return RewardScore(self._scorer.rewarder_id, float(row["score"]), str(row["evidence"]), frozen(row["details"]))

    def _fault(self, row: Any) -> Abstained:
        return Abstained(self._scorer.rewarder_id, str(row["reason"]), bool(row["broke"]), bool(row["late"]))

    def _received(self, deadline: float) -> bytes:
        while not self._poll.poll(1000 * min(_LOOK_S, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                raise TimeoutError
            if self.process.poll() is not None and not self._poll.poll(0):
                raise EOFError
        try:
            return self._connection.recv_bytes(_LONGEST)
        except ConnectionError as error:
            raise EOFError from error
        except OSError as error:
            raise ValueError("too long or incomplete") from error

    def is_alive(self) -> bool:
        # Code of the scorer may have ended an idle worker since its last answer.
        return self.process.poll() is None and not self._poll.poll(0)

    def ended(self) -> str:
        try:
            code = self.process.wait(_LOOK_S)
        except subprocess.TimeoutExpired:
            return ": it closed its connection"
        if code >= 0:
            return f" with exit code {code}"
        return f" by {signal.Signals(-code).name if -code in [*signal.Signals] else f'signal {-code}'}"

    def kill(self) -> None:
        # From any thread; the one that asks it finds the connection ended.
        with contextlib.suppress(OSError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()  # its code may have left the group
        self.process.wait()
        for folder in Path(tempfile.gettempdir()).glob(f"tfgrpo-code-*-{self.process.pid}-*"):  # of ``code_tests``
            shutil.rmtree(folder, ignore_errors=True)

    def release(self) -> None:
        self.kill()
        self._connection.close()
        self._lifeline.close()


class WorkerPool:
    """The calls of one scorer. Several threads and event loops may use it at once."""

    def __init__(
        self, scorer: Scorer, *, clock: Callable[[], float] = time.monotonic, log: logging.Logger | None = _LOG
    ) -> None:
        """``clock``: of the pause after many faults. ``log``: where it warns once that the scorer is not isolated."""
        self.scorer, self._clock, self._log = scorer, clock, log
        self.isolated = scorer.place == "process"
        most = worker_count() if self.isolated else CALLS
        # What waits for a call, and calls that run in a thread.
        self._threads, self._inner = RewarderThreads(most), RewarderThreads(most)
        self._lock = threading.Lock()  # guards the fields below
        self._idle: list[_Process] = []
        self._busy: set[_Process] = set()
        self._hanging: list[Future[Any]] = []
        # A process has made the scorer: one that does not is a fault, not a scorer that cannot be isolated
        self.has_worked = False
        # Items of the calls since the last verdict, all of which ended a worker
        self._faults: set[str] = set()
        self._paused_until, self._pause = -1.0, ""
        self.closed = False

    def warm(self) -> None:
        """Start one process in the background, so that the first call finds it."""

        def start() -> None:
            try:
                self.give_back(self.take())
            except NotIsolated as error:
                self.thread_instead(error)

        self._threads.submit(start)

    def close(self) -> None:
        """Accept no more calls, and end every process. Never waits for code of the scorer."""
        with self._lock:
            self.closed = True
            idle, busy = [*self._idle], [*self._busy]
            self._idle.clear()
        self._threads.shutdown()
        for worker in busy:
            worker.kill()
        for worker in idle:
            worker.release()

    async def score(self, work: Work, limit_s: float) -> Verdicts:
        """Return the verdict on each attempt; no further call starts for a caller that leaves."""
        parts: list[Work] = [work]
        if self.isolated and self.scorer.scope == "item" and not isinstance(work, RewardContext):
            parts = [work[at : at + _TOGETHER] for at in range(0, len(work), _TOGETHER)]
        return tuple(chain.from_iterable(await all_of(self._waited(_Call(self, part, limit_s)) for part in parts)))

    async def _waited(self, call: _Call) -> Verdicts:
        future = self._threads.submit(call.perform)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError as error:
            if is_cancellation(error):
                raise
            return (call.ended,) * size(call.work)  # the pool was closed before it began
        finally:
            call.given_up = True
            future.cancel()

    def perform(self, work: Work, limit_s: float) -> Verdicts:
        """Return the verdict on each attempt; blocks this thread."""
        return _Call(self, work, limit_s).perform()

    def take(self) -> _Process:
        """Return an idle process, or a new one: there are as many threads as there may be. Raises ``NotIsolated``."""
        while True:
            with self._lock:
                if not self._idle:
                    break
                worker = self._idle.pop()
                self._busy.add(worker)
            if worker.is_alive():
                return worker
            self.drop(worker)
        worker = _Process(self.scorer)
        with self._lock:
            self._busy.add(worker)  # from now on the end of the pool ends it
            closed = self.closed
        try:
            if closed:
                raise NotIsolated(ENDED)
            worker.make()
        except BaseException:
            self.drop(worker)
            raise
        self.has_worked = True
        return worker

    def give_back(self, worker: _Process) -> None:
        """Keep a process that has answered for the next call."""
        worker.begun = False
        with self._lock:
            if not self.closed:
                self._busy.discard(worker)
                self._idle.append(worker)
                return
        self.drop(worker)

    def drop(self, worker: _Process) -> None:
        """End a process."""
        worker.release()
        with self._lock:
            self._busy.discard(worker)

    def in_thread(self, part: Work, limit_s: float) -> Verdicts | Abstained:
        """Return the answer of a call in a thread; a late one, which cannot be ended, is abandoned."""
        name, slack_s = self.scorer.rewarder_id, _SLACK_S if is_async(self.scorer.call) else 0.0
        with self._lock:
            self._hanging = [call for call in self._hanging if not call.done()]
            hanging = len(self._hanging)
        if hanging >= MOST_HANGING:
            return Abstained(name, f"{hanging} calls of it hang; it is not called until one of them ends", broke=True)
        call = self._inner.submit(perform, self.scorer, part, limit_s)
        try:
            return call.result(limit_s + slack_s)
        except TimeoutError:
            self._inner.abandon(call)
            with self._lock:
                self._hanging.append(call)
            return (Abstained(name, no_score(limit_s), late=True),) * size(part)

    def refusal(self) -> str:
        """Return why the scorer is not asked at present; empty when it is."""
        with self._lock:
            return self._pause if self._clock() < self._paused_until else ""

    def count(self, item: str, why: str | None) -> None:
        """Count that a worker ended at an item, or that a verdict came. Pause after several items without a verdict."""
        with self._lock:
            self._faults = set() if why is None else {*self._faults, item}
            if len(self._faults) >= MOST_FAULTS:
                self._faults.clear()
                self._paused_until = self._clock() + PAUSE_S
                self._pause = f"not asked for {PAUSE_S:g} s, after {MOST_FAULTS} items in a row: {why}"

    def thread_instead(self, reason: object, *, always: bool = True) -> None:
        """Run the scorer in threads, where ``always`` from now on. Warn once."""
        with self._lock:
            log, self._log = self._log, None
            self.isolated = self.isolated and not always
        if log is not None and not self.closed:
            text = "%s runs in a thread, where a call that never ends cannot be stopped: %s"
            log.warning(text, self.scorer.rewarder_id, reason)


class _Call:
    def __init__(self, pool: WorkerPool, work: Work, limit_s: float) -> None:
        self._pool, self._scorer, self.work, self._limit_s = pool, pool.scorer, work, limit_s
        # Threads of a library may use every core.
        self._cpu_s = self._scorer.cpu_s or limit_s * worker_count()
        self.ended = Abstained(self._scorer.rewarder_id, ENDED)
        self.given_up = False

    def perform(self) -> Verdicts:
        return each_scored(self._scorer, self.work, self._ask)

    def _ask(self, calls: Sequence[Work]) -> list[Verdicts | Abstained]:
        answers: list[Verdicts | Abstained] = []
        while left := calls[len(answers) :]:
            ended = self._pool.closed or self.given_up
            if ended or (reason := self._pool.refusal()):
                return [*answers, *[self.ended if ended else self._broken(reason)] * len(left)]
            answers += self._some(left)
        return answers

    def _some(self, calls: Sequence[Work]) -> list[Verdicts | Abstained]:
        """Return the answers to at least the first of some calls."""
        pool, first = self._pool, calls[0]
        if pool.isolated:
            try:
                return self._in_process(calls)
            except NotIsolated as error:
                pool.thread_instead(error, always=not isinstance(error, NotSent))
        elif self._scorer.place == "thread" and self._scorer.source is None:
            pool.thread_instead("only this process has it, as a function of a script or notebook")
        if not isinstance(first, RewardContext):
            # Each with a copy of its record, which a user's code may change; one that cannot be copied is shared.
            first = [replace(each, record=unless_it_raises(each.record, deepcopy, each.record)) for each in first]
        return [pool.in_thread(first, self._limit_s)]

    def _in_process(self, calls: Sequence[Work]) -> list[Verdicts | Abstained]:
        """Return the answers of a process, up to why that was ended. Raises ``NotIsolated``."""
        pool, answers = self._pool, list[Verdicts | Abstained]()
        # One by one, so that each attempt has a record of its own, which the scorer's code may change.
        parts = [[replace(call, judge=None)] if isinstance(call, RewardContext) else call for call in calls]
        sent: list[list[bytes]] | None = unless_it_raises(None, lambda: [[*map(pickle.dumps, each)] for each in parts])
        if sent is None:
            raise NotSent(_NOT_SENT)
        while True:
            if isinstance(worker := self._worker(calls[0]), Abstained):
                return [worker]
            try:
                for call, answer in zip(calls, worker.ask(sent, self._limit_s, self._cpu_s), strict=True):
                    if isinstance(answer, tuple) and len(answer) != size(call):
                        raise ValueError("verdicts on other attempts")
                    answers.append(answer)
                    pool.count("", None)
            except NotSent:
                pool.give_back(worker)
                raise
            except (OSError, EOFError, ValueError, LookupError, TypeError) as error:
                fault = self._fault(worker, error)
                pool.drop(worker)
                pool.count(_item(calls[len(answers)]), fault.reason)
                if worker.begun or pool.closed:
                    return [*answers, fault]  # else it ended while it was idle, which costs no attempt
            else:
                pool.give_back(worker)
                return answers

    def _worker(self, call: Work) -> _Process | Abstained:
        try:
            return self._pool.take()
        except NotIsolated as error:
            if not (self._pool.closed or self._pool.has_worked):
                raise
            self._pool.count(_item(call), str(error))
            return self.ended if self._pool.closed else self._broken(f"{error}, though it did before")

    def _fault(self, worker: _Process, error: Exception) -> Abstained:
        late = Abstained(self._scorer.rewarder_id, no_score(self._limit_s), late=True)
        if isinstance(error, TimeoutError):
            return late
        if self._pool.closed:
            return self.ended
        how = worker.ended() if isinstance(error, OSError | EOFError) else ""
        if worker.process.returncode == -signal.SIGPROF:
            return replace(late, reason=f"{no_score(self._cpu_s)} of processor time")
        return self._broken(f"its process ended{how}" if how else "its process sent what is no verdict")

    def _broken(self, reason: str) -> Abstained:
        return Abstained(self._scorer.rewarder_id, reason, broke=True)


def _item(call: Work) -> str:
    return call.item_id if isinstance(call, RewardContext) else call[0].sample_id

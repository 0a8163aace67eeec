"""Is the answer mathematically the reference? Asks the library math-verify (extra ``math``) in a process of its own.

LaTeX from a model can keep a computer algebra system busy for ever: ``$9^{9^9}$`` is one machine instruction to it, which
no signal and no other thread interrupts. So the library lives in a child that the system ends when a single item
takes too long, and the next item gets a new child.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import threading
import weakref
from contextlib import suppress
from pathlib import Path
from typing import IO, Final, cast

from tfgrpo.rewarders.graders.base import GraderInput, ItemGrader
from tfgrpo.rewarders.graders.records import field, final_answer
from tfgrpo.stores.errors import PipelineError, Problem, RewardError

_CHILD: Final = Path(__file__).with_name("math_verify_child.py")


class MathVerify(ItemGrader):
    """0.0 when no LaTeX formula is found in the final answer, 1.0 when it equals the record's ``answer``, else 0.5.

    Found and compared by math-verify, strictly, each within 2 seconds: what cannot be parsed in time is not found, what
    cannot be compared in time is not equal. The reference has to be LaTeX as well: a bare ``5`` equals nothing.

    Raises ``PipelineError`` when the library is not installed. One item is compared at a time. Grading raises
    ``RewardError`` for an item that ended the child; nothing else is lost.
    """

    def __init__(self) -> None:
        if importlib.util.find_spec("math_verify") is None:
            accepted = 'this grader with its library installed: pip install "tfgrpo[math]"'
            raise PipelineError([Problem("math_verify", "no math-verify", accepted)])
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def __reduce__(self) -> tuple[type[MathVerify], tuple[()]]:
        return type(self), ()

    def score_one(self, item: GraderInput) -> float:
        """Reward of one item."""
        answer = final_answer(item)
        if answer is None:
            return 0.0
        gold = field(item, "answer")
        with self._lock:
            if self._child is None:
                self._child = _Child()
            try:
                return self._child.ask(answer, gold if isinstance(gold, str) else "")
            except BaseException:
                self._child.end()
                self._child = None
                raise


class _Child:
    """One child process, asked one question at a time. It ends with its owner, or with this process."""

    def __init__(self) -> None:
        command = [sys.executable, "-P", str(_CHILD)]
        self._process = subprocess.Popen(  # noqa: S603  our own file, by the interpreter that runs us
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="ascii"
        )
        self._stdin, self._stdout = (cast("IO[str]", pipe) for pipe in (self._process.stdin, self._process.stdout))
        self.end = weakref.finalize(self, _end, self._process, self._stdin, self._stdout)

    def ask(self, answer: str, gold: str) -> float:
        """The score; ``RewardError`` when the child ended over it."""
        try:
            self._stdin.write(json.dumps([answer, gold]) + "\n")
            self._stdin.flush()
            reply = self._stdout.readline()
        except OSError as error:
            raise RewardError(f"math_verify: its process ended: {error}") from error
        if not reply:
            raise RewardError("math_verify: too much work or memory for one answer; its process was ended")
        return float(reply)


def _end(process: subprocess.Popen[str], *pipes: IO[str]) -> None:
    process.kill()
    process.wait()
    for pipe in pipes:
        with suppress(OSError):  # a question that nobody will read any more
            pipe.close()

"""Grader of mathematical equality, by the library math-verify (extra ``math``) in a child process.

LaTeX can keep a computer algebra system busy for ever: no signal and no other thread interrupts ``$9^{9^9}$``. So the
system ends the child when an item takes too long, and the next item gets a new child.
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

from tfgrpo.rewarders.graders.base import GraderInput, ItemGrader, field, final_answer
from tfgrpo.stores.errors import PipelineError, RewardError

_CHILD: Final = Path(__file__).with_name("math_verify_child.py")


class MathVerify(ItemGrader):
    """0.0 without a LaTeX formula in the final answer, 1.0 when it equals the record's ``answer``, else 0.5.

    Parsed and compared by math-verify, strictly, each within 2 seconds: a formula that takes longer counts as absent, a
    comparison as unequal. The reference has to be LaTeX as well: a bare ``5`` has no formula.

    Raises ``PipelineError`` when the library is not installed. One item is compared at a time. Grading raises
    ``RewardError`` for an item that ended the child.
    """

    def __init__(self) -> None:
        if importlib.util.find_spec("math_verify") is None:
            accepted = 'this grader with its library installed: pip install "tfgrpo[math]"'
            raise PipelineError.one("", "no math-verify", accepted)
        self._lock = threading.Lock()
        self._child: _Child | None = None

    def __reduce__(self) -> tuple[type[MathVerify], tuple[()]]:
        return type(self), ()

    def score_one(self, item: GraderInput) -> float:
        """Return the reward of one item."""
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
    """One child process, for one item at a time. It ends with its owner, or with this process."""

    def __init__(self) -> None:
        # -P: the modules beside the child's file are not to be found under their bare names.
        command = [sys.executable, "-P", str(_CHILD)]
        self._process = subprocess.Popen(  # noqa: S603  our own file, by the interpreter that runs us
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="ascii"
        )
        self._stdin, self._stdout = (cast("IO[str]", pipe) for pipe in (self._process.stdin, self._process.stdout))
        self.end = weakref.finalize(self, _end, self._process, self._stdin, self._stdout)

    def ask(self, answer: str, gold: str) -> float:
        """Return the score. Raises ``RewardError`` when the child ended."""
        try:
            self._stdin.write(json.dumps([answer, gold]) + "\n")
            self._stdin.flush()
            # Without a time limit here: the child has one of processor time, and ends itself.
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
        with suppress(OSError):  # an unread question
            pipe.close()

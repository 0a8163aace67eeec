"""``math_verify`` asks the library in a process that cannot take ours with it."""

from __future__ import annotations

import io
import os
import pickle
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.rewards.graders import answered
from tfgrpo.rewarders.graders.base import GraderInput
from tfgrpo.rewarders.graders.builtin import math_verify, math_verify_child
from tfgrpo.rewarders.graders.builtin.math_verify import MathVerify
from tfgrpo.stores.errors import RewardError


def item(answer: str, gold: object = "$5$") -> GraderInput:
    return GraderInput.of("s:0", {"answer": gold}, answered(answer))


@pytest.fixture(scope="module")
def grader() -> MathVerify:
    return MathVerify()


@pytest.mark.parametrize(
    ("answer", "gold", "expected"),
    [
        ("$5$", "$5$", 1.0),
        (r"so \boxed{\frac{10}{2}}", "$5$", 1.0),
        ("$6$", "$5$", 0.5),
        ("$5$", "5", 0.5),
        ("$5$", 5, 0.5),
        ("$5$", None, 0.5),
        ("5", "$5$", 0.0),
        ("", "$5$", 0.0),
        ("$(2,1)$", "$(1,2)$", 0.5),
        ("\ud800 $5$", "\ud800 $5$", 1.0),
        ("$5$\n\x00\u2028", "$5$", 1.0),
    ],
)
def test_a_formula_counts_half_and_the_right_one_counts_full(grader, answer, gold, expected):
    assert grader.score_one(item(answer, gold)) == expected


@pytest.mark.parametrize(("answer", "gold"), [(r"\boxed{0.5}", r"\boxed{\frac12}"), (r"$\sqrt2$", r"$\sqrt{2}$")])
def test_malformed_formulas_are_not_mended_before_they_are_compared(grader, answer, gold):
    assert grader.score_one(item(answer, gold)) == 0.5


@pytest.mark.parametrize(("gold", "expected"), [("$7$", 1.0), ("$5$", 0.5)])
def test_a_box_comes_before_another_final_answer(grader, gold, expected):
    assert grader.score_one(item(r"\boxed{7}. The final answer is $5$", gold)) == expected


def test_it_grades_in_any_thread(grader):
    seen: list[float] = []
    threads = [threading.Thread(target=lambda: seen.append(grader.score_one(item("$5$")))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [1.0] * 4


def test_a_copy_sent_to_another_process_has_its_own_child(grader):
    assert pickle.loads(pickle.dumps(grader)).score_one(item("$5$")) == 1.0


def ours(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def child_of(grader: MathVerify) -> int:
    return grader._child._process.pid


def test_the_child_ends_with_its_grader():
    grader = MathVerify()
    grader.score_one(item("$5$"))
    pid = child_of(grader)
    assert ours(pid)
    del grader
    assert not ours(pid)


def test_an_item_that_ends_the_child_is_lost_alone():
    grader = MathVerify()
    grader.score_one(item("$5$"))
    first = child_of(grader)
    grader._child._process.kill()
    grader._child._process.wait()
    with pytest.raises(RewardError, match="process"):
        grader.score_one(item("$5$" * 100_000))
    assert grader.score_one(item("$5$")) == 1.0
    assert child_of(grader) != first


BUSY = """
import sys
sys.path.insert(0, {folder!r})
import math_verify_child as child
child.CPU_S = 0.2
child.score = lambda answer, reference: 9 ** (9**9) if "busy" in answer else 0.25
child.main()
"""


def test_uninterruptible_work_is_ended_by_the_system(tmp_path, monkeypatch):
    folder = Path(math_verify.__file__).parent
    stand_in = tmp_path / "child.py"
    stand_in.write_text(BUSY.format(folder=str(folder)))
    monkeypatch.setattr(math_verify, "_CHILD", stand_in)
    grader = MathVerify()
    assert grader.score_one(item("quick")) == 0.25
    with pytest.raises(RewardError, match="too much work"):
        grader.score_one(item("busy"))
    assert grader.score_one(item("quick")) == 0.25


LIMITED = """
import time
from importlib.util import module_from_spec, spec_from_file_location
spec = spec_from_file_location("child", {file!r})
child = module_from_spec(spec)
spec.loader.exec_module(child)
from math_verify import parser
child.score("$5$", "$5$")  # loads all that is used
child.STEP_S = 0.2
read = parser.extract_target_from_pred
def extract(text, *args, **more):
    if "sleep" in text:
        time.sleep(0.5)
    if "memory" in text:
        raise MemoryError
    return read(text, *args, **more)
parser.extract_target_from_pred = extract
child.main()
"""
LONG = "$" + "+".join(f"x^{{{power}}}" for power in range(400)) + "$"
SUM = r"$\sum_{k=1}^{100000} \frac{1}{k^2+1}$"


def test_an_item_over_a_limit_has_no_score_and_costs_no_child(tmp_path, monkeypatch):
    stand_in = tmp_path / "child.py"
    stand_in.write_text(LIMITED.format(file=str(math_verify._CHILD)))
    monkeypatch.setattr(math_verify, "_CHILD", stand_in)
    grader = MathVerify()
    assert grader.score_one(item("$5$ after some sleep", "$5$")) == 1.0  # waiting is no processor time
    child = child_of(grader)
    for answer, gold in ((LONG, "$5$"), ("$5$", LONG), (SUM, "$5$")):
        with pytest.raises(RewardError, match=r"^math_verify: more than 0.2 s of processor time"):
            grader.score_one(item(answer, gold))
    with pytest.raises(RewardError, match=r"^math_verify: not enough memory"):
        grader.score_one(item("$5$ of memory", "$5$"))
    assert grader.score_one(item("$6$")) == 0.5
    assert child_of(grader) == child


def test_the_child_ends_when_its_input_closes():
    done = subprocess.run(
        [sys.executable, "-P", str(math_verify._CHILD)],
        check=False,
        input='["$5$", "$5$"]\n',
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "1.0\n")


@pytest.mark.parametrize(
    ("answer", "reference", "expected"), [("$5$", "$5$", 1.0), ("$6$", "$5$", 0.5), ("5", "$5$", 0.0)]
)
def test_the_child_returns_the_score_of_the_library(answer, reference, expected):
    assert math_verify_child.score(answer, reference) == expected


def test_the_child_limits_itself_and_keeps_its_replies_apart_from_what_the_library_prints(tmp_path, monkeypatch):
    limits: list[object] = []
    replies = tmp_path / "replies"
    with monkeypatch.context() as patch:  # undone at once: pytest needs these calls itself
        patch.setattr("resource.setrlimit", lambda kind, pair: limits.append(pair[0]))
        patch.setattr("signal.setitimer", lambda kind, seconds: limits.append(seconds))
        patch.setattr(os, "dup", lambda fd: os.open(replies, os.O_WRONLY | os.O_CREAT))
        patch.setattr(os, "dup2", lambda source, target: os.close(source))
        patch.setattr(sys, "stdin", io.StringIO('["$5$", "$5$"]\n["5", ""]\n'))
        math_verify_child.main()
    assert replies.read_text() == "1.0\n0.0\n"
    assert 0 < limits[0] <= math_verify_child.MEMORY_BYTES
    assert limits[1:] == [math_verify_child.CPU_S] * 2


def test_without_limits_of_the_system_the_child_works_on(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    monkeypatch.delattr("signal.setitimer")
    math_verify_child.limit_memory()
    math_verify_child.limit_next_item()

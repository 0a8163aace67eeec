"""``code_tests``: known answers of the public forms, and what code under test may do to its own case only."""

import json
import tempfile
import time

import pytest

from tests.support.rewards.scoring import built, numbers, verdicts
from tests.support.vectors import rows_of
from tfgrpo.rewarders.graders.builtin.code_tests import CodeTests
from tfgrpo.rewarders.registry import ALIASES, build_scorer
from tfgrpo.rewarders.scorer import GraderInput
from tfgrpo.stores.errors import PipelineError, RewardError

ADD = ["assert add(1, 2) == 3", "assert add(0, 0) == 0", "assert add(-1, 1) == 0"]
RIGHT = "def add(a, b):\n    return a + b\n"


def graded(completion, metadata, *, prompt="", **options):
    record = {"prompt": prompt, "metadata": metadata}
    return CodeTests(**options).score_one(GraderInput.of("s:0", record, completion))


@pytest.mark.parametrize(
    ("tests", "count"), rows_of("code_tests", "tests_are_lists_or_texts_of_assertions_functions_and_loops")
)
def test_tests_are_lists_or_texts_of_assertions_functions_and_loops(tests, count):
    assert graded(RIGHT, {"tests": tests}).evidence == f"{count} of {count} tests passed"
    assert graded("def add(a, b): return None", {"tests": tests}).score == 0.0
    assert graded("<think>def add(a, b): return a + b", {"tests": tests}).evidence == "no code in the output"


def test_human_eval_runs_its_check_on_the_entry_point_behind_its_prompt():
    prompt = 'from typing import List\n\n\ndef twice(xs: List[int]) -> List[int]:\n    """Double them."""\n'
    check = "METADATA = {}\n\n\ndef check(candidate):\n    assert candidate([1]) == [2]\n    assert candidate([3]) == [6]\n"
    record = {"test": check, "entry_point": "twice"}
    body = "    return [2 * x for x in xs]\n"
    whole = f"```python\ndef twice(xs: List[int]):\n{body}```\nFor example:\n```python\nprint(twice([1]))\n```"
    assert graded(body, record, prompt=prompt).score == 1.0
    assert graded(whole, record, prompt=prompt).score == 1.0
    half = graded("    return [2]\n", record, prompt=prompt)
    assert half.evidence == "0 of 1 tests passed; test 1, assert candidate([3]) == [6]: expected [6], got [2]"


@pytest.mark.parametrize(("completion", "score"), rows_of("code_tests", "a_body_is_read_whatever_became_of_its_indents"))
def test_a_body_is_read_whatever_became_of_its_indents(completion, score):
    prompt = 'def add(a, b):\n    """Add."""\n'
    record = {"test": "def check(candidate):\n    assert candidate(1, 2) == 3", "entry_point": "add"}
    assert graded(completion, record, prompt=prompt).score == score


def test_mbpp_runs_its_list_behind_its_set_up_code():
    record = {"test_list": ["assert near(root(4), 2)"], "test_setup_code": "def near(a, b): return abs(a - b) < 1e-9"}
    assert graded("def root(x): return x ** .5", record).score == 1.0
    assert graded("def root(x): return x", record).score == 0.0


def test_programs_have_their_cases_in_the_forms_of_public_tasks():
    cases, apps = [{"input": "1 2\n", "output": "3\n"}], {"inputs": ["1 2\n"], "outputs": ["3\n"]}
    program = "print(sum(map(int, input().split())))"
    for record in ({"cases": json.dumps(cases)}, {"tests": cases}, {"input_output": json.dumps(apps)}):
        assert graded(program, record).evidence == "1 of 1 tests passed"
    for called in ({"input_output": {**apps, "fn_name": "add"}}, {"tests": [{**cases[0], "testtype": "functional"}]}):
        with pytest.raises(RewardError, match="arguments of a function"):
            graded(program, called)


@pytest.mark.parametrize(("code", "why"), rows_of("code_tests", "what_a_solution_does_to_its_process_costs_it_the_test"))
def test_what_a_solution_does_to_its_process_costs_it_the_test(code, why):
    verdict = graded(code, {"tests": ADD[:1]})
    assert verdict.score == 0.0
    assert why in verdict.evidence


def test_an_exit_after_a_few_cases_costs_those_cases_alone():
    moody = "def add(a, b):\n    if a < 0: exit()\n    return a + b"
    assert graded(moody, {"tests": ADD}).score == pytest.approx(2 / 3)
    slow = "def add(a, b):\n    while a == 0: pass\n    return a + b"
    verdict = graded(slow, {"tests": ADD}, timeout_s=0.3)
    assert verdict.score == pytest.approx(2 / 3)
    assert "test 2, assert add(0, 0) == 0: no end within 0." in verdict.evidence  # a busy machine ends it by the clock


def test_a_solution_that_sleeps_or_hangs_everywhere_is_not_waited_for_in_every_test():
    began = time.monotonic()
    verdict = graded("import time\ntime.sleep(1000)", {"tests": ADD * 10}, timeout_s=0.2)
    assert verdict.evidence.endswith("no end within 0.6 s; 27 not run")
    assert time.monotonic() - began < 15


def test_files_outside_of_the_working_folder_are_neither_written_nor_deleted(tmp_path):
    kept, made = tmp_path / "kept", tmp_path / "made"
    kept.write_text("x")
    code = f"""
import os, pathlib, shutil
def add(a, b):
    done = []
    for attempt in (
        lambda: os.remove({str(kept)!r}), lambda: shutil.rmtree({str(tmp_path)!r}), lambda: open({str(kept)!r}, 'w'),
        lambda: pathlib.Path({str(made)!r}).mkdir(), lambda: os.rename({str(kept)!r}, 'mine'),
    ):
        try:
            attempt()
            done.append(1)
        except PermissionError:
            pass
    pathlib.Path('mine').write_text('y')
    return done, os.listdir('.'), pathlib.Path('mine').read_text()
"""
    verdict = graded(code, {"tests": ["assert add(1, 2) == ([], ['mine'], 'y')"]})
    assert verdict.score == 1.0, verdict.evidence
    assert kept.read_text() == "x"
    assert not made.exists()


def test_the_environment_is_empty_and_nothing_is_left_behind(monkeypatch, tmp_path):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    code = "import os\nopen('left', 'w').write('x')\ndef add(a, b): return os.environ.get('OPENAI_API_KEY')"
    assert graded(code, {"tests": ["assert add(1, 2) is None"]}).score == 1.0
    assert list(tmp_path.iterdir()) == []


def test_what_is_printed_is_bounded():
    verdict = graded("while True: print('x' * 10 ** 6)", {"cases": [{"input": "", "output": "x"}]})
    assert verdict.evidence.endswith("OSError: [Errno 27] File too large")


def test_a_record_without_usable_tests_is_ungraded_and_counted_beforehand():
    for metadata, reason in (
        ({}, "the record has no tests"),
        ({"cases": []}, "the record has no tests"),
        ({"cases": [{"input": "1"}]}, "no input and output"),
        ({"tests": ["assert add("]}, "no Python"),
        ({"tests": "def check(candidate): assert candidate(1)"}, "calls nothing"),
        ({"tests": "METADATA = {}"}, "calls nothing"),
    ):
        with pytest.raises(RewardError, match=reason):
            graded(RIGHT, metadata)
        assert reason in CodeTests().unusable({"metadata": metadata})
    assert CodeTests().unusable({"metadata": {"tests": ADD}}) is None
    assert CodeTests().unusable({"tests": ADD}) is None


def test_the_options_are_checked_before_anything_is_spent():
    with pytest.raises(PipelineError) as refused:
        build_scorer("code_tests", {"timeout_s": 0, "memory_mb": "lots", "all": 1})
    assert {each.source.rpartition(".")[2] for each in refused.value.problems} == {"timeout_s", "memory_mb", "all"}
    assert {ALIASES[name] for name in ("humaneval", "mbpp", "code_exec", "pass_at_1")} == {"code_tests"}


def test_in_a_run_it_scores_in_worker_processes_and_a_hanging_solution_costs_its_own_attempt():
    outputs = (RIGHT, "def add(a, b):\n    while True: pass", RIGHT)
    found = verdicts(built("code_tests", timeout_s=0.2), *outputs, metadata={"tests": ADD[:1]})
    assert ([each.rewarder_id for each in found], numbers(found)) == (["code_tests"] * 3, [1.0, 0.0, 1.0])

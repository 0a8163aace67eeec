"""Scorer of Python code by the tests of its record, for worker processes: each test runs in a separate process.

No sandbox: limits, a working directory and an empty environment contain what code does by mistake.
"""

from __future__ import annotations

import ast
import builtins
import marshal
import os
import re
import secrets
import signal
import subprocess
import sys
import tempfile
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from pydantic import Field
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.graders.builtin import code_process
from tfgrpo.rewarders.options import FiniteNumber, Flag, Options, Whole, accepts
from tfgrpo.rewarders.scorer import GraderInput, ItemScorer, column, field_of, program
from tfgrpo.rewarders.text.rules import shown
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.outcomes import RewardScore

_LANGUAGES: Final = ("python", "python3", "py", "py3")
# Seconds that pass for each of processor time, at most: a busy machine is slow, and a program may wait for ever
_BY_THE_CLOCK: Final = 3
# Tests without an end, after which the others count as failed: a solution that hangs mostly does so in all of them
_MOST_ENDLESS: Final = 3
_BUILT_IN: Final = {*dir(builtins), "__file__"}
# Characters that are parsed in search of code in prose
_MOST_READ: Final = 300_000
_SHOWN: Final = 200
_COLUMNS: Final = ("cases", "tests", "test_list", "test_cases", "public_tests", "input_output", "test")
_NO_TESTS: Final = "the record has no tests: tests, test_list, test with entry_point, or cases with input and output"


class _Test(NamedTuple):
    shown: str
    # Run behind the solution; None: the solution is a program that reads and prints
    code: str | None = None
    stdin: str = ""
    expected: str = ""


@dataclass(frozen=True, slots=True)
class CodeTests(Options, ItemScorer):
    """Share of the record's tests that the Python code of the output passes: its last fenced block, else all of it.

    Tests are, in the metadata or the record: ``cases``, a list of ``input`` and ``output`` of a program, or two lists
    ``inputs`` and ``outputs``; ``tests`` or ``test_list``, the same, or code, of which each assertion and each function
    ``test…`` counts; or ``test`` with ``entry_point``, behind the prompt if that is code.
    """

    all: Flag = False
    """1.0 for a solution that passes every test, else 0.0."""
    timeout_s: Annotated[FiniteNumber, Field(gt=0, le=120), accepts("seconds above 0, at most 120")] = 5.0
    """Seconds of processor time of one test, which fails beyond it; three times as many by the clock."""
    memory_mb: Annotated[Whole, Field(ge=32, le=65_536), accepts("a whole number from 32 to 65,536")] = 512

    def score_one(self, item: GraderInput) -> RewardScore:
        """Return the share, and the first test that failed."""
        tests = self.wanted(item)
        code = _solution(item, tests)
        if not code.strip():
            return RewardScore("", 0.0, "no code in the output")
        passed, endless, first = 0, 0, ""
        for number, test in enumerate(tests, start=1):
            why = self._failure(code, test)
            passed += why is None
            if why is not None and not first:
                first = f"; test {number}, {why if why.startswith('assert ') else f'{test.shown}: {why}'}"
            endless += (why or "").startswith("no end within")
            if (self.all and first) or endless == _MOST_ENDLESS:
                first += f"; {len(tests) - number} not run" if number < len(tests) else ""
                break
        score = float(passed == len(tests)) if self.all else passed / len(tests)
        return RewardScore("", score, f"{passed} of {len(tests)} tests passed{first}")

    def wanted(self, item: GraderInput) -> Sequence[_Test]:
        written = next((value for name in _COLUMNS if (value := column(item, name))), "")
        tests = _from_cases(written)
        if not tests and column(item, "cases") is None:
            imports, setup = column(item, "test_imports") or [], column(item, "test_setup_code") or ""
            before = "\n".join([*([imports] if isinstance(imports, str) else imports), setup])
            tests = list(_from_code(written, before, column(item, "entry_point")))
        if not tests:
            raise RewardError(_NO_TESTS)
        return tests

    def _failure(self, code: str, test: _Test) -> str | None:
        # The name says who removes the folder when this process is killed: the owner of the worker, or what watches that.
        prefix = f"tfgrpo-code-{os.getppid()}-{os.getpid()}-"
        with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as name:
            folder, key, limit = Path(name), secrets.token_hex(8), self.timeout_s
            job = {"code": code, "test": test.code, "cpu_s": limit, "memory": self.memory_mb << 20, "key": key}
            (folder / "job").write_bytes(marshal.dumps(job))
            (folder / "input").write_text(test.stdin, encoding="utf-8", errors="replace")
            work = folder / "work"
            work.mkdir()
            environment = {"HOME": str(work), "TMPDIR": str(work), "PATH": os.defpath, "PYTHONUTF8": "1", "PYTHONHASHSEED": "0"}
            # Threads of numerical libraries would count as processes.
            environment |= dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
            with (folder / "input").open("rb") as stdin, (folder / "output").open("wb") as output:
                try:
                    exit_code = subprocess.run(  # noqa: S603 - our own module, by the interpreter that runs us
                        [sys.executable, "-sBP", code_process.__file__, str(folder)],
                        stdin=stdin,
                        stdout=output,
                        stderr=subprocess.DEVNULL,
                        cwd=work,
                        env=environment,
                        timeout=limit * _BY_THE_CLOCK,
                        check=False,
                    ).returncode
                except subprocess.TimeoutExpired:
                    return f"no end within {limit * _BY_THE_CLOCK:g} s"
            if -exit_code in (signal.SIGPROF, signal.SIGXCPU, signal.SIGKILL):
                return f"no end within {limit:g} s of processor time"
            verdict = folder / "verdict"
            signed, failed, why = (verdict.read_text(errors="replace") if verdict.exists() else "").partition(" ")
            # An exit code says nothing: a solution may end its process before the test is over.
            if signed == key and (failed or test.code is not None):
                return why or None
            if test.code is not None or exit_code:
                return f"its process ended{' before the test did' if test.code is not None else ''} (exit code {exit_code})"
            printed = (folder / "output").read_bytes().decode(errors="replace")
            same = _lines(printed) == _lines(test.expected)
            return None if same else f"expected {shown(test.expected.strip(), _SHOWN)}, got {shown(printed.strip(), _SHOWN)}"


def _solution(item: GraderInput, tests: Sequence[_Test]) -> str:
    entry, prompt = column(item, "entry_point"), field_of(item, "prompt")
    defined = f"def {entry}(" if isinstance(entry, str) else ""
    written = "\n".join(test.code or "" for test in tests)
    called = {entry} if defined else {*re.findall(r"(?<![.\w])\w+(?=\()", written)}
    names = "|".join(called - {*re.findall(r"\b(?:def|class)\s+(\w+)", written)})
    named = rf"^[ \t]*(?:async )?(?:def|class)\s+(?:{names})\b|^(?:{names})\s*=" if names else ""
    defines = re.compile(named if written else r"\b(?:print|write|writelines)\(", re.MULTILINE)
    # HumanEval: imports and helpers are in the prompt, or only a body was asked for.
    before = prompt if defined and isinstance(prompt, str) and defined in prompt and _parsed(prompt) is not None else ""

    def read(code: str) -> str | None:
        # Code that can run and has what the tests need, behind the prompt.
        has = defines.search(code) is not None
        texts: list[str] = [f"{before}\n{code}" if before else code, *(() if has else _bodies(before, code))]
        for text in filter(_knows_its_names, texts):
            body = [] if has else ast.parse(before).body
            # A body that was read makes the last function of the prompt longer.
            if has or (body and (ast.parse(text).body[len(body) - 1].end_lineno or 0) > (body[-1].end_lineno or 0)):
                return text
        return None

    code = program(item, _LANGUAGES, defines.search, read, lambda text: _runs(text, defines)) or ""
    return read(code) or (f"{before}\n{code}" if before else code)


def _knows_its_names(code: str) -> bool:
    # Prose may be code by its form: words in a line are names, too, but no one binds them.
    nodes = [*ast.walk(_parsed(code) or ast.Name("", ast.Load()))]
    names = [each for each in nodes if isinstance(each, ast.Name)]
    bound = {str(getattr(each, key, None)).partition(".")[0] for each in nodes for key in ("name", "asname", "arg", "rest")}
    bound |= {each.id for each in names if not isinstance(each.ctx, ast.Load)} | _BUILT_IN
    return "*" in bound or all(each.id in bound for each in names)


def _bodies(before: str, code: str) -> Iterator[str]:
    # A prompt with a body behind it that has no indent, lost the first one, or has others.
    lines = code.strip("\n").split("\n")
    indents = re.findall(r"^[ \t]+(?=\S)", before, re.MULTILINE)
    if not indents or not re.search(r"\b(?:return|yield)\b", code):
        return
    end = next((at for at, line in enumerate(lines) if at and line[:1].strip()), len(lines))
    inner = [line[: len(line) - len(line.lstrip())] for line in lines[1:end] if line.strip()]
    for indent, last in (("", len(lines)), (indents[-1], end), (min(inner, key=len, default=""), end)):
        body = textwrap.dedent("\n".join([indent + lines[0].lstrip(), *lines[1:last]]))
        yield "\n".join([before, textwrap.indent(body, indents[-1]), *lines[last:]])


def _runs(text: str, defines: re.Pattern[str]) -> Iterator[str]:
    # What is between two lines that are not indented, around the last definition, the longest first.
    last = max((each.start() for each in defines.finditer(text)), default=0)
    margins = sorted({0, len(text), *(each.start() for each in re.finditer(r"^(?=\S)", text, re.MULTILINE))})
    left = _MOST_READ
    for end in reversed(margins):
        for start in margins:
            left -= end - start
            if start > last or end <= last or left < 0:
                break
            yield text[start:end]


def _from_cases(value: Any) -> list[_Test]:
    cases, tests = list[Any](), list[_Test]()
    match value:
        case {"inputs": [*inputs], "outputs": [*outputs]} | {"input": [*inputs], "output": [*outputs]} if len(inputs) == len(
            outputs
        ):
            shared = {name: each for name, each in value.items() if name == "fn_name"}
            cases = [{**shared, "input": one, "output": other} for one, other in zip(inputs, outputs, strict=True)]
        case [{}, *_]:
            cases = value
    for each in cases:
        match each:
            case {"fn_name": str()} | {"testtype": "functional"}:
                raise RewardError("the cases of the record are arguments of a function, and no text that a program reads")
            case {"input": str() | int() | float() as one, "output": str() | int() | float() as other}:
                tests.append(_Test(f"input {shown(str(one), _SHOWN)}", None, str(one), str(other)))
            case _:
                raise RewardError(f"a case of the record is no input and output, as text: {each!r:.100}")
    return tests


def _from_code(value: Any, before: str, entry: Any) -> Iterator[_Test]:
    for code in value if isinstance(value, list | tuple) else [value]:
        tree = _parsed(code) if isinstance(code, str) and code.strip() else None
        if tree is None:
            raise RewardError(f"a test of the record is no Python: {code!r:.100}" if code else _NO_TESTS)
        kept, calls, tests = [before], list[str](), 0
        for each in tree.body:
            text = ast.unparse(each)
            if isinstance(each, ast.Assert):
                tests += 1
                yield _Test(text, "\n".join((*kept, text)))
                continue
            kept.append(text)
            if isinstance(each, ast.FunctionDef) and each.name.startswith("test"):
                calls.append(f"{each.name}()")
            elif isinstance(each, ast.FunctionDef) and each.name == "check" and isinstance(entry, str):
                calls.append(f"check({entry})")
            elif isinstance(each, ast.ClassDef) and any(ast.unparse(base).endswith("TestCase") for base in each.bases):
                calls.append(f"__import__('unittest').defaultTestLoader.loadTestsFromTestCase({each.name}).debug()")
        yield from (_Test(each, "\n".join((*kept, each))) for each in calls)
        if not tests and not calls:
            # Definitions alone would pass whatever the solution is.
            acts = (each.value if isinstance(each, ast.Expr) else each for each in tree.body)
            if not any(isinstance(each, ast.Call | ast.For | ast.While | ast.With | ast.Try) for each in acts):
                raise RewardError(f"a test of the record calls nothing: {code!r:.100}")
            yield _Test(shown(code, _SHOWN), "\n".join(kept))


def _parsed(code: str) -> ast.Module | None:
    try:
        with warnings.catch_warnings(action="ignore"):
            return ast.parse(code)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.rstrip().splitlines()]

"""Import groups that others collected: check them, report all problems together, return a batch or write canonical lines.

Two forms: the canonical JSON lines, and one JSON object of four parallel lists (states, actions, rewards, old
log-probabilities). Invalid input is refused as a whole, never repaired or skipped.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias, get_args

from tfgrpo.stores.batch.batch import ExperienceBatch
from tfgrpo.stores.batch.lines import groups_of_lines, lines_of_group
from tfgrpo.stores.batch.shapes import RolloutGroup
from tfgrpo.stores.errors import CorruptFile, DatasetError, Problem, ShapeError
from tfgrpo.stores.files.atomic import read_lines
from tfgrpo.tasks.exports.writing import write_lines

ImportForm: TypeAlias = Literal["jsonl", "lists"]
FORMS: Final[tuple[ImportForm, ...]] = get_args(ImportForm)
_LISTS: Final = ("states", "action_groups", "reward_groups")
_LOGPROBS: Final = "log_prob_old_groups"
_OPTIONAL: Final = ("ids", "group_size")
_MAX_PROBLEMS: Final = 50
"""Problems listed; a file that is wrong throughout is wrong in one way."""
_GROUP_START: Final = re.compile(r'"kind"\s*:\s*"group"')


def load_batch(path: Path, form: ImportForm) -> ExperienceBatch:
    """Return the whole file as a batch in memory. Raise ``DatasetError`` with every problem."""
    if form == "lists":
        return _of_lists(path)
    problems: list[Problem] = []
    groups = tuple(_valid_groups(path, problems))
    _refuse(problems)
    try:
        return ExperienceBatch(groups)
    except ShapeError as error:
        raise _dataset_error(path, error) from error


def import_groups(path: Path, form: ImportForm, target: Path) -> tuple[int, int]:
    """Check a file, write its groups as canonical lines, and return the numbers of groups and rollouts.

    Canonical lines stream through memory. Raise ``DatasetError`` with every problem; no file is written then.
    """
    if form == "lists":
        return _write(path, target, iter(_of_lists(path)))
    problems: list[Problem] = []
    seen: set[str] = set()

    def distinct() -> Iterator[RolloutGroup]:
        for group in _valid_groups(path, problems):
            if group.id in seen:
                problems.append(
                    Problem(str(path), f"two groups with the id {group.id!r}", "groups with ids of their own")
                )
            seen.add(group.id)
            yield group
        _refuse(problems)

    return _write(path, target, distinct())


def _write(source: Path, target: Path, groups: Iterator[RolloutGroup]) -> tuple[int, int]:
    counts = [0, 0]

    def lines() -> Iterator[str]:
        for group in groups:
            counts[0] += 1
            counts[1] += len(group.rollouts)
            yield from lines_of_group(group)
        if not counts[0]:
            raise DatasetError.one(str(source), "no group", "at least one group")

    write_lines(target, lines())
    return counts[0], counts[1]


def _of_lists(path: Path) -> ExperienceBatch:
    value = _object(path)
    known = {*_LISTS, _LOGPROBS, *_OPTIONAL}
    problems = [
        Problem(f"{path}: {key}", "an unknown key", ", ".join(sorted(known))) for key in value if key not in known
    ]
    problems += [Problem(f"{path}: {key}", "nothing", "a list") for key in _LISTS if key not in value]
    if any(key not in value for key in _LISTS):
        raise DatasetError(problems)
    try:
        batch = ExperienceBatch.from_lists(
            value["states"],
            value["action_groups"],
            value["reward_groups"],
            value.get(_LOGPROBS),
            group_size=value.get("group_size"),
            ids=value.get("ids"),
        )
    except ShapeError as error:
        raise DatasetError([*problems, *_dataset_error(path, error).problems]) from error
    _refuse(problems)
    return batch


def _object(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else f"unreadable ({error.strerror})"
        raise DatasetError.one(str(path), reason, "a JSON file of four lists") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError.one(str(path), f"no JSON ({error})", "one JSON object") from error
    if not isinstance(value, dict):
        raise DatasetError.one(str(path), f"a JSON {type(value).__name__}", "one JSON object of lists")
    return value


def _valid_groups(path: Path, problems: list[Problem]) -> Iterator[RolloutGroup]:
    """Yield the groups that can be read, and add the problems of the others."""
    if not path.is_file():
        raise DatasetError.one(str(path), "no such file", "a JSONL file of rollout groups")
    for first, lines in _chunks(read_lines(path)):
        try:
            yield from groups_of_lines(lines, source=str(path))
        except DatasetError as error:
            problems.extend(_at(problem, str(path), first - 1) for problem in error.problems)
        except CorruptFile as error:
            problems.append(Problem(f"{path}:{first}", str(error).removeprefix(f"{path}: "), "a whole group"))
        if len(problems) > _MAX_PROBLEMS:
            problems[_MAX_PROBLEMS:] = [
                Problem(str(path), "more problems like these", f"at most {_MAX_PROBLEMS} to tell")
            ]
            return


def _chunks(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of each group, with the number of its first."""
    chunk: list[str] = []
    start = 1
    for number, line in enumerate(lines, start=1):
        if chunk and _GROUP_START.search(line) and _kind(line) == "group":
            yield start, chunk
            chunk, start = [], number
        chunk.append(line)
    if chunk:
        yield start, chunk


def _kind(line: str) -> object:
    try:
        value: object = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return value.get("kind") if isinstance(value, Mapping) else None


def _at(problem: Problem, source: str, offset: int) -> Problem:
    """Return the problem with the line number of the whole file."""
    numbered = re.match(rf"{re.escape(source)}:(\d+)", problem.source)
    if numbered is None:
        return problem
    where = f"{source}:{int(numbered[1]) + offset}{problem.source[numbered.end() :]}"
    return Problem(where, problem.given, problem.accepted)


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise DatasetError(problems)


def _dataset_error(path: Path, error: ShapeError) -> DatasetError:
    problems = []
    for problem in error.problems:
        where = f", {problem.where}" if problem.where else ""
        problems.append(Problem(f"{path}: {problem.name}{where}", problem.received, problem.expected))
    return DatasetError(problems)

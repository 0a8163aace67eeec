"""Import groups that others collected: check them, report all problems together, return a batch or write canonical lines.

Two forms: the canonical JSON lines, and one JSON object of four parallel lists (states, actions, rewards, old
log-probabilities). Invalid input is refused as a whole, never repaired or skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from tfgrpo.stores.batch.batch import ExperienceBatch
from tfgrpo.stores.batch.lines import groups_of_lines, lines_of_group
from tfgrpo.stores.batch.shapes import RolloutGroup
from tfgrpo.stores.errors import CorruptFile, DatasetError, Problem, ShapeError
from tfgrpo.stores.files.atomic import read_lines, replacing
from tfgrpo.stores.frozen_json import json_of, mapping_of
from tfgrpo.tasks.exports.lessons.forms import json_object

ImportForm: TypeAlias = Literal["jsonl", "lists"]
FORMS: Final[tuple[ImportForm, ...]] = get_args(ImportForm)
"""Of the option ``--from``, by its name in ``flows/commands.yaml``."""
_LISTS: Final = ("states", "action_groups", "reward_groups")
_KEYS: Final = (*_LISTS, "group_size", "ids", "log_prob_old_groups")
_MAX_PROBLEMS: Final = 50
"""Problems listed; a file that is wrong throughout is wrong in one way."""
_GROUP_START: Final = re.compile(r'"kind"\s*:\s*"group"')


def load_batch(path: Path, form: ImportForm) -> ExperienceBatch:
    """Return the whole file as a batch in memory. Raise ``DatasetError`` with every problem."""
    return ExperienceBatch(tuple(_groups(path, form)))


def import_groups(path: Path, form: ImportForm, target: Path) -> tuple[int, int]:
    """Check a file, write its groups as canonical lines, and return the numbers of groups and rollouts.

    Canonical lines stream through memory. Raise ``DatasetError`` with every problem; no file is written then.
    """
    groups, rollouts = 0, 0
    with replacing(target) as part, part.open("w", encoding="utf-8", newline="\n") as file:
        for group in _groups(path, form):
            groups += 1
            rollouts += len(group.rollouts)
            file.writelines(f"{line}\n" for line in lines_of_group(group))
        if not groups:
            raise DatasetError.one(str(path), "no group", "at least one group")
    return groups, rollouts


def _groups(path: Path, form: ImportForm) -> Iterable[RolloutGroup]:
    return _of_lists(path) if form == "lists" else _of_lines(path)


def _of_lists(path: Path) -> tuple[RolloutGroup, ...]:
    try:
        value = json_object(path.read_bytes(), str(path))
    except OSError as error:
        reason = "no such file" if isinstance(error, FileNotFoundError) else f"unreadable ({error.strerror})"
        raise DatasetError.one(str(path), reason, "a JSON file of four lists") from error
    known = {key: value[key] for key in _KEYS if key in value}
    accepted = ", ".join(sorted(_KEYS))
    problems = [Problem(f"{path}: {key}", "an unknown key", accepted) for key in value if key not in known]
    problems += [Problem(f"{path}: {key}", "nothing", "a list") for key in _LISTS if key not in known]
    groups: tuple[RolloutGroup, ...] = ()
    if known.keys() >= set(_LISTS):
        try:
            groups = ExperienceBatch.from_lists(**known).groups
        except ShapeError as error:
            for problem in error.problems:
                where = ", ".join(filter(None, (problem.name, problem.where)))
                problems.append(Problem(f"{path}: {where}", problem.received, problem.expected))
    if problems:
        raise DatasetError(problems)
    return groups


def _of_lines(path: Path) -> Iterator[RolloutGroup]:
    """Yield the groups that can be read; after the last one, raise ``DatasetError`` with the problems of the others."""
    if not path.is_file():
        raise DatasetError.one(str(path), "no such file", "a JSONL file of rollout groups")
    problems: list[Problem] = []
    seen: set[str] = set()
    for first, lines in _chunks(read_lines(path)):
        try:
            for group in groups_of_lines(lines, source=str(path), first=first):
                if group.id in seen:
                    given = f"two groups with the id {group.id!r}"
                    problems.append(Problem(f"{path}:{first}", given, "groups with ids of their own"))
                seen.add(group.id)
                yield group
        except DatasetError as error:
            problems.extend(error.problems)
        except CorruptFile as error:
            problems.append(Problem(f"{path}:{first}", str(error).removeprefix(f"{path}: "), "a whole group"))
        if len(problems) > _MAX_PROBLEMS:
            more = Problem(str(path), "more problems like these", f"at most {_MAX_PROBLEMS} to tell")
            problems[_MAX_PROBLEMS:] = [more]
            break
    if problems:
        raise DatasetError(problems)


def _chunks(lines: Iterator[str]) -> Iterator[tuple[int, list[str]]]:
    """Yield the lines of each group, with the number of its first."""
    chunk: list[str] = []
    start = 1
    for number, line in enumerate(lines, start=1):
        # Most lines are long rollouts: only what looks like a group is parsed here.
        if chunk and _GROUP_START.search(line) and mapping_of(json_of(line)).get("kind") == "group":
            yield start, chunk
            chunk, start = [], number
        chunk.append(line)
    if chunk:
        yield start, chunk

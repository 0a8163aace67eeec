"""Read the rollout groups of a run from its files, one at a time, with prompts and whole answers.

Only accepted batches count: attempts without a line in ``groups.jsonl`` are of a batch that was never finished. Memory
has one group and a small index cache at a time. A failed attempt has no reward, and what was not recorded is None.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any

from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError

from tfgrpo.stores.batch.shapes import Rollout, RolloutGroup, RolloutUsage, Sampling, status_of_outcome
from tfgrpo.stores.errors import CorruptFile, SettingsError, StoreError
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.files.lines import lines_of, read_rows, sound_lines
from tfgrpo.stores.frozen_json import FrozenDict, json_of, mapping_of
from tfgrpo.stores.outcomes import GroupKey
from tfgrpo.stores.runs.journal import attempt_name
from tfgrpo.stores.runs.manifest import ManifestFile
from tfgrpo.tasks.exports.attempts import Answered, answer_of, attempt_of_key

Row = Mapping[str, Any]


class RunFacts(BaseModel):
    """Facts that apply to every group of a run, read from its manifest."""

    model_config = ConfigDict(frozen=True)

    run_id: str
    task_id: str
    status: str
    model: str
    simulated: bool
    send_temperature: bool = Field(validation_alias=AliasPath("settings", "model", "send_temperature"))
    temperatures: Mapping[str, float | None] = Field(validation_alias=AliasPath("settings", "tfgrpo", "temperature"))
    max_tokens: int = Field(validation_alias=AliasPath("settings", "model", "max_tokens"))
    min_spread: float = Field(validation_alias=AliasPath("settings", "tfgrpo", "min_spread"))
    actor: str = Field(validation_alias=AliasPath("settings", "actor", "kind"))
    """``chat``, ``tools``, or the name of a callable."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Schemas, as sent to the model."""

    def temperature(self, phase: str) -> float | None:
        """Return the temperature of a phase; None where the endpoint used its own default."""
        return self.temperatures.get("eval" if phase == "eval" else "train") if self.send_temperature else None


def facts_of_run(run: RunPaths) -> RunFacts:
    """Return the facts of a run. Raise ``SettingsError`` for a run that cannot be exported."""
    manifest = ManifestFile(run.manifest).read()
    problem = _unusable(run, manifest)
    if problem:
        raise SettingsError.one("RUN", f"{run.root.name} ({problem})", "a run with accepted batches")
    try:
        return RunFacts.model_validate(manifest)
    except ValidationError as error:
        lacking = ".".join(map(str, error.errors()[0]["loc"]))
        raise CorruptFile(f"the manifest of the run lacks {lacking}") from error


def groups_of_run(
    run: RunPaths, facts: RunFacts, omitted: Counter[str], *, bare: bool = False
) -> Iterator[RolloutGroup]:
    """Yield the groups in the order of their records. Raise ``CorruptFile`` for files that are inconsistent.

    A side of a split group is a group, because its attempts have a prompt of their own. With ``bare`` prompts, which are
    equal, sides of a single attempt stay together. ``omitted`` counts the groups without a record.
    """
    # rollouts.jsonl is opened first: later appends are not seen, and what its lines refer to was written before them.
    rows = _rows(run.rollouts)
    first = list(islice(rows, 1))  # a generator opens its file only now
    with ExitStack() as stack:
        journal = stack.enter_context(line_index(run.journal, attempt_of_key, lenient=True))
        items = stack.enter_context(line_index(run.items, lambda line: _text(line, "item_id")))
        prompts = stack.enter_context(line_index(run.prompts, lambda line: _text(line, "digest")))
        heads = stack.enter_context(line_index(run.groups, lambda line: _text(line, "group_id")))
        tools = [tool["function"]["name"] for tool in facts.tools]
        short: set[str] = set()
        for group_id, members in groupby(chain(first, rows), key=lambda row: row["group_id"]):
            rollouts = list(members)
            head = _find(heads, "group_id", group_id)
            if head is None:
                omitted["of a batch that was never accepted"] += 1
                continue
            try:
                if len(rollouts) < len(head["rollouts"]):  # a line is lost, or the group goes on elsewhere
                    if group_id in short:
                        raise CorruptFile(f"{run.rollouts}: the lines of group {group_id!r} are in several places")
                    short.add(group_id)
                item = _one(items, "item_id", head["item_id"])
                for own, attempts in _sides(head, rollouts, bare=bare):
                    # Of sides that stay together, the second one's.
                    prompt = _one(prompts, "digest", attempts[-1]["prompt_digest"])
                    yield _group(own, attempts, _answers(head, attempts, journal, tools), item, prompt, facts)
            except (KeyError, TypeError) as error:
                raise CorruptFile(f"group {group_id!r}: a line about it lacks {error}") from error


def _sides(head: Row, rows: Sequence[Row], *, bare: bool) -> Iterator[tuple[Row, Sequence[Row]]]:
    """Yield the record and the attempts of each side of a split group, or those of the group."""
    ids = head["rollouts"]
    if not head.get("halves") or (bare and len(ids) < 4):
        yield head, rows
        return
    lost = len(ids) - len(rows)  # lines that are missing may be of either side, so both count as short of them
    for arm, own in groupby(rows, key=lambda row: str(row["arm"])):
        attempts = list(own)
        made = [*(row["rollout_id"] for row in attempts), *([""] * lost)]
        yield {**head, "group_id": f"{head['group_id']}/{arm}", "arm": arm, "rollouts": made}, attempts


def _answers(head: Row, rows: Sequence[Row], journal: LineIndex, tools: Sequence[str]) -> list[Answered]:
    names = [attempt_name(GroupKey.of_row({**head, "arm": row["arm"]}), row["index"]) for row in rows]
    lines = journal.lines(names)
    return [answer_of(lines.get(name, ()), name, row["output"], tools) for name, row in zip(names, rows, strict=True)]


def _unusable(run: RunPaths, manifest: Row) -> str:
    if not manifest:
        return "it has no manifest"
    if not {"settings", "run_id", "model", "pack"} <= set(manifest):
        return "its manifest lacks settings"
    if not run.groups.is_file() or not run.rollouts.is_file():
        return "no batch of it was finished"
    if not run.items.is_file():
        return "it was recorded by a version that did not keep what was asked: it has no items.jsonl"
    return ""


def _rows(path: Path) -> Iterator[Row]:
    return (_of_group(path, number, row) for number, row in enumerate(read_rows(path), start=1))


def _of_group(path: Path, number: int, row: Row) -> Row:
    if not isinstance(row.get("group_id"), str):
        raise CorruptFile(f"{path}: line {number} names no group")
    return row


def _text(line: bytes, name: str) -> str | None:
    value = mapping_of(json_of(line)).get(name)
    return value if isinstance(value, str) else None


def _find(index: LineIndex, name: str, key: str) -> Row | None:
    rows: Iterator[Row] = map(json.loads, index.lines([str(key)]).get(str(key), ()))
    return next((row for row in rows if row[name] == key), None)


def _one(index: LineIndex, name: str, key: str) -> Row:
    row = _find(index, name, key)
    if row is None:
        raise CorruptFile(f"{index.path}: has no line about {key!r}, which a group refers to")
    return row


def _group(
    head: Row, rows: Sequence[Row], answers: Sequence[Answered], item: Row, prompt: Row, facts: RunFacts
) -> RolloutGroup:
    """Return one group. Raise ``KeyError`` for rows that lack a field."""
    group_id, system = head["group_id"], item["system_prompt"]
    library = prompt["library_id"]
    return RolloutGroup(
        id=group_id,
        state=[_turn("system", prompt["system"]), _turn("user", "\n\n".join(filter(None, (system, item["prompt"]))))],
        bare_state=[*([_turn("system", system)] if system else []), _turn("user", item["prompt"])],
        rollouts=tuple(_rollout(row, group_id, answer, facts) for row, answer in zip(rows, answers, strict=True)),
        target_size=max(len(head["rollouts"]), len(rows)),
        policy_version=facts.model,
        experience_version=f"{prompt['pack_id']}@{prompt['stamp'][:16]}+{library}",
        metadata={
            "run_id": facts.run_id,
            "task_id": facts.task_id,
            "item_id": head["item_id"],
            "answer": item["answer"] or None,
            **({"alternatives": item["alternatives"]} if item.get("alternatives") else {}),
            "domain": item["domain"] or None,
            "epoch": head["epoch"],
            "phase": head["phase"],
            "arm": head["arm"],
            "pack_id": prompt["pack_id"],
            "pack_stamp": prompt["stamp"],
            "library_id": library,
            "simulated": facts.simulated,
            "actor": facts.actor,
            **({"tools": facts.tools} if facts.tools else {}),
        },
    )


def _turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def _rollout(row: Row, group_id: str, answered: Answered, facts: RunFacts) -> Rollout:
    outcome = row["outcome"]
    ranked = {name: row[name] for name in ("advantage", "relative_rank") if row[name] is not None}
    known = answered.usage_known or bool(row["completion_tokens"])
    return Rollout(
        id=row["rollout_id"],
        group_id=group_id,
        index=row["index"],
        completion=answered.completion,
        status=status_of_outcome(outcome["name"], outcome.get("error_type", ""), row["finish_reason"]),
        reward=outcome["reward"] if outcome["name"] == "scored" else None,
        reward_parts=FrozenDict((score["rewarder_id"], score["score"]) for score in row["scores"]),
        logprob=answered.logprob,
        sampling=Sampling(
            model=answered.model or facts.model,
            temperature=facts.temperature(row["phase"]),
            seed=row["seed"],
            max_tokens=facts.max_tokens,
            finish_reason=row["finish_reason"],
        ),
        usage=RolloutUsage(
            prompt_tokens=row["prompt_tokens"] if known else None,
            completion_tokens=row["completion_tokens"] if known else None,
            reasoning_tokens=answered.reasoning_tokens,
            cost_usd=row["cost_usd"],
        ),
        latency_s=row["latency_s"],
        error=None if outcome["name"] == "scored" else outcome["reason"],
        metadata=FrozenDict({"outcome": outcome["name"], "calls": row["calls"], **ranked}),
    )


@dataclass(frozen=True, slots=True)
class LineIndex:
    """Lines of one file by a key in each line, on disk, so that memory does not grow with the file.

    A temporary database has an eight-byte digest and the place of each line. Two keys may share a digest: results are
    lines, which the caller compares with the key.
    """

    path: Path
    _fd: int
    _database: sqlite3.Connection

    def lines(self, keys: Sequence[str]) -> dict[str, list[bytes]]:
        """Return the possible lines for each key, in file order; keys without any are missing."""
        names = {_digest(key): key for key in keys}
        marks = ",".join("?" * len(names))
        query = f"SELECT digest, offset, length FROM line WHERE digest IN ({marks}) ORDER BY digest, offset"  # noqa: S608
        rows = self._database.execute(query, tuple(names)).fetchall()
        return {
            names[digest]: [os.pread(self._fd, length, offset) for _, offset, length in members]
            for digest, members in groupby(rows, key=lambda row: row[0])
        }


@contextmanager
def line_index(path: Path, key_of: Callable[[bytes], str | None], *, lenient: bool = False) -> Iterator[LineIndex]:
    """Read the file once, and open the index of its lines. A line whose key is None is skipped.

    A missing file has no lines. Raise ``CorruptFile`` for a damaged line, which ``lenient`` skips, ``StoreError`` when the
    database fails.
    """
    try:
        # SQLite takes the empty name for a private database on disk, deleted when it is closed.
        with (path if path.exists() else Path(os.devnull)).open("rb") as file, closing(sqlite3.connect("")) as database:
            lines = (line for line in (lines_of(path) if lenient else sound_lines(path)) if line.length)
            keys = ((key_of(line.data), line.offset, len(line.data)) for line in lines)
            entries = ((_digest(key), offset, length) for key, offset, length in keys if key is not None)
            database.execute("CREATE TABLE line (digest INTEGER, offset INTEGER, length INTEGER)")
            database.executemany("INSERT INTO line VALUES (?, ?, ?)", entries)
            database.execute("CREATE INDEX by_digest ON line (digest, offset)")
            yield LineIndex(path, file.fileno(), database)
    except sqlite3.Error as error:
        raise StoreError(f"{path}: its lines cannot be indexed: {error}") from error


def _digest(key: str) -> int:
    return int.from_bytes(blake2b(key.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "big", signed=True)

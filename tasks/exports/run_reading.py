"""Read the rollout groups of a run from its files, one at a time, with prompts and whole answers.

Only accepted batches count: attempts without a line in ``groups.jsonl`` are of a batch that was never finished. Memory
has items, prompts and offsets of the journal, and one group at a time. A failed attempt has no reward, what was not
recorded is None, and an answer is used only when its end is the one that was graded.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from pathlib import Path
from typing import Any, Final

from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError

from tfgrpo.stores.batch.shapes import LogProbs, Rollout, RolloutGroup, RolloutUsage, Sampling
from tfgrpo.stores.errors import CorruptFile, SettingsError
from tfgrpo.stores.files.layout import RunPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.json_values import FrozenDict, Json
from tfgrpo.stores.numeric import is_number
from tfgrpo.stores.outcomes import GroupKey, status_of_outcome
from tfgrpo.stores.runs import ManifestFile, attempt_name
from tfgrpo.stores.text import shorten_middle
from tfgrpo.tasks.actors.registry import no_such_tool
from tfgrpo.tasks.group import RECORDED_CHARS
from tfgrpo.tasks.models.wire import called
from tfgrpo.tasks.recorded import LineIndex, RecordedTurn, attempt_of_key, calls_of, turns_of

RunLine = Mapping[str, Any]
# Further fields of a request that change the distribution that is sampled from.
_RESHAPING: Final = frozenset(
    ["top_k", "min_p", "top_a", "typical_p", "logit_bias", "frequency_penalty", "presence_penalty", "repetition_penalty"]
)
_SHORTENED: Final = re.compile(r"\n\[… \d+ characters left out …\]\n")


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
    extra_body: Mapping[str, Any] = Field(validation_alias=AliasPath("settings", "model", "extra_body"))
    min_spread: float = Field(validation_alias=AliasPath("settings", "tfgrpo", "min_spread"))
    actor: str = Field(validation_alias=AliasPath("settings", "actor", "kind"))
    tools: tuple[Mapping[str, Any], ...] = ()

    def temperature(self, phase: str) -> float | None:
        """Return the temperature of a phase; None where the endpoint used its own default."""
        return self.temperatures.get("eval" if phase == "eval" else "train") if self.send_temperature else None


def facts_of_run(run: RunPaths) -> RunFacts:
    """Return the facts of a run. Raise ``SettingsError`` for a run that cannot be exported."""
    manifest, problem = ManifestFile(run.manifest).read(), "it has no manifest"
    if manifest and not (run.groups.is_file() and run.rollouts.is_file()):
        problem = "no batch of it was finished"
    elif manifest and not run.items.is_file():
        problem = "it has no items.jsonl"
    elif manifest:
        try:
            return RunFacts.model_validate(manifest)
        except ValidationError as error:
            problem = f"its manifest has no valid {'.'.join(map(str, error.errors()[0]['loc']))}"
    raise SettingsError.one("RUN", f"{run.root.name} ({problem})", "a run with accepted batches")


def groups_of_run(run: RunPaths, facts: RunFacts, omitted: Counter[str], *, bare: bool = False) -> Iterator[RolloutGroup]:
    """Yield the groups in the order of their records. Raise ``CorruptFile`` for files that are inconsistent.

    A side of a split group is a group, because its attempts have their own prompt. With ``bare`` prompts, which are
    equal, sides of a single attempt stay together. ``omitted`` counts the groups without a record.
    """
    # rollouts.jsonl is opened first: later appends are not seen, and what its lines refer to was written before them.
    rows = read_objects(run.rollouts)
    # A generator opens its file only now.
    first = list(islice(rows, 1))
    heads, items, prompts = _by(run.groups, "group_id"), _by(run.items, "item_id"), _by(run.prompts, "digest")
    journal = LineIndex(run.journal, attempt_of_key)
    short: set[str] = set()
    for group_id, members in groupby(chain(first, rows), key=lambda row: row.get("group_id")):
        attempts = list(members)
        if not isinstance(group_id, str):
            raise CorruptFile(f"{run.rollouts}: a line names no group: {attempts[0]!r:.120}")
        if (head := heads.get(group_id)) is None:
            omitted["of a batch that was never accepted"] += 1
            continue
        try:
            # A line is lost, or the group goes on elsewhere.
            if len(attempts) < len(head["rollouts"]):
                if group_id in short:
                    raise CorruptFile(f"{run.rollouts}: the lines of group {group_id!r} are in several places")
                short.add(group_id)
            item = _one(items, run.items, head["item_id"])
            for own, side in _sides(head, attempts, bare=bare):
                # Of sides that stay together, the second one's.
                prompt = _one(prompts, run.prompts, side[-1]["prompt_digest"])
                yield _group(own, tuple(_rollout(own, row, journal, facts) for row in side), item, prompt, facts)
        except (KeyError, TypeError) as error:
            raise CorruptFile(f"group {group_id!r}: a line about it lacks {error}") from error


def _by(path: Path, name: str) -> dict[str, RunLine]:
    rows: dict[str, RunLine] = {}
    for number, row in enumerate(read_objects(path), start=1):
        if not isinstance(key := row.get(name), str):
            raise CorruptFile(f"{path}: line {number} has no {name}")
        rows[key] = row
    return rows


def _one(rows: Mapping[str, RunLine], path: Path, key: str) -> RunLine:
    if key not in rows:
        raise CorruptFile(f"{path}: has no line about {key!r}, which a group refers to")
    return rows[key]


def _sides(head: RunLine, rows: Sequence[RunLine], *, bare: bool) -> Iterator[tuple[RunLine, Sequence[RunLine]]]:
    ids = head["rollouts"]
    if not head.get("halves") or (bare and len(ids) < 4):
        yield head, rows
        return
    # Lines that are missing may be of either side, so both count as short of them.
    lost = len(ids) - len(rows)
    for arm, own in groupby(rows, key=lambda row: str(row["arm"])):
        attempts = list(own)
        made = [*(row["rollout_id"] for row in attempts), *([""] * lost)]
        yield {**head, "group_id": f"{head['group_id']}/{arm}", "arm": arm, "rollouts": made}, attempts


def _group(head: RunLine, rollouts: tuple[Rollout, ...], item: RunLine, prompt: RunLine, facts: RunFacts) -> RolloutGroup:
    system, library = item["system_prompt"], prompt["library_id"]
    user = "\n\n".join(filter(None, (system, item["prompt"])))
    bare = [("system", system), ("user", item["prompt"])] if system else [("user", item["prompt"])]
    pack = {"pack_id": prompt["pack_id"], "pack_stamp": prompt["stamp"], "library_id": library}
    optional = {"alternatives": item.get("alternatives"), "tools": facts.tools}
    return RolloutGroup(
        id=head["group_id"],
        state=[{"role": "system", "content": prompt["system"]}, {"role": "user", "content": user}],
        bare_state=[{"role": role, "content": content} for role, content in bare],
        rollouts=rollouts,
        target_size=max(len(head["rollouts"]), len(rollouts)),
        policy_version=facts.model,
        experience_version=f"{prompt['pack_id']}@{prompt['stamp'][:16]}+{library}",
        metadata={
            **{name: getattr(facts, name) for name in ("run_id", "task_id", "simulated", "actor")},
            **{name: head[name] for name in ("item_id", "epoch", "phase", "arm")},
            **{name: item[name] or None for name in ("answer", "domain")},
            **pack,
            **{name: value for name, value in optional.items() if value},
        },
    )


def _rollout(head: RunLine, row: RunLine, journal: LineIndex, facts: RunFacts) -> Rollout:
    name, outcome = attempt_name(GroupKey.of_row({**head, "arm": row["arm"]}), row["index"]), row["outcome"]
    answered = _answer_of(journal.lines(name), name, row["output"], [tool["function"]["name"] for tool in facts.tools])
    ranked = {name: row[name] for name in ("advantage", "relative_rank") if row[name] is not None}
    counted_tokens = answered.usage_known or bool(row["completion_tokens"])
    scored = outcome["name"] == "scored"
    return Rollout(
        id=row["rollout_id"],
        group_id=head["group_id"],
        index=row["index"],
        completion=answered.completion,
        status=status_of_outcome(outcome["name"], outcome.get("error_type", ""), row["finish_reason"]),
        reward=outcome["reward"] if scored else None,
        reward_parts=FrozenDict((score["rewarder_id"], score["score"]) for score in row["scores"]),
        logprob=answered.logprob,
        sampling=Sampling(
            model=answered.model or facts.model,
            temperature=facts.temperature(row["phase"]),
            seed=row["seed"],
            max_tokens=facts.max_tokens,
            finish_reason=row["finish_reason"],
            top_p=top_p if is_number(top_p := facts.extra_body.get("top_p"), allow_nan=False) else None,
            reshaped=not _RESHAPING.isdisjoint(facts.extra_body),
        ),
        usage=RolloutUsage(
            prompt_tokens=row["prompt_tokens"] if counted_tokens else None,
            completion_tokens=row["completion_tokens"] if counted_tokens else None,
            reasoning_tokens=answered.reasoning_tokens,
            cost_usd=row["cost_usd"],
        ),
        latency_s=row["latency_s"],
        error=None if scored else outcome["reason"],
        metadata=FrozenDict({"outcome": outcome["name"], "calls": row["calls"], **ranked}),
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    # A text; chat messages for an attempt with tools; None when the whole answer is unknown.
    completion: Json
    logprob: LogProbs | None = None
    model: str | None = None
    usage_known: bool = True
    reasoning_tokens: int | None = None


def _answer_of(lines: Sequence[bytes], name: str, recorded: str, tools: Sequence[str]) -> _Answer:
    calls = calls_of(lines, name)
    turns = turns_of(calls, name)
    model = turns[-1].reply.model if turns else None
    measured = bool(turns) and all(turn.reply.usage for turn in turns)
    for _, payload in calls["agent"].values():
        output = payload["trajectory"]["output"]
        # No call's log-probabilities are those of the answer of an agent's own code.
        return _Answer(output if _ends(output, recorded) else None, model=model, usage_known=measured)
    if not turns:
        whole = len(recorded) < RECORDED_CHARS or not _SHORTENED.search(recorded)
        return _Answer(recorded if whole and recorded else None, usage_known=False)
    reasoning = sum(turn.reply.usage.reasoning for turn in turns if turn.reply.usage) if measured else None
    last = turns[-1].reply.message.content
    # Only an answer whose end is the one that was graded.
    if not _ends(last or "", recorded):
        return _Answer(None, None, model, measured, reasoning)
    if len(turns) == 1:
        return _Answer(last, _logprobs(turns), model, measured, reasoning)
    messages: list[RunLine] = []
    for reply, results in turns:
        requests = [called(call.id, call.name, call.arguments) for call in reply.message.tool_calls]
        more = {"tool_calls": requests} if requests else {}
        messages.append({"role": "assistant", "content": reply.message.content, **more})
        for call, result in zip(reply.message.tool_calls, results, strict=True):
            # Calls of unknown tools have no result and got a standard answer.
            text = no_such_tool(call.name, tools) if result is None else result["text"]
            messages.append({"role": "tool", "tool_call_id": call.id, "name": call.name, "content": text})
    return _Answer(messages, _logprobs(turns), model, measured, reasoning)


def _ends(text: str, recorded: str) -> bool:
    return bool(recorded) and shorten_middle(text, RECORDED_CHARS) == recorded


def _logprobs(turns: Sequence[RecordedTurn]) -> LogProbs | None:
    measured = [(reply.token_logprobs, reply.usage) for reply, _ in turns if reply.token_logprobs]
    if not measured:
        return None
    if len(measured) < len(turns):
        return LogProbs()
    # Hidden reasoning has no values.
    complete = all(usage and not usage.reasoning and len(tokens) >= usage.completion for tokens, usage in measured)
    total, count = (math.fsum(value for tokens, _ in measured for value in tokens), sum(len(tokens) for tokens, _ in measured))
    # Of several replies only the sum, as the results of tools between them have none.
    return LogProbs(measured[0][0] if len(turns) == 1 else None, total=total, count=count, complete=complete)

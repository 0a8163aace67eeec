"""What is one recorded group as data? Its rows, its prompt and its journalled answers as a ``RolloutGroup``.

An attempt that failed has no reward here either, and what the run did not record is None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from tfgrpo.stores.batch.shapes import Rollout, RolloutGroup, RolloutUsage, Sampling, status_of_outcome
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.frozen_json import FrozenDict
from tfgrpo.stores.group_key import GroupKey
from tfgrpo.stores.runs.journal import attempt_name
from tfgrpo.tasks.exports.attempts import Answered, answer_of

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RunFacts:
    """What holds for every group of a run."""

    run_id: str
    task_id: str
    status: str
    model: str
    simulated: bool
    pack_id: str
    pack_stamp: str
    temperatures: Mapping[str, float | None]
    """By phase; None where the endpoint was left to its own."""
    max_tokens: int
    min_spread: float
    actor: str
    """``chat``, ``tools``, or the name of a callable."""
    tools: tuple[Mapping[str, Any], ...]
    """As the model was told of them."""

    @classmethod
    def of_manifest(cls, manifest: Row) -> Self:
        """Raises ``CorruptFile`` for a manifest that lacks any of it."""
        try:
            settings = manifest["settings"]
            told = settings["tfgrpo"]["temperature"] if settings["model"]["send_temperature"] else {}
            return cls(
                run_id=manifest["run_id"],
                task_id=manifest["task_id"],
                status=manifest["status"],
                model=manifest["model"],
                simulated=manifest["simulated"],
                pack_id=manifest["pack"]["id"],
                pack_stamp=manifest["pack"]["stamp"],
                temperatures={"train": told.get("train"), "eval": told.get("eval")},
                max_tokens=settings["model"]["max_tokens"],
                min_spread=settings["tfgrpo"]["min_spread"],
                actor=settings["actor"]["kind"],
                tools=tuple(manifest.get("tools", ())),
            )
        except (KeyError, TypeError, AttributeError) as error:
            raise CorruptFile(f"the manifest of the run lacks {error}") from error

    @property
    def tool_names(self) -> tuple[str, ...]:
        """Names of the tools, in the order in which the model was told of them."""
        return tuple(tool["function"]["name"] for tool in self.tools)


def group_of_rows(
    head: Row, rows: Sequence[Row], item: Row, prompt: Row, lines: Mapping[str, Sequence[bytes]], facts: RunFacts
) -> RolloutGroup:
    """One group. ``lines`` are the journal's, by attempt. Raises ``KeyError`` for rows that lack a field."""
    key = GroupKey.of_row(head)
    names = [attempt_name(key, row["index"]) for row in rows]
    answers = [
        answer_of(lines.get(name, ()), name, row["output"], facts.tool_names)
        for row, name in zip(rows, names, strict=True)
    ]
    group_id = head["group_id"]
    library = prompt["library_id"]
    return RolloutGroup(
        id=group_id,
        state=_as_sent(item, prompt),
        bare_state=_bare(item),
        rollouts=tuple(_rollout(row, group_id, answer, facts) for row, answer in zip(rows, answers, strict=True)),
        target_size=max(len(head["rollouts"]), len(rows)),
        policy_version=facts.model,
        experience_version=f"{prompt['pack_id']}@{prompt['stamp'][:16]}+{library}",
        metadata={
            "run_id": facts.run_id,
            "task_id": facts.task_id,
            "item_id": head["item_id"],
            "answer": item["answer"] or None,
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


def _as_sent(item: Row, prompt: Row) -> list[dict[str, str]]:
    user = "\n\n".join(part for part in (item["system_prompt"], item["prompt"]) if part)
    return [{"role": "system", "content": prompt["system"]}, {"role": "user", "content": user}]


def _bare(item: Row) -> list[dict[str, str]]:
    system = [{"role": "system", "content": item["system_prompt"]}] if item["system_prompt"] else []
    return [*system, {"role": "user", "content": item["prompt"]}]


def _rollout(row: Row, group_id: str, answered: Answered, facts: RunFacts) -> Rollout:
    outcome = row["outcome"]
    ranked = {name: row[name] for name in ("advantage", "relative_rank") if row[name] is not None}
    counted = answered.usage_known or bool(row["completion_tokens"])
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
            temperature=facts.temperatures.get(row["phase"]),
            seed=row["seed"],
            max_tokens=facts.max_tokens,
            finish_reason=row["finish_reason"],
        ),
        usage=RolloutUsage(
            prompt_tokens=row["prompt_tokens"] if counted else None,
            completion_tokens=row["completion_tokens"] if counted else None,
            reasoning_tokens=answered.reasoning_tokens,
            cost_usd=row["cost_usd"],
        ),
        latency_s=row["latency_s"],
        error=None if outcome["name"] == "scored" else outcome["reason"],
        metadata=FrozenDict({"outcome": outcome["name"], "calls": row["calls"], **ranked}),
    )

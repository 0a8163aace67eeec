"""Build a scripted model, a pack in memory, settings, specs, records and a runtime without a flow."""

from __future__ import annotations

import asyncio
import atexit
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.model_choice import ModelChoice, choose_models
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.prompt_packs.models import TEMPLATE_ROLES, LoadedPack, PromptPackManifest, TemplateFiles
from tfgrpo.rewarders.composite import AnyScorer
from tfgrpo.rewarders.registry import as_scorer, build_scorer
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Weighted
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.experiences.store import Polarity
from tfgrpo.stores.json_values import sha256_hex
from tfgrpo.stores.ledger import Budget, Ledger, Usage
from tfgrpo.stores.outcomes import GroupKey, Scored
from tfgrpo.stores.runs import CallKey, Journal
from tfgrpo.tasks.actors.registry import ChatActor
from tfgrpo.tasks.models.base import ChatReply, ChatRequest, FinishReason, Message, TokenUsage, ToolCall
from tfgrpo.tasks.models.chat import JournaledModel
from tfgrpo.tasks.rollout import FinishedRollout, run_rollout
from tfgrpo.tasks.runtime.runtime import Actor, RunContext, Runtime
from tfgrpo.tasks.shapes import Contrast, GroupResult, GroupSpec, PackText, Proposal, RolloutRecord

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
STAMPED = "2026-01-01T12:00:00Z"
Script = Callable[[ChatRequest, CallKey], Any]
_SCORERS = ScoreRunner()
"""Of every runtime that tests build; at the end of the tests it ends its threads and processes."""
atexit.register(_SCORERS.close)


def weighted(rewarder: object, weight: float = 1.0, timeout_s: float | None = None, **options: Any) -> Weighted:
    """Return a rewarder by its name, or an object with ``score(context)`` as one."""
    made: AnyScorer = (
        build_scorer(rewarder, options) if isinstance(rewarder, str) else as_scorer("own", rewarder, options, "rewarders")
    )
    return Weighted(made, weight, timeout_s)


@dataclass
class Says:
    """A rewarder by a function of its context."""

    rewarder_id: str
    score: Callable[[Any], list[Any]]
    score_range: tuple[float, float] = (0.0, 1.0)


def no_secret(_: object) -> None:
    return None


def reply(text: str | None, *, finish: FinishReason = "stop", calls: tuple[ToolCall, ...] = (), tokens: int = 5) -> ChatReply:
    return ChatReply(
        message=Message("assistant", text, tool_calls=calls),
        finish_reason=finish,
        usage=TokenUsage(10, tokens),
        latency_s=0.25,
        cost_usd=0.001,
        model="m",
    )


class ScriptedModel:
    """Answers by a function of request and key, and records the requests."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.requests: list[tuple[ChatRequest, CallKey]] = []

    async def complete(self, request: ChatRequest, key: CallKey) -> ChatReply:
        self.requests.append((request, key))
        answer = self.script(request, key)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ChatReply):
            return answer
        return reply(answer if isinstance(answer, str) else json.dumps(answer))

    def asked(self, role: str) -> list[dict[str, Any]]:
        """Return the JSON payloads of the learning calls of a role."""
        return [json.loads(request.messages[1].content or "") for request, key in self.requests if key.role == role]


def pack(slots: int = 8, max_words: int | None = None) -> LoadedPack:
    manifest = PromptPackManifest(
        id="arithmetic",
        domain="arithmetic",
        stamp="ab" * 32,
        stamped_at=STAMPED,
        system="system.md",
        templates=TemplateFiles(**{role: f"{role}.md" for role in TEMPLATE_ROLES}),
        experience_slots=slots,
        tags=("sums",),
        experience_max_words=max_words,
    )
    templates = {
        "reflect": "Say what separated them. {{ max_lessons }} {{ max_words }}",
        "curate": "Curate. {{ max_words }}",
        "shorten": "Shorten. {{ max_chars }} {{ max_words }}",
        "repair": "Repair. {{ max_words }}",
        "lessons": "Follow these.",
    }
    bodies = {"system.md": "Be careful.", **{f"{role}.md": text for role, text in templates.items()}}
    return LoadedPack(manifest, Path("packs/arithmetic"), bodies)


def settings(**sections: Any) -> Settings:
    """Return settings with some sections replaced by dictionaries."""
    return Settings.model_validate({"task_id": "t", **sections})


def item(name: str = "q1", answer: str = "7", prompt: str = "3 + 4?", **more: Any) -> Item:
    return Item(id=name, prompt=prompt, answer=answer, source="items.jsonl:1", **more)


def spec(size: int = 2, *, reflect: bool = True, of: Item | None = None, epoch: int = 1, **more: Any) -> GroupSpec:
    chosen = of or item()
    arm = more.pop("arm", "group")
    system = more.pop("system", "Be careful.")
    return GroupSpec(
        group_id=f"run/{epoch}/{arm}/{chosen.id}",
        key=GroupKey(epoch, "train" if arm == "group" else "eval", arm, 0, chosen.id, more.pop("draw", 0), "run"),
        item=chosen,
        size=size,
        temperature=0.7,
        pack=PackText(system, sha256_hex(system), "arithmetic", "ab" * 32, ()),
        reflect=reflect,
        **more,
    )


def _named(models: ModelChoice) -> ModelChoice:
    """Return the models under other names: ``m``, and ``learner`` for reflection and judges."""
    names = {"actor": "m", "reflection": "learner", "judge": "learner"}
    return replace(models, roles={role: each.model_copy(update={"name": names[role]}) for role, each in models.roles.items()})


def runtime(
    script: Script | ScriptedModel,
    tmp_path: Path,
    *,
    actor: Actor | None = None,
    rewarders: tuple[Weighted, ...] | None = None,
    replay: bool = False,
    loaded: LoadedPack | None = None,
    limits: dict[str, Any] | None = None,
    **sections: Any,
) -> Runtime:
    simulated = context(tmp_path, replay=replay, actor=limits or {}, **sections)
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    journal = Journal(tmp_path / "journal.jsonl")
    return Runtime(
        context=replace(simulated, models=_named(simulated.models)),
        model=JournaledModel(None if replay else model, journal),
        actor=actor or ChatActor(),
        rewarders=rewarders or (weighted("gt"),),
        scorers=_SCORERS,
        pack=replace(loaded or pack(), words_allowed=simulated.settings.tfgrpo.experience_max_words),
        journal=journal,
        ledger=Ledger(Budget()),
        slots=asyncio.Semaphore(8),
        threads=RewarderThreads(8),
        clock=lambda: NOON,
    )


def record(index: int = 0, *, group: str = "g", name: str = "q1", outcome: Any = None, **more: Any) -> RolloutRecord:
    values: dict[str, Any] = {
        "rollout_id": f"{group}/{index}",
        "group_id": group,
        "key": GroupKey(more.pop("epoch", 1), more.pop("phase", "train"), more.pop("arm", "group"), 0, name, run="run"),
        "index": index,
        "outcome": outcome or Scored(1.0, ()),
        "scores": (),
        "advantage": 0.0,
        "relative_rank": 0.5,
        "output": "",
        "summary": "",
        "tools": (),
        "usage": Usage(1, 1, 1, None),
        "latency_s": 0.1,
        "seed": 1,
        "prompt_digest": "d",
        "finish_reason": "stop",
    }
    return RolloutRecord(**{**values, **more})


def group(rollouts: tuple[RolloutRecord, ...], proposals: tuple[Proposal, ...] = (), **more: Any) -> GroupResult:
    first = rollouts[0]
    values: dict[str, Any] = {
        "group_id": first.group_id,
        "key": replace(first.key, **{name: more.pop(name) for name in ("epoch", "arm", "draw") if name in more}),
        "rollouts": rollouts,
        "signal": "mixed",
        "mean_reward": 0.5,
        "spread": 0.5,
        "proposals": proposals,
        "rejected": (),
        "reflection_failure": None,
        "learning": Usage(),
        "budget_refused": None,
        "fatal": None,
        "duration_s": 0.1,
    }
    return GroupResult(**{**values, **more})


def contrast(group: str = "g", name: str = "q1", **more: Any) -> Contrast:
    """Return a contrast of two attempts of a group."""
    values: dict[str, Any] = {
        "number": 0,
        "evidence": (f"{group}/0", f"{group}/1"),
        "best_reward": 1.0,
        "best_rank": 1.0,
        "spread": 0.5,
    }
    return Contrast(group_id=group, item_id=name, **{**values, **more})


def proposal(text: str, *, group: str = "g", name: str = "q1", polarity: Polarity = "do", **more: Any) -> Proposal:
    """Return a proposal of a contrast; ``more`` are fields of the contrast."""
    return Proposal(text, polarity, contrast(group, name, **more))


def context(run_dir: Path, pack_id: str = "arithmetic", *, replay: bool = False, **sections: Any) -> RunContext:
    """Return the context of a run of the simulated model in process."""
    return RunContext(
        settings=settings(**sections),
        run_dir=run_dir,
        run_id="run",
        pack_id=pack_id,
        packs_root=None,
        read_secret=no_secret,
        models=choose_models(settings(**sections).model_copy(update={"dry_run": True})),
        replay=replay,
    )


async def attempt(
    actor: Actor, script: Script | ScriptedModel, tmp_path: Path, index: int = 0, of: Item | None = None, **sections: Any
) -> FinishedRollout:
    """Return one attempt of an actor at an item."""
    return await run_rollout(spec(of=of), index, runtime(script, tmp_path, actor=actor, **sections))


def calling(*calls: tuple[str, str]) -> ChatReply:
    """Return a reply that calls tools, given their names and arguments."""
    return reply(None, finish="tool_calls", calls=tuple(ToolCall(f"c{i}", *call) for i, call in enumerate(calls)))


def in_turn(*turns: str | ChatReply) -> Script:
    """Return a script with one reply per turn, by key."""
    return lambda _, key: turns[key.turn]


def lessons(*texts: str, polarity: str = "do", cause: str = "", judged: Iterable[tuple[str, str]] = ()) -> dict[str, Any]:
    """Return the answer of a reflection: lessons, and judgements by label."""
    return {
        "first_difference": "A carries.",
        "cause": cause,
        "judgements": [{"lesson": label, "judgement": judgement} for label, judgement in judged],
        "lessons": [{"polarity": polarity, "text": text} for text in texts],
    }

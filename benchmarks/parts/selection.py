"""Time of a selection of 16 besides its model: ``python -m benchmarks selection``.

The model answers at once, without a network. Measured is the whole of it, attempts included: tasks, seeds, spans,
reading, grading, choosing. For process models most of it is reading, whose cost is that of the text.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Sequence

from benchmarks.table import Row
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.tree import SelectionSettings, Settings
from tfgrpo.prompt_packs.stamps import load_prompt_pack
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Weighted
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.ledger import Budget, Ledger
from tfgrpo.stores.runs import CallKey
from tfgrpo.tasks.actors.registry import ChatActor
from tfgrpo.tasks.models.base import ChatReply, ChatRequest, Message, TokenUsage
from tfgrpo.tasks.models.chat import JournaledModel
from tfgrpo.tasks.runtime.runtime import RunContext, Runtime
from tfgrpo.tasks.selection.round import AnswerFormat, PowlFormat, SelectionSpec, TextFormat, select_best
from tfgrpo.tasks.shapes import PackText

K, REPEATS, LIMIT_MS = 16, 60, 2.0
_STEPS = ("receive order", "check credit", "pick goods", "pack goods", "print label", "ship", "send invoice", "close")


class _Instant:
    """Answers at once; each candidate of its own kind."""

    def __init__(self, answers: Sequence[str]) -> None:
        self._answers = answers

    async def complete(self, request: ChatRequest, key: CallKey) -> ChatReply:
        del request
        return ChatReply(Message("assistant", self._answers[key.rollout]), "stop", TokenUsage(10, 5), 0.0, 0.0, "m")


def process_models() -> list[str]:
    """Sixteen different process models of eight activities."""
    activities = [f"ACTIVITY({step})" for step in _STEPS]
    texts = []
    for number in range(K):
        turned = activities[number % 8 :] + activities[: number % 8]
        kind = "PARALLEL" if number < 8 else "XOR"
        texts.append(f"SEQUENCE({turned[0]}, {kind}({', '.join(turned[1:4])}), {', '.join(turned[4:])})")
    return texts


def _runtime(answers: Sequence[str], rewarder: str, threads: RewarderThreads, scorers: ScoreRunner) -> Runtime:
    settings = Settings()
    context = RunContext(
        settings=settings,
        run_dir=load_prompt_pack("general").root,  # nothing is written
        run_id="bench",
        pack_id="general",
        packs_root=None,
        read_secret=lambda _: None,
        models=choose_models(Settings()),
    )
    return Runtime(
        context=context,
        model=JournaledModel(_Instant(answers), None),
        actor=ChatActor(),
        rewarders=(Weighted(build_scorer(rewarder)),),
        scorers=scorers,
        pack=load_prompt_pack("general"),
        journal=None,
        ledger=Ledger(Budget()),
        slots=asyncio.Semaphore(settings.tfgrpo.concurrency),
        threads=threads,
    )


def _spec(answer: str, format_: AnswerFormat) -> SelectionSpec:
    pack = PackText("Be careful.", "d", "general", "ab" * 32, ())
    return SelectionSpec("bench", Item("q", "How?", answer, source="bench:1"), pack, SelectionSettings(k=K), format_)


async def _whole(answers: Sequence[str], answer: str, rewarder: str, format_: AnswerFormat) -> float:
    """Median milliseconds of a selection."""
    took = []
    spec = _spec(answer, format_)
    with RewarderThreads() as threads, ScoreRunner() as scorers:
        runtime = _runtime(answers, rewarder, threads, scorers)
        for _ in range(REPEATS):
            begin = time.perf_counter()
            selection = await select_best(spec, runtime)
            took.append(time.perf_counter() - begin)
            if any(candidate.reward is None for candidate in selection.candidates):
                raise SystemExit("not every candidate was graded")
    return statistics.median(took) * 1e3


def measure() -> list[Row]:
    """One row for each kind of answer."""
    gc.collect()
    plain, texts = [f"Step 1: add.\nAnswer: {index % 3}" for index in range(K)], process_models()
    whole = asyncio.run(_whole(plain, "1", "gt", TextFormat()))
    models = asyncio.run(_whole(texts, texts[0], "powl_footprint", PowlFormat()))
    note = f"reading and validating {len(_STEPS)} activities each is most of it"
    return [
        Row(f"selection: {K} text answers, all but the model", whole, "ms", LIMIT_MS),
        Row(f"selection: {K} process models, reading too", models, "ms", None, note),
    ]

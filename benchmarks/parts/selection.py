"""Time of a selection of 16 besides its model: ``python -m benchmarks.parts.selection``.

The model answers at once, without a network. The first row is the whole of it, attempts included: tasks, seeds, spans,
reading, grading, choosing. For process models reading is shown apart, because its cost is that of the text.
"""

from __future__ import annotations

import asyncio
import gc
import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

from benchmarks.table import Row, table
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.model_choice import choose_models
from tfgrpo.pipelines.settings.selection import SelectionSettings
from tfgrpo.pipelines.settings.tree import Settings
from tfgrpo.prompt_packs.loader import load_prompt_pack
from tfgrpo.rewarders.powl import Model, parse_text
from tfgrpo.rewarders.powl.scoring import MODEL_KEY
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Attempt, RewardContext, Weighted
from tfgrpo.rewarders.threads import RewarderThreads
from tfgrpo.stores.ledger.ledger import Ledger
from tfgrpo.stores.ledger.state import Budget, Usage
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.actors.registry import ChatActor
from tfgrpo.tasks.group import compare
from tfgrpo.tasks.models.base import ChatReply, ChatRequest, Message, TokenUsage
from tfgrpo.tasks.models.journaled import JournaledModel
from tfgrpo.tasks.rollout import run_rollout
from tfgrpo.tasks.runtime.runtime import RunContext, Runtime
from tfgrpo.tasks.selection.formats import AnswerFormat, PowlFormat, Sound, TextFormat
from tfgrpo.tasks.selection.round import choose, grades_of, group_of, select_best
from tfgrpo.tasks.selection.shapes import Candidate, SelectionSpec
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


def models() -> list[str]:
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


async def _whole(answers: Sequence[str], answer: str, rewarder: str, format_: AnswerFormat) -> tuple[float, float]:
    """Median milliseconds of a selection, and of its sixteen attempts alone, in turns."""
    whole, attempts = [], []
    spec = _spec(answer, format_)
    with RewarderThreads() as threads, ScoreRunner() as scorers:
        runtime = _runtime(answers, rewarder, threads, scorers)
        for _ in range(REPEATS):
            begin = time.perf_counter()
            selection = await select_best(spec, runtime)
            whole.append(time.perf_counter() - begin)
            if len(selection.grades) != K:
                raise SystemExit("not every candidate was graded")
            group = group_of(spec)
            begin = time.perf_counter()
            await asyncio.gather(*(run_rollout(replace(group), index, runtime) for index in range(K)))
            attempts.append(time.perf_counter() - begin)
    return statistics.median(whole) * 1e3, statistics.median(attempts) * 1e3


async def _grading(texts: Sequence[str]) -> float:
    """Median milliseconds of grading and choosing among sixteen process models that were read."""
    read: list[Model] = [parse_text(text) for text in texts]
    spec = _spec(texts[0], PowlFormat())
    candidates = [_candidate(index, text, model) for index, (text, model) in enumerate(zip(texts, read, strict=True))]
    outputs = tuple(Attempt(str(index), index, text, 1, {MODEL_KEY: read[index]}) for index, text in enumerate(texts))
    context = RewardContext("bench#q", "q", "How?", texts[0], outputs)
    rewarders = [Weighted(build_scorer("powl_footprint"))]
    took = []
    with ScoreRunner() as runner:
        for _ in range(REPEATS):
            begin = time.perf_counter()
            scores = await runner.score_group(rewarders, context)
            choose(spec, candidates, grades_of(candidates, scores, compare(scores.totals)))
            took.append(time.perf_counter() - begin)
    return statistics.median(took) * 1e3


def _candidate(index: int, text: str, model: Model) -> Candidate:
    return Candidate(index, Sound(), text, model, (), 0.7, 0, Usage(1, 10, 5, 0.0), 0.0)


def measure() -> list[Row]:
    """One row for each kind of answer, with its attempts alone as a note."""
    gc.collect()
    rows = []
    texts = models()
    plain = [f"Step 1: add.\nAnswer: {index % 3}" for index in range(K)]
    whole, attempts = asyncio.run(_whole(plain, "1", "gt", TextFormat()))
    note = f"of that, the attempts alone: {attempts:.2f} ms"
    rows.append(Row(f"selection: {K} text answers, all but the model", whole, "ms", LIMIT_MS, note))
    rows.append(
        Row(f"selection: grading and choosing {K} process models", asyncio.run(_grading(texts)), "ms", LIMIT_MS)
    )
    whole, attempts = asyncio.run(_whole(texts, texts[0], "powl_footprint", PowlFormat()))
    note = f"reading and validating {len(_STEPS)} activities each is most of it"
    rows.append(Row(f"selection: {K} process models, attempts and reading too", whole, "ms", None, note))
    return rows


def main() -> None:
    """Print the table."""
    print(table(measure()))


if __name__ == "__main__":
    main()

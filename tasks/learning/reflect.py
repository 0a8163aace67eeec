"""Reflect on one group: ask the learning model what separated good attempts from bad ones, and which lessons helped.

Attempts are shown in full where they fit, else as a digest and the steps around their first difference, with what the graders
said but not with their rank. Returns proposals and judgements. What they change is decided by curation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

from tfgrpo.prompt_packs.safety import Rejection, attack_in, repeated_run
from tfgrpo.rewarders.advantages.group import best_first
from tfgrpo.rewarders.scorer import reference_text
from tfgrpo.rewarders.statistics.credit import RULES
from tfgrpo.stores.experiences.store import ExperienceRecord
from tfgrpo.stores.outcomes import Failed, RewardScore
from tfgrpo.stores.runs import CallKey
from tfgrpo.stores.text import clean_text, pluralize, shorten_middle
from tfgrpo.tasks.learning.ask import DIGEST, REFLECTION, ReflectionAnswer, Spend, ask, screen_or_shorten
from tfgrpo.tasks.rollout import FinishedRollout, frame_label
from tfgrpo.tasks.runtime.runtime import Runtime
from tfgrpo.tasks.shapes import Contrast, GroupSpec, LessonJudgement, Proposal

_MAX_DIGEST_CHARS: Final = 6_000
_MAX_GRADER_CHARS: Final = 500
_AROUND: Final = 2
# A step in fewer characters loses its end, not its middle: the mark in its place would be most of it.
_LEAST_CHARS: Final = 100


class Step(NamedTuple):
    """One call of an attempt, or its final output."""

    label: str
    text: str


async def transcripts(
    spec: GroupSpec, contrast: int, attempts: Sequence[FinishedRollout], runtime: Runtime, spend: Spend
) -> list[dict[str, str]]:
    """Return what is shown of each attempt, together within ``LearningSettings.REFLECTION_CHARS``.

    Of an attempt with more than its share: a digest and the steps around their first difference, or shortened steps.
    """
    budget = runtime.context.settings.tfgrpo.REFLECTION_CHARS
    steps = []
    for attempt in attempts:
        calls = (frame for frame in attempt.frames if frame.text and frame.text != attempt.output)
        steps.append([*(Step(frame_label(frame), frame.text) for frame in calls), Step("final", attempt.output)])
    texts = [numbered(each) for each in steps]
    share = fair_share([len("\n".join(each)) for each in texts], budget)
    shown = [{"transcript": fitted(each, share)} for each in texts]
    for number, at in enumerate(first_difference(*steps)):
        if len("\n".join(texts[number])) <= share or spend.stopped:
            continue
        failure, payload = spend.failure, {"task": spec.item.prompt, "transcript": fitted(texts[number], budget)}
        key = CallKey(spec.key, rollout=0, turn=2 * contrast + number, role="digest")
        answer = await ask(DIGEST, key, payload, runtime, spend)
        spend.failure = failure  # without a digest the shortened attempt has to do
        if answer is not None:
            digest = shorten_middle(answer.digest, min(_MAX_DIGEST_CHARS, share // 2))
            window = [text for step, text in enumerate(texts[number]) if abs(step - at) <= _AROUND] + texts[number][-1:]
            shown[number] = {"digest": digest, "transcript": fitted(list(dict.fromkeys(window)), share - len(digest))}
    return shown


def numbered(steps: Sequence[Step]) -> list[str]:
    """Return the texts of the steps, each with its number and label; a single one is its text alone."""
    if len(steps) == 1:
        return [steps[0].text]
    return [f"[{number} {step.label}] {step.text}" for number, step in enumerate(steps, start=1)]


def fair_share(lengths: Sequence[int], room: int) -> int:
    """Return the length to which texts are cut so that all fit into ``room``: short ones leave their rest to long ones."""
    left = len(lengths)
    for length in sorted(lengths):
        if length * left > room:
            return max(0, room) // left
        room -= length
        left -= 1
    return max(lengths, default=0)


def fitted(texts: Sequence[str], room: int) -> str:
    """Return texts below each other in at most ``room`` characters: each is cut to its share, and none is omitted."""
    share = max(0, fair_share([len(text) + 1 for text in texts], room + 1) - 1)
    cut = (text[:share] if share < _LEAST_CHARS else shorten_middle(text, share) for text in texts)
    return "\n".join(cut)[:room]


def first_difference(one: Sequence[Step], other: Sequence[Step]) -> tuple[int, int]:
    """Return the number, from 0, of the step at which each of two attempts first differs from the other."""
    # By what their tools returned; without a difference there by every step: models rarely word one alike.
    for begins in ("tool ", ""):
        ones, others = ([at for at, step in enumerate(steps) if step.label.startswith(begins)] for steps in (one, other))
        for at, against in zip(ones, others, strict=False):
            if one[at] != other[against]:
                return at, against
        if len(ones) != len(others):
            shorter = min(len(ones), len(others))
            return (*ones, len(one) - 1)[shorter], (*others, len(other) - 1)[shorter]
    return len(one) - 1, len(other) - 1


# Starts the reason of a lesson beyond a limit, which is not screened.
BEYOND: Final = "more than"
# Starts the reason: text that an agent read is evidence, and never advice.
_TAINTED: Final = "repeats what a tool returned"


@dataclass(frozen=True, slots=True)
class RankedAttempt:
    """A scored attempt with its rank in the group."""

    rollout: FinishedRollout
    reward: float
    rank: float
    scores: tuple[RewardScore, ...] = ()
    half: int = 0
    """Side of a group that has two, by number: its attempts had one prompt."""


@dataclass(frozen=True, slots=True)
class Reflection:
    """Result and cost of reflection on one group."""

    proposals: tuple[Proposal, ...] = ()
    rejected: tuple[tuple[str, str], ...] = ()
    judgements: tuple[LessonJudgement, ...] = ()
    contrasts: tuple[Contrast, ...] = ()
    spend: Spend = field(default_factory=Spend)


async def reflect_on_group(spec: GroupSpec, attempts: Sequence[RankedAttempt], spread: float, runtime: Runtime) -> Reflection:
    """Contrast the attempts of a group; without a spread, against the reference answer. Failed calls are in the spend."""
    settings, spend, pairs = runtime.context.settings.tfgrpo, Spend(), contrasts_of(attempts)
    limit, most = settings.lessons_of(len(pairs)), settings.LESSONS_PER_GROUP
    returned = [frame.text for attempt in attempts for frame in attempt.rollout.frames if frame.kind == "tool" and frame.text]
    answered: list[Reflection] = []
    failures: list[Failed | None] = []
    for number, shown in enumerate(pairs):
        if spend.stopped:
            break
        spend.failure = None
        contrast = Contrast(
            group_id=spec.group_id,
            item_id=spec.item.id,
            number=number,
            evidence=tuple(attempt.rollout.rollout_id for attempt in shown),
            best_reward=shown[0].reward,
            best_rank=shown[0].rank,
            spread=spread,
        )
        answered.append(await _reflect(spec, contrast, shown, runtime, spend, returned=returned, limit=limit))
        failures.append(spend.failure)
    # A contrast that fails costs only itself.
    spend.failure = failures[0] if all(failures) else None
    proposals = [proposal for each in answered for proposal in each.proposals]
    extra = list(dict.fromkeys(each.text for each in proposals))[most:]
    beyond = [(text, f"{BEYOND} {pluralize(most, 'lesson')} from one group") for text in extra]
    return Reflection(
        tuple(proposal for proposal in proposals if proposal.text not in extra),
        (*(rejection for each in answered for rejection in each.rejected), *beyond),
        tuple(judgement for each in answered for judgement in each.judgements),
        tuple(contrast for each in answered for contrast in each.contrasts),
        spend,
    )


async def _reflect(
    spec: GroupSpec,
    contrast: Contrast,
    shown: Sequence[RankedAttempt],
    runtime: Runtime,
    spend: Spend,
    *,
    returned: Sequence[str],
    limit: int,
) -> Reflection:
    carried, key = lessons_in_force(spec), CallKey(spec.key, rollout=0, turn=contrast.number, role="reflect")
    answer = await _ask(spec, key, shown, limit, runtime, spend)
    if answer is None:
        return Reflection()
    cause = clean_text(answer.cause)
    attack = attack_in(cause)
    # Nothing is in place of one that gives orders, holds a secret, or repeats what a tool returned.
    unfit = (attack is not None and attack.rule != "answer") or repeated_run(cause, returned)
    contrast = replace(contrast, cause="" if unfit else cause)
    accepted: dict[str, Proposal] = {}
    rejected = [(lesson.text, f"{BEYOND} {pluralize(limit, 'lesson')} from one contrast") for lesson in answer.lessons[limit:]]
    for turn, lesson in enumerate(answer.lessons[:limit], start=1 + contrast.number * limit):
        screened = await screen_or_shorten(
            lesson.text,
            polarity=lesson.polarity,
            answers=spec.item.accepted,
            key=replace(key, turn=turn, role="shorten"),
            runtime=runtime,
            spend=spend,
        )
        if isinstance(screened, Rejection):
            rejected.append((lesson.text, screened.reason))
        elif repeated := repeated_run(screened, returned, whole=True):
            rejected.append((lesson.text, f"{_TAINTED}: {repeated}"))
        else:
            accepted.setdefault(screened, Proposal(screened, lesson.polarity, contrast))
    # Any lesson seems to help where the side without it did worse, also one that does nothing.
    weight = 1.0 if shown[0].half == shown[-1].half else RULES.across
    # Attempts that all failed show of no lesson whether it helped.
    judged = answer.judgements if contrast.spread else ()
    judgements = (LessonJudgement(carried[each.lesson].experience_id, each.judgement, contrast, weight) for each in judged)
    return Reflection(tuple(accepted.values()), tuple(rejected), tuple(judgements), (contrast,))


async def _ask(
    spec: GroupSpec, key: CallKey, shown: Sequence[RankedAttempt], limit: int, runtime: Runtime, spend: Spend
) -> ReflectionAnswer | None:
    texts = await transcripts(spec, key.turn, [attempt.rollout for attempt in shown], runtime, spend)
    if spend.stopped:
        return None
    item, lessons = spec.item, lessons_in_force(spec)
    attempts = []
    for label, attempt, text in zip("AB", shown, texts, strict=False):
        graders = [
            {"grader": each.rewarder_id, "score": each.score, "says": shorten_middle(each.evidence, _MAX_GRADER_CHARS)}
            for each in attempt.scores
        ]
        entry: dict[str, Any] = {"label": label, "reward": attempt.reward, **text, "graders": graders}
        if spec.first_half:
            carried = spec.halves[attempt.half].spec.pack.experience_ids
            entry["lessons"] = [name for name, each in lessons.items() if each.experience_id in carried]
        attempts.append(entry)
    words = runtime.pack.max_words
    payload: dict[str, Any] = {"task": item.prompt, "attempts": attempts, "max_lessons": limit, "max_words": words}
    if item.answer:
        payload["reference_answer"] = reference_text(item.answer, item.alternatives)
    in_force = [{"lesson": label, "polarity": each.polarity, "text": each.summary32} for label, each in lessons.items()]
    # Lessons are the same for many groups, so that at the end of the system message they are in a prefix that is cached.
    question = replace(REFLECTION, labels=tuple(lessons))
    return await ask(question, key, payload, runtime, spend, {"lessons_in_force": in_force})


def lessons_in_force(spec: GroupSpec) -> dict[str, ExperienceRecord]:
    """Return the lessons that any attempt of a group carried by their labels, in the order of the prompt."""
    texts = [text for text in (spec.first_half, spec.pack) if text is not None]
    records = {record.experience_id: record for text in texts for record in text.experiences}
    return {f"L{number}": record for number, record in enumerate(records.values(), start=1)}


def contrasts_of(attempts: Sequence[RankedAttempt]) -> tuple[tuple[RankedAttempt, ...], ...]:
    """Return the attempts of each contrast, better ones first; among equals the cheaper comes first, then the earlier.

    The best is held against the worst, and the second best against the second worst; where these have one reward, the best
    or the worst is in both. Of attempts with one reward the first two.
    """
    rewards = [attempt.reward for attempt in attempts]
    best = best_first(rewards, [attempt.rollout.usage.completion_tokens for attempt in attempts])
    low, high = min(rewards), max(rewards)
    if low == high:
        return (tuple(attempts[position] for position in best[:2]),)
    # The cheaper of those with the same reward: tokens alone must not make the contrast.
    worst = sorted(best, key=lambda position: rewards[position])
    extremes = [(one, other) for one in best if rewards[one] == high for other in worst if rewards[other] == low]
    # Two of one half, whose prompts are the same, show best what made the difference.
    first = min(extremes, key=lambda pair: attempts[pair[0]].half != attempts[pair[1]].half)
    better, lower = (next(each for each in order if each != used) for order, used in zip((best, worst), first, strict=True))
    nexts = ((better, lower), (first[0], lower), (better, first[1]))
    second = next((pair for pair in nexts if rewards[pair[0]] > rewards[pair[1]]), None)
    return tuple((attempts[one], attempts[other]) for one, other in (first, *([second] if second else [])))

"""Read the items of a run with every attempt: question, reference, steps, lessons carried, output, scores and outcome.

The files of the run suffice, however it ended. What no file has is None. Worse comes first: without a reward, then the lowest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple, Self, TypeAlias, get_args

from tfgrpo.flows.console.figures import ARMS, decimal, labelled, shown_arm
from tfgrpo.prompt_packs import lessons_in
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.files.lines import read_objects
from tfgrpo.stores.json_values import mapping_of, to_builtins
from tfgrpo.stores.outcomes import GroupKey, OutcomeName, RewardScore
from tfgrpo.stores.runs import ManifestFile, attempt_name, expected_shape
from tfgrpo.stores.text import pluralize, shorten_middle
from tfgrpo.tasks.recorded import STEP_ROLES, LineIndex, attempt_of_key, recorded_steps
from tfgrpo.tasks.rollout import frame_label
from tfgrpo.tasks.shapes import Frame

_TEXTS: Final = ("prompt", "system_prompt", "answer")
PHASES: Final[Mapping[str, str]] = {"train": "learning", "eval": "sweep", "measure": "measuring"}
AttemptRow: TypeAlias = Mapping[str, Any]


class ViewLimits(NamedTuple):
    """How much is kept of an item; None: everything."""

    attempts: int | None = None
    """The lowest ones."""
    steps: int | None = None
    """Most steps of an attempt, half of them from its beginning and half from its end."""
    chars: int | None = None
    """Most characters of each text, from its beginning and its end."""

    def cut(self, text: str) -> str:
        """Return a text within the limit, with a mark for what is omitted."""
        text = text.replace("\r\n", "\n")
        return text if self.chars is None else shorten_middle(text, self.chars)


_EVERYTHING: Final = ViewLimits()


@dataclass(frozen=True, slots=True)
class CarriedLesson:
    """A lesson in the prompt of an attempt."""

    experience_id: str
    text: str | None
    """As the prompt has it; None if its line is not to be found there."""


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt at an item."""

    rollout_id: str
    item_id: str
    epoch: int
    phase: str
    arm: str
    index: int
    outcome: OutcomeName
    reward: float | None
    error_type: str | None
    reason: str | None
    output: str
    scores: tuple[RewardScore, ...] = ()
    summary: str = ""
    lessons: tuple[CarriedLesson, ...] | None = None
    """None: the prompt was not recorded."""
    steps: tuple[Frame, ...] | None = None
    """Calls of the model and of tools in their order; None: there is no journal. Without a journal, the tools alone."""
    steps_left_out: int = 0
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cost_usd: float | None = None
    latency_s: float | None = None

    @classmethod
    def of_row(cls, row: AttemptRow, cut: Callable[[str], str]) -> Self:
        """Return a line of ``rollouts.jsonl``; one of another shape fails here, where its file is known."""
        outcome, reward = row["outcome"], row["outcome"].get("reward")
        same = ("rollout_id", "item_id", "epoch", "phase", "arm", "index", "prompt_tokens", "completion_tokens")
        scores = (
            RewardScore(str(each["rewarder_id"]), float(each["score"]), cut(each["evidence"]), each.get("details"))
            for each in row["scores"]
        )
        # Without a journal these are all that is known of its steps.
        tools = (
            Frame("tool", it["tool"], "", it["tokens"], it["cost_usd"], it["latency_ms"], None if it["ok"] else "failed")
            for it in row.get("tools") or ()
        )
        return cls(
            **{name: row[name] for name in same},
            outcome=outcome["name"],
            reward=None if reward is None else float(reward),
            error_type=outcome.get("error_type"),
            reason=outcome.get("reason"),
            output=cut(row["output"]),
            scores=tuple(scores),
            summary=str(row.get("summary") or ""),
            steps=tuple(tools) or None,
            cost_usd=row.get("cost_usd"),
            latency_s=row.get("latency_s"),
        )

    @property
    def other_steps(self) -> tuple[Frame, ...]:
        """The steps that are not the output itself."""
        return tuple(step for step in self.steps or () if step.text != self.output)


@dataclass(slots=True)
class ItemTally:
    """Counts and sums of the attempts at one item."""

    outcomes: Counter[str] = field(default_factory=Counter)
    sums: dict[str, tuple[int, float]] = field(default_factory=dict)
    """Number and sum of the rewards by arm."""

    def add(self, row: AttemptRow) -> None:
        """Count a line of ``rollouts.jsonl``."""
        self.outcomes[row["outcome"]["name"]] += 1
        if (reward := row["outcome"].get("reward")) is not None:
            count, total = self.sums.get(shown_arm(row["arm"]), (0, 0.0))
            self.sums[shown_arm(row["arm"])] = count + 1, total + reward

    @property
    def rewards(self) -> dict[str, float]:
        """Mean reward by arm, without the arms that have none."""
        means = {arm: total / count for arm, (count, total) in self.sums.items()}
        return {arm: means[arm] for arm, _ in labelled(means)}

    @property
    def mean(self) -> float | None:
        """Mean reward over all arms; None without any."""
        count = sum(count for count, _ in self.sums.values())
        return sum(total for _, total in self.sums.values()) / count if count else None

    def as_json(self) -> dict[str, Any]:
        """Return counts and means as JSON."""
        counts = {"made": self.outcomes.total(), "outcomes": dict(self.outcomes)}
        return {**counts, "mean_reward": self.mean, "rewards": self.rewards}


def worst_items(tallies: Mapping[str, ItemTally]) -> list[str]:
    """Return the ids, worse items first: without any reward, then by mean reward, then with more lost attempts."""
    ranks = {}
    for name, tally in tallies.items():
        lost = tally.outcomes.total() - tally.outcomes["scored"]
        ranks[name] = tally.mean is not None, tally.mean or 0.0, -lost, name
    return sorted(tallies, key=ranks.__getitem__)


@dataclass(frozen=True, slots=True)
class ItemView:
    """One item of a run, with its attempts."""

    item_id: str
    question: str | None
    """None: the run has not recorded it."""
    system_prompt: str
    """The item's own, before the question."""
    reference: str | None
    """Empty for an item without one; None: the run has not recorded it."""
    tally: ItemTally
    attempts: tuple[AttemptView, ...]
    """The worse first."""

    def as_json(self) -> dict[str, Any]:
        """Return the item as JSON."""
        view = to_builtins(self)
        del view["tally"]
        return {**view, **self.tally.as_json()}


def overview(run: RunPaths) -> dict[str, ItemTally]:
    """Return the tallies of a run by item. Raise ``CorruptFile`` for files of another shape."""
    tallies: dict[str, ItemTally] = defaultdict(ItemTally)
    with expected_shape(run.rollouts):
        for row in read_objects(run.rollouts):
            tallies[row["item_id"]].add(row)
    return tallies


class _Recorded(NamedTuple):
    view: AttemptView
    journal_name: str
    prompt_digest: str


def item_views(
    task: TaskPaths, run: RunPaths, wanted: Sequence[str], tallies: Mapping[str, ItemTally], limits: ViewLimits = _EVERYTHING
) -> list[ItemView]:
    """Return these items of a run in their order, with their tallies. Raise ``CorruptFile`` for files of another shape.

    Memory has what ``limits`` keep of these items, and no more of the run.
    """
    texts_of: dict[str, AttemptRow] = {}
    with expected_shape(run.items):
        for row in read_objects(run.items):
            if row["item_id"] in wanted:
                texts_of[row["item_id"]] = {name: limits.cut(row.get(name) or "") for name in _TEXTS}
    kept = _recorded(run, wanted, limits)
    shown = [each for some in kept.values() for each in some]
    digests, lessons = {each.prompt_digest for each in shown}, dict[str, tuple[CarriedLesson, ...]]()
    with expected_shape(run.prompts):
        for row in read_objects(run.prompts):
            if row["digest"] in digests:
                ids, lines = row["experience_ids"], lessons_in(row["system"])
                # With another number of lines than ids it is unknown which line is whose.
                texts: Sequence[str | None] = lines if len(lines) == len(ids) else [None] * len(ids)
                lessons[row["digest"]] = tuple(map(CarriedLesson, ids, texts))
    names = {each.journal_name for each in shown}

    def shown_attempt(line: bytes) -> str | None:
        name = attempt_of_key(line, STEP_ROLES)
        return name if name in names else None

    # A replay has the journal of its run.
    path = run.journal if run.journal.is_file() else task.original().run(run.root.name).journal
    with expected_shape(path):
        journal = LineIndex(path, shown_attempt) if path.is_file() else None
    declared = ManifestFile(run.manifest).read().get("tools") or ()
    tools = [str(mapping_of(mapping_of(tool).get("function")).get("name")) for tool in declared]

    def finished(each: _Recorded) -> AttemptView:
        view = replace(each.view, lessons=lessons.get(each.prompt_digest))
        if journal is None:
            return view
        name, most = each.journal_name, limits.steps
        made = recorded_steps(journal.lines(name), name, tools).frames
        frames = made if most is None or len(made) <= most else (*made[: most // 2], *made[len(made) - most + most // 2 :])
        steps = tuple(replace(frame, text=limits.cut(frame.text)) for frame in frames)
        return replace(view, steps=steps, steps_left_out=len(made) - len(steps))

    views = []
    for item_id in wanted:
        question, system, reference = (texts_of.get(item_id, {}).get(name) for name in _TEXTS)
        with expected_shape(run.journal):
            attempts = tuple(map(finished, kept[item_id]))
        views.append(ItemView(item_id, question, system or "", reference, tallies[item_id], attempts))
    return views


def _recorded(run: RunPaths, wanted: Collection[str], limits: ViewLimits) -> Mapping[str, list[_Recorded]]:
    kept = {item_id: list[_Recorded]() for item_id in wanted}
    with expected_shape(run.groups):
        groups = {row["group_id"]: GroupKey.of_row(row) for row in read_objects(run.groups) if row["item_id"] in kept}
    with expected_shape(run.rollouts):
        for row in read_objects(run.rollouts):
            if (some := kept.get(row["item_id"])) is None:
                continue
            group = groups.get(row["group_id"])
            name = "" if group is None else attempt_name(replace(group, arm=row["arm"]), row["index"])
            some.append(_Recorded(AttemptView.of_row(row, limits.cut), name, row["prompt_digest"]))
            if limits.attempts is not None and len(some) > 4 * limits.attempts:
                _keep_lowest(some, limits)
    for some in kept.values():
        _keep_lowest(some, limits)
    return kept


def _keep_lowest(some: list[_Recorded], limits: ViewLimits) -> None:
    def worse_first(each: _Recorded) -> tuple[bool, float, int, str, int]:
        view = each.view
        return view.reward is not None, view.reward or 0.0, view.epoch, view.rollout_id.rpartition("/")[0], view.index

    some[:] = sorted(some, key=worse_first)[: limits.attempts]


def reward(attempt: AttemptView) -> str:
    """Return the reward of an attempt, or how it ended without one."""
    return f"no reward: {attempt.outcome}" if attempt.reward is None else f"reward {decimal(attempt.reward)}"


def where(attempt: AttemptView) -> str:
    """Return the epoch, phase and arm of an attempt, and its name in the files."""
    arm = shown_arm(attempt.arm)
    words = (PHASES.get(attempt.phase, attempt.phase), "" if arm == "group" else ARMS.get(arm, arm))
    return ", ".join([f"epoch {attempt.epoch}", *dict.fromkeys(filter(None, words)), attempt.rollout_id])


def score(one: RewardScore) -> str:
    """Return a score with its rewarder and what it is based on."""
    return f"{one.rewarder_id} {one.score:g}: {one.evidence}".removesuffix(": ")


def step(frame: Frame) -> str:
    """Return who made a call, whether it failed, and whether the gateway added lessons to it."""
    error = f": {frame.error}" if frame.error and frame.error not in frame.text else ""
    return f"{frame_label(frame)}{error}{', lessons added' if frame.added else ''}"


def outcomes(tally: ItemTally) -> str:
    """Return how many attempts there are, and how they ended."""
    counts = (f"{tally.outcomes[name]} {name}" for name in get_args(OutcomeName) if tally.outcomes[name])
    return f"{pluralize(tally.outcomes.total(), 'attempt')}: {', '.join(counts)}"


def rewards(tally: ItemTally) -> str:
    """Return the mean reward of each arm."""
    return ", ".join(f"{label} {decimal(tally.rewards[arm])}" for arm, label in labelled(tally.rewards))

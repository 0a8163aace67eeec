"""Read the items of a run with every attempt: question, reference, steps, lessons carried, output, scores and outcome.

The files of the run suffice, whatever became of its dataset and however it ended: its journal has the steps of attempts, also
of those whose batch was never finished. What no file says is None. Worse comes first: without a reward, then the lowest.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

from tfgrpo.flows.console.figures import ARMS, shown_arm
from tfgrpo.prompt_packs import lessons_in
from tfgrpo.stores.files.layout import RunPaths, TaskPaths
from tfgrpo.stores.files.lines import lines_of, read_rows
from tfgrpo.stores.frozen_json import mapping_of, to_builtins
from tfgrpo.stores.outcomes import GroupKey, OutcomeName, RewardScore
from tfgrpo.stores.runs.journal import attempt_name
from tfgrpo.stores.runs.manifest import ManifestFile, expected_shape
from tfgrpo.tasks.learning.summarize import shorten_middle
from tfgrpo.tasks.recorded import STEP_ROLES, LineIndex, Steps, attempt_of_key, steps_of
from tfgrpo.tasks.shapes import Frame

PHASES: Final[Mapping[str, str]] = {"train": "learning", "eval": "sweep", "measure": "measuring"}
UNFINISHED: Final = "unfinished"
_UNFINISHED_WHY: Final = "its batch was not finished: what the model answered is in the journal, and was not graded"

Ended: TypeAlias = OutcomeName | Literal["unfinished"]
Row: TypeAlias = Mapping[str, Any]


class ViewLimits(NamedTuple):
    """How much is kept of an item; None: everything."""

    attempts: int | None = None
    """The lowest ones."""
    steps: int | None = None
    """Of an attempt, half of them from its beginning and half from its end."""
    chars: int | None = None
    """Of each text, from its beginning and its end."""

    def cut(self, text: str) -> str:
        """Return a text within the limit, with a mark for what is left out."""
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
    """Of an unfinished one, its name in the journal."""
    item_id: str
    epoch: int
    phase: str
    """Empty for an unfinished one."""
    arm: str
    index: int
    outcome: Ended
    reward: float | None
    error_type: str | None
    reason: str | None
    """Why there is no reward."""
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
    def of_row(cls, row: Row, cut: Callable[[str], str]) -> Self:
        """Return a line of ``rollouts.jsonl``; one of another shape fails here, where its file is known."""
        outcome, reward = row["outcome"], row["outcome"].get("reward")
        return cls(
            rollout_id=str(row["rollout_id"]),
            item_id=str(row["item_id"]),
            epoch=row["epoch"],
            phase=row["phase"],
            arm=row["arm"],
            index=row["index"],
            outcome=outcome["name"],
            reward=None if reward is None else float(reward),
            error_type=outcome.get("error_type"),
            reason=outcome.get("reason"),
            output=cut(row["output"]),
            scores=tuple(_score(score, cut) for score in row["scores"]),
            summary=str(row.get("summary") or ""),
            steps=tuple(map(_tool_step, row.get("tools") or ())) or None,
            prompt_tokens=row["prompt_tokens"],
            completion_tokens=row["completion_tokens"],
            cost_usd=row.get("cost_usd"),
            latency_s=row.get("latency_s"),
        )

    @property
    def worse_first(self) -> tuple[int, float, int, str, int]:
        """Key that sorts attempts: those without a reward, then by reward; unfinished ones last."""
        rank = 2 if self.outcome == UNFINISHED else int(self.reward is not None)
        return rank, self.reward or 0.0, self.epoch, self.rollout_id.rpartition("/")[0], self.index

    @property
    def other_steps(self) -> tuple[Frame, ...]:
        """The steps that are not the output itself."""
        return tuple(step for step in self.steps or () if step.text != self.output)


def _score(score: Row, cut: Callable[[str], str]) -> RewardScore:
    return RewardScore(str(score["rewarder_id"]), float(score["score"]), cut(score["evidence"]), score.get("details"))


def _tool_step(event: Row) -> Frame:
    """Return what ``rollouts.jsonl`` has of a tool call: no text."""
    error = None if event["ok"] else "failed"
    return Frame("tool", event["tool"], "", event["tokens"], event["cost_usd"], event["latency_ms"], error)


@dataclass(slots=True)
class ItemTally:
    """Counts and sums of the attempts at one item."""

    outcomes: Counter[str] = field(default_factory=Counter)
    sums: dict[str, list[float]] = field(default_factory=dict)
    """Number and sum of the rewards by arm."""

    def add(self, row: Row) -> None:
        """Count a line of ``rollouts.jsonl``."""
        self.outcomes[row["outcome"]["name"]] += 1
        if (reward := row["outcome"].get("reward")) is not None:
            counted = self.sums.setdefault(shown_arm(row["arm"]), [0, 0.0])
            counted[0] += 1
            counted[1] += reward

    @property
    def rewards(self) -> dict[str, float]:
        """Mean reward by arm, without the arms that have none."""
        means = {arm: total / count for arm, (count, total) in self.sums.items()}
        return {arm: means[arm] for arm in (*ARMS, *sorted(means.keys() - ARMS.keys())) if arm in means}

    @property
    def mean(self) -> float | None:
        """Mean reward over all arms; None without any."""
        count, total = map(sum, zip(*self.sums.values(), strict=True)) if self.sums else (0, 0.0)
        return total / count if count else None

    @property
    def lost(self) -> int:
        """Attempts without a reward, besides unfinished ones."""
        return self.outcomes.total() - self.outcomes["scored"] - self.outcomes[UNFINISHED]

    def as_json(self) -> dict[str, Any]:
        """Return counts and means as JSON."""
        counts = {"made": self.outcomes.total(), "outcomes": dict(self.outcomes)}
        return {**counts, "mean_reward": self.mean, "rewards": self.rewards}


def worst_items(tallies: Mapping[str, ItemTally]) -> list[str]:
    """Return the ids, worse items first: without any reward, then by mean reward, then with more lost attempts."""

    def worse_first(item_id: str) -> tuple[bool, float, int, str]:
        tally = tallies[item_id]
        return tally.mean is not None, tally.mean or 0.0, -tally.lost, item_id

    return sorted(tallies, key=worse_first)


@dataclass(frozen=True, slots=True)
class ItemView:
    """One item of a run, with its attempts."""

    item_id: str
    question: str | None
    """None: the run has not recorded it."""
    system_prompt: str
    """Of the item, before the question."""
    reference: str | None
    """Empty for an item without one; None: the run has not recorded it."""
    tally: ItemTally
    attempts: tuple[AttemptView, ...]
    """The worse first."""

    @property
    def left_out(self) -> int:
        """Attempts that are not among ``attempts``."""
        return self.tally.outcomes.total() - len(self.attempts)

    def as_json(self) -> dict[str, Any]:
        """Return the item as JSON."""
        view = to_builtins(self)
        del view["tally"]
        return {**view, **self.tally.as_json()}


def overview(task: TaskPaths, run: RunPaths) -> dict[str, ItemTally]:
    """Return the tallies of a run by item. Raise ``CorruptFile`` for files of another shape."""
    tallies: dict[str, ItemTally] = defaultdict(ItemTally)
    with expected_shape(run.rollouts):
        for row in read_rows(run.rollouts):
            tallies[row["item_id"]].add(row)
    count_unfinished(task, run, tallies)
    return tallies


def count_unfinished(task: TaskPaths, run: RunPaths, tallies: dict[str, ItemTally]) -> None:
    """Add the attempts that the journal has and ``rollouts.jsonl`` has not, of a run that did not finish."""
    if not _may_lack_attempts(task, run):
        return
    draws = _draws(run)
    with expected_shape(run.rollouts):
        recorded = {_place_of_row(row, draws) for row in read_rows(run.rollouts)}
    with expected_shape(run.items):
        known = {*tallies, *(row["item_id"] for row in read_rows(run.items))}
    names = (attempt_of_key(line.data, STEP_ROLES) for line in lines_of(run.journal) if line.length)
    for place in {_place(name) for name in names if name is not None} - recorded:
        tallies.setdefault(_item_of(place, known), ItemTally()).outcomes[UNFINISHED] += 1


@dataclass(slots=True)
class _Kept:
    """An attempt on its way to its view."""

    view: AttemptView
    place: str
    prompt: str = ""
    """Digest of its prompt."""


@dataclass(slots=True)
class _Item:
    """An item on its way to its view."""

    question: str | None = None
    system_prompt: str = ""
    reference: str | None = None
    tally: ItemTally = field(default_factory=ItemTally)
    kept: list[_Kept] = field(default_factory=list)

    def keep_lowest(self, limit: int | None) -> None:
        self.kept.sort(key=lambda each: each.view.worse_first)
        self.kept = self.kept[:limit]


def item_views(
    task: TaskPaths, run: RunPaths, wanted: Sequence[str], limits: ViewLimits = _EVERYTHING
) -> list[ItemView]:
    """Return these items of a run in their order. Raise ``CorruptFile`` for files of another shape.

    Memory has what ``limits`` keep of these items, and no more of the run.
    """
    items = {item_id: _Item() for item_id in wanted}
    with expected_shape(run.items):
        for row in read_rows(run.items):
            if (item := items.get(row["item_id"])) is not None:
                item.question, item.reference = limits.cut(row["prompt"]), limits.cut(row["answer"])
                item.system_prompt = limits.cut(row.get("system_prompt") or "")
    recorded = _read_attempts(task, run, items, limits)
    names, journal = _journal(task, run, items, recorded)
    shown = {each.place for item in items.values() for each in item.kept}
    for place, name in names.items():
        if place not in shown and (item_id := _item_of(place, items)) in items:
            items[item_id].tally.outcomes[UNFINISHED] += 1
            items[item_id].kept.append(_Kept(_unfinished(item_id, name), place))
    for item in items.values():
        item.keep_lowest(limits.attempts)
    lessons = _lessons(run, {each.prompt for item in items.values() for each in item.kept})
    tools = _tool_names(run)

    def finished(each: _Kept) -> AttemptView:
        view, name = replace(each.view, lessons=lessons.get(each.prompt)), names.get(each.place, "")
        return view if journal is None else _with_steps(view, steps_of(journal.lines(name), name, tools), limits)

    views = []
    for item_id, item in items.items():
        with expected_shape(run.journal):
            attempts = tuple(map(finished, item.kept))
        views.append(ItemView(item_id, item.question, item.system_prompt, item.reference, item.tally, attempts))
    return views


def _read_attempts(
    task: TaskPaths, run: RunPaths, items: Mapping[str, _Item], limits: ViewLimits
) -> Collection[str] | None:
    """Add the recorded attempts to their items; return their places, None if there can be no others."""
    may_lack, draws, recorded = _may_lack_attempts(task, run), _draws(run), set[str]()
    with expected_shape(run.rollouts):
        for row in read_rows(run.rollouts):
            if (item := items.get(row["item_id"])) is None:
                continue
            item.tally.add(row)
            place = _place_of_row(row, draws)
            item.kept.append(_Kept(AttemptView.of_row(row, limits.cut), place, row["prompt_digest"]))
            if limits.attempts is not None and len(item.kept) > 4 * limits.attempts:
                item.keep_lowest(limits.attempts)
            if may_lack:
                recorded.add(place)
    for item in items.values():
        item.keep_lowest(limits.attempts)
    return recorded if may_lack else None


def _journal(
    task: TaskPaths, run: RunPaths, items: Mapping[str, _Item], recorded: Collection[str] | None
) -> tuple[Mapping[str, str], LineIndex | None]:
    """Return the names in the journal by place, of shown attempts and of those that were not recorded, and its index."""
    # A replay has the journal of its run.
    path, names = run.journal if run.journal.is_file() else task.original().run(run.root.name).journal, dict[str, str]()
    shown = {each.place for item in items.values() for each in item.kept}

    def key_of(line: bytes) -> str | None:
        name = attempt_of_key(line, STEP_ROLES)
        place = "" if name is None else _place(name)
        lacking = recorded is not None and place not in recorded and _item_of(place, items) in items
        if name is None or not (place in shown or lacking):
            return None
        names[place] = name
        return name

    with expected_shape(path):
        return names, LineIndex(path, key_of) if path.is_file() else None


def _with_steps(view: AttemptView, did: Steps, limits: ViewLimits) -> AttemptView:
    frames, most = did.frames, limits.steps
    if most is not None and len(frames) > most:
        frames = (*frames[: most // 2], *frames[len(frames) - most + most // 2 :])
    steps = tuple(replace(frame, text=limits.cut(frame.text)) for frame in frames)
    output = view.output if view.outcome != UNFINISHED or did.output is None else limits.cut(did.output)
    return replace(view, output=output, steps=steps, steps_left_out=len(did.frames) - len(steps))


def _unfinished(item_id: str, name: str) -> AttemptView:
    epoch, arm, _, rest = name.split("/", 3)
    index = int(rest.rpartition("/")[2])
    return AttemptView(name, item_id, int(epoch), "", arm, index, UNFINISHED, None, None, _UNFINISHED_WHY, "")


def _lessons(run: RunPaths, digests: Collection[str]) -> dict[str, tuple[CarriedLesson, ...]]:
    """Return the lessons in each prompt, with their words there."""
    found = {}
    with expected_shape(run.prompts):
        for row in read_rows(run.prompts):
            if row["digest"] in digests:
                ids, texts = row["experience_ids"], lessons_in(row["system"])
                known: Sequence[str | None] = texts if len(texts) == len(ids) else [None] * len(ids)
                found[row["digest"]] = tuple(map(CarriedLesson, ids, known))
    return found


def _may_lack_attempts(task: TaskPaths, run: RunPaths) -> bool:
    """Return whether the journal may have attempts that were not recorded. A replay writes none of its own."""
    return task.original() is task and ManifestFile(run.manifest).read().get("status") != "finished"


def _tool_names(run: RunPaths) -> list[str]:
    tools = ManifestFile(run.manifest).read().get("tools") or ()
    return [str(mapping_of(mapping_of(tool).get("function")).get("name")) for tool in tools]


def _draws(run: RunPaths) -> dict[str, int]:
    """Return how often its item had been drawn before in the epoch, for each group where that is above 0."""
    with expected_shape(run.groups):
        return {row["group_id"]: row["draw"] for row in read_rows(run.groups) if row.get("draw")}


def _place(name: str) -> str:
    """Return the name of an attempt in the journal without its batch, which an item's draw implies."""
    epoch, arm, _, rest = name.split("/", 3)
    return f"{epoch}/{arm}/{rest}"


def _place_of_row(row: Row, draws: Mapping[str, int]) -> str:
    key = GroupKey(row["epoch"], row["phase"], row["arm"], 0, row["item_id"], draws.get(row["group_id"], 0))
    return _place(attempt_name(key, row["index"]))


def _item_of(place: str, known: Collection[str]) -> str:
    """Return the item of an attempt; the name of its draw if that is not known."""
    draw_id = place.split("/", 2)[-1].rpartition("/")[0]
    item_id, _, draw = draw_id.rpartition("~")
    return item_id if draw_id not in known and draw.isdecimal() and item_id in known else draw_id

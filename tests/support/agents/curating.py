"""Curate a batch with a scripted curator."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.agents.steps import Script, ScriptedModel, group, item, proposal, record, runtime
from tests.support.records.records import make_record
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.rewarders.statistics.credit import Effect
from tfgrpo.stores.experiences.store import ExperienceRecord, Reward
from tfgrpo.tasks.learning.credit import KnownLesson
from tfgrpo.tasks.learning.curate import CurationInput, CurationResult, curate_batch
from tfgrpo.tasks.shapes import GroupResult

TEXTS = [
    "Carry the tens before adding hundreds.",
    "Convert every unit first.",
    "Write intermediate sums down.",
    "Never guess a missing figure.",
    "Read the question twice.",
]


def lesson(name: str, text: str, *, evidence: tuple[str, ...] = ("old/0", "old/1"), **more: Any) -> ExperienceRecord:
    """Return the record of a known lesson."""
    known = {"domain": "arithmetic", "pack_id": "arithmetic", "reward": Reward(gt_score=0.5, relative_rank=1.0)}
    return make_record(name, summary32=text, evidence=evidence, **{**known, **more})


def known(*lessons: ExperienceRecord, **facts: Mapping[str, Any]) -> dict[str, KnownLesson]:
    """Return known lessons, with what is known of each by its id."""
    plain: dict[str, Any] = {
        "effect": Effect(0.0, 1.0), "attempts": 0, "net": 1.0, "groups_for": 1, "groups_against": 0, "nights": 0,
    }  # fmt: skip
    return {
        each.experience_id: KnownLesson(
            record=each, ids=frozenset({each.experience_id}), **plain | dict(facts.get(each.experience_id, {}))
        )
        for each in lessons
    }


def groups(*texts: str, **more: Any) -> tuple[GroupResult, ...]:
    """Return one group per text, each with a contrast that proposes it."""
    made = []
    for number, text in enumerate(texts, start=1):
        name, of = f"g{number}", f"q{number}"
        rollouts = (record(0, group=name, name=of), record(1, group=name, name=of))
        made.append(group(rollouts, (proposal(text, group=name, name=of, **more),)))
    return tuple(made)


def say(
    name: str, proposals: Sequence[str] = (), targets: Sequence[str] = (), text: str = "", polarity: str = ""
) -> dict[str, Any]:
    """Return one entry as the curator writes it."""
    return {
        "class": name,
        "proposals": list(proposals),
        "targets": list(targets),
        "polarity": polarity or ("do" if text else ""),
        "text": text,
    }


def answers(*entries: dict[str, Any]) -> dict[str, Any]:
    """Return the curator's answer."""
    return {"answers": list(entries)}


def unasked(*_: object) -> None:
    """Fail: a script for what needs no call."""
    raise AssertionError("nothing is left to ask")


async def curate(
    script: Script | ScriptedModel,
    tmp_path: Path,
    batch_groups: Iterable[GroupResult],
    lessons: Mapping[str, KnownLesson] | None = None,
    *,
    loaded: LoadedPack | None = None,
    before: Mapping[str, int] | None = None,
    items: Iterable[Any] = (),
    epoch: int = 1,
    real: bool = False,
    **sections: Any,
) -> CurationResult:
    """Return what becomes of the proposals of a batch; without ``items`` its items have neutral words.

    ``real``: the model counts as one at an endpoint.
    """
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    batch_groups = tuple(batch_groups)
    given = [*items] or [item(each.key.item, "7", f"3 + {n}?") for n, each in enumerate(batch_groups)]
    batch = CurationInput(
        epoch=epoch,
        batch=0,
        groups=batch_groups,
        known=lessons or {},
        items={each.id: each for each in given},
        rejected_before=before or {},
    )
    made = runtime(model, tmp_path, loaded=loaded, **sections)
    if real:
        made = replace(made, context=replace(made.context, models=replace(made.context.models, in_process=False)))
    return await curate_batch(batch, made)


def words(result: CurationResult) -> Counter[tuple[str, ...]]:
    """Return the support that a batch gives, by what is said of which lesson, and its opposite if there is one."""
    support: Counter[tuple[str, ...]] = Counter()
    for each in result.words:
        support[each.said, each.experience_id, *filter(None, [each.opposite])] += each.amount  # type: ignore[assignment]
    return support


def reasons(result: CurationResult) -> dict[str, str]:
    """Return why texts were rejected."""
    return dict(result.rejected)

"""Curate a batch by the learning rules before there were accounts, with a scripted curator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.support.agents.steps import NOON, Script, ScriptedModel, group, proposal, record, runtime
from tfgrpo.prompt_packs.models import LoadedPack
from tfgrpo.stores.experiences.record import ExperienceRecord, Reward
from tfgrpo.tasks.learning.curate import curate_batch
from tfgrpo.tasks.learning.curation import CurationInput, CurationResult
from tfgrpo.tasks.shapes import GroupResult

TEXTS = [
    "Carry the tens before adding hundreds.",
    "Convert every unit first.",
    "Write intermediate sums down.",
    "Never guess a missing figure.",
    "Read the question twice.",
]


def lesson(
    name: str, text: str, *, polarity: str = "do", evidence: tuple[str, ...] = ("old/0", "old/1"), **more: Any
) -> ExperienceRecord:
    """Return a record of the library."""
    values = {
        "experience_id": name,
        "run_id": "run",
        "task_id": "t",
        "domain": "arithmetic",
        "pack_id": "arithmetic",
        "epoch": 1,
        "batch": 0,
        "group_id": "old",
        "operation": "add",
        "summary32": text,
        "polarity": polarity,
        "reward": Reward(gt_score=0.5, relative_rank=1.0),
        "evidence": evidence,
        "stamp_signature": "",
        "created_at": NOON,
    }
    return ExperienceRecord(**{**values, **more})


def groups(*texts: str, **more: Any) -> tuple[GroupResult, ...]:
    """Return one group per text, each proposing it."""
    made = []
    for number, text in enumerate(texts, start=1):
        name = f"g{number}"
        rollouts = (record(0, group=name, name=f"q{number}"), record(1, group=name, name=f"q{number}"))
        made.append(group(rollouts, (proposal(text, group=name, name=f"q{number}", **more),)))
    return tuple(made)


def op(
    name: str, *, targets: Sequence[str] = (), sources: Sequence[str] = (), text: str = "", polarity: str = "do"
) -> dict[str, Any]:
    """Return an operation as the curator writes it."""
    return {"op": name, "targets": list(targets), "from": list(sources), "polarity": polarity, "text": text}


def operations(*given: dict[str, Any]) -> dict[str, Any]:
    """Return the curator's answer."""
    return {"operations": list(given)}


async def curate(
    script: Script | ScriptedModel,
    tmp_path: Path,
    batch_groups: Iterable[GroupResult],
    library: Iterable[ExperienceRecord] = (),
    loaded: LoadedPack | None = None,
    before: Iterable[str] = (),
    answers: Mapping[str, str] | None = None,
    alternatives: Mapping[str, tuple[str, ...]] | None = None,
    epoch: int = 1,
    **sections: Any,
) -> CurationResult:
    """Return what becomes of the proposals of a batch."""
    model = script if isinstance(script, ScriptedModel) else ScriptedModel(script)
    made = runtime(model, tmp_path, loaded=loaded, **sections)
    made = replace(made, context=replace(made.context, rules=3))
    batch = CurationInput(
        epoch=epoch,
        batch=0,
        groups=tuple(batch_groups),
        library=tuple(library),
        answers=answers or {},
        alternatives=alternatives or {},
        rejected_before=dict.fromkeys(before, 1),
    )
    return await curate_batch(batch, made)


def reasons(result: CurationResult) -> dict[str, str]:
    """Return why texts were rejected."""
    return dict(result.rejected)

"""``tfgrpo grade``: grade completions offline, and print what every grader gave, the worst ones, and why some are ungraded."""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import Any, Final

from tfgrpo.flows.commands.attempts.grading import (
    Graded,
    Grading,
    MixGrading,
    PipelineGrading,
    grade_all,
    read_completions,
)
from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.environment import check_output_file
from tfgrpo.flows.console.figures import spending
from tfgrpo.flows.orchestration.request import RunRequest
from tfgrpo.flows.report.figures import decimal
from tfgrpo.pipelines.mix.config import is_mix
from tfgrpo.pipelines.problems import ProblemCollector
from tfgrpo.pipelines.server.service import GradeItem
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline
from tfgrpo.rewarders.runner import TIMEOUT_S
from tfgrpo.stores.errors import PipelineError, Problem, SettingsError
from tfgrpo.stores.files.atomic import replace_text
from tfgrpo.stores.text import pluralize
from tfgrpo.tasks.learning.summarize import shorten_middle

_WORST: Final = 3
_REASONS: Final = 20
_CHARS: Final = 300
"""Of a completion that is quoted."""
_STOPPED: Final = 3


def grade(  # noqa: PLR0913 - its options
    *,
    config: str,
    completions: str,
    to: str | None,
    force: bool,
    grader_timeout: float | None,
    pipeline: str | None,
    settings: Mapping[str, str],
    console: Console,
    checks: ProblemCollector,
) -> int:
    """Check everything, grade, print. Return 1 if nothing could be graded, 3 if the budget was spent before all was."""
    mix, target = is_mix(Path(config)), None if to is None else Path(to)
    if target is not None:
        checks.run(_check_target, target, Path(completions), force=force)
    checks.run(_check_options, settings, pipeline, grader_timeout, mix=mix)
    loaded = checks.run(_grading, config, settings, pipeline, grader_timeout, mix=mix)
    read = checks.run(read_completions, Path(completions), loaded[0].unknown if loaded else None)
    checks.raise_problems()
    return _graded(loaded[0], read[0], target, console)


def _graded(grading: Grading, completions: Sequence[GradeItem], target: Path | None, console: Console) -> int:
    fewest, most = grading.judge_calls(completions)
    if most:
        console.say(f"judging takes {fewest:,} to {most:,} calls")
    of_all = f"of {len(completions):,} graded"
    graded = asyncio.run(grade_all(grading, completions, lambda count: console.say(f"{count:,} {of_all}")))
    for warning in grading.warnings:
        console.say(f"warning: {warning}", style="yellow")
    if target is not None:
        replace_text(target, "".join(f"{json.dumps(_row(each), allow_nan=False)}\n" for each in graded))
    result = _result(graded, grading, target)
    if console.as_json:
        console.result(result)
    else:
        _print(result, console)
    if grading.spent is not None:
        simulated = " (SIMULATED)" if grading.simulated else ""
        console.say(f"judging took {pluralize(grading.spent.calls, 'call')}, {spending(grading.spent)}{simulated}")
    if target is not None:
        console.say(f"a line for each completion is in {target}", wrap=False)
    if grading.over_budget:
        console.say(f"tfgrpo: stopped: {grading.over_budget}", style="bold red")
        return _STOPPED
    return 0 if result["reward"]["graded"] else 1


def _check_target(target: Path, source: Path, *, force: bool) -> None:
    if target.resolve() == source.resolve():
        raise SettingsError.one("--to", str(target), "a file other than the one that is read")
    check_output_file(target, lambda _: force, "an existing one with --force", option="--to", endings=(".jsonl",))


def _check_options(
    settings: Mapping[str, str], pipeline: str | None, grader_timeout: float | None, *, mix: bool
) -> None:
    """Raise ``SettingsError`` for options that mean nothing for a mix, or for a pipeline."""
    if mix and pipeline is None and settings:
        accepted = "it with a pipeline, or for judges of the mix together with --pipeline"
        raise SettingsError(
            [Problem(f"--set {key}", "a setting with a data mix", accepted) for key in sorted(settings)]
        )
    if not mix and pipeline is not None:
        raise SettingsError.one(
            "--pipeline", "a pipeline beside another one", "it with a data mix, whose judges ask its model"
        )
    if not mix and grader_timeout is not None:
        accepted = "it with a data mix; with a pipeline timeout_s of each rewarder"
        raise SettingsError.one("--grader-timeout", f"{grader_timeout:g} with a pipeline", accepted)


def _grading(
    config: str, settings: Mapping[str, str], pipeline: str | None, grader_timeout: float | None, *, mix: bool
) -> Grading:
    """Return what grades: the graders of a mix, or the rewarders of a pipeline. Raise ``ConfigError``."""
    if mix:
        resolved = None
        if pipeline is not None:
            resolved = RunRequest(pipeline=pipeline, settings=dict(settings)).resolved(os.environ)
        return MixGrading.load(Path(config), grader_timeout or TIMEOUT_S, resolved)
    try:
        find_pipeline(config)
    except PipelineError as error:
        raise PipelineError([replace(each, source="CONFIG") for each in error.problems]) from None
    request = RunRequest(pipeline=config, settings=dict(settings))
    return PipelineGrading.load(request.resolved(os.environ))


def _row(each: Graded) -> dict[str, Any]:
    return {
        "sample_id": each.item.sample_id,
        "completion_index": each.item.completion_index,
        "reward": each.grade.reward,
        "parts": dict(each.grade.parts),
        "errors": dict(each.grade.errors),
        "evidence": dict(each.evidence),
    }


def _figures(rewards: Sequence[float], made: int) -> dict[str, Any]:
    """Return how many of the completions have a reward, and its mean and ends; None where there is none."""
    return {
        "graded": len(rewards),
        "ungraded": made - len(rewards),
        "mean": fmean(rewards) if rewards else None,
        "lowest": min(rewards, default=None),
        "highest": max(rewards, default=None),
    }


def _block(rows: Sequence[Graded], parts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Return the figures of each part over the completions whose dataset has it, and of the reward."""
    figures = {}
    for part in dict.fromkeys(part for row in rows for part in parts[row.dataset]):
        own = [row for row in rows if part in parts[row.dataset]]
        figures[part] = _figures([row.grade.parts[part] for row in own if part in row.grade.parts], len(own))
    rewards = [row.grade.reward for row in rows if row.grade.reward is not None]
    return {"parts": figures, "reward": _figures(rewards, len(rows))}


def _result(graded: Sequence[Graded], grading: Grading, target: Path | None) -> dict[str, Any]:
    """Return everything that is printed, as JSON."""
    of_dataset: dict[str, list[Graded]] = {}
    for each in graded:
        of_dataset.setdefault(each.dataset, []).append(each)
    # A grader that is listed twice is in the parts as ``name#2``.
    parts = {
        name: list(dict.fromkeys((*grading.parts_of(name), *(part for row in rows for part in row.grade.parts))))
        for name, rows in of_dataset.items()
    }
    scored = [(each.grade.reward, each) for each in graded if each.grade.reward is not None]
    seen: Counter[tuple[float, str]] = Counter()
    places = []
    for reward, each in scored:  # of equal rewards, different items first
        seen[reward, each.item.sample_id] += 1
        places.append((reward, seen[reward, each.item.sample_id]))
    worst = [scored[at][1] for at in sorted(range(len(scored)), key=places.__getitem__)[:_WORST]]
    lost = (each.grade.errors.items() for each in graded if each.grade.reward is None)
    reasons = Counter(f"{part}: {why.removeprefix(f'{part}: ')}" for errors in lost for part, why in errors)
    spent = grading.spent
    return {
        "completions": len(graded),
        **_block(graded, parts),
        "datasets": {name: _block(rows, parts) for name, rows in of_dataset.items()},
        "worst": [
            {**_row(each), "reference": grading.reference_of(each.item.sample_id), "completion": each.item.completion}
            for each in worst
        ],
        "reasons": dict(reasons.most_common()),
        "simulated": grading.simulated,
        "spent": None if spent is None else {"calls": spent.calls, "tokens": spent.tokens, "usd": spent.usd},
        "stopped": grading.over_budget,
        "file": None if target is None else str(target),
    }


def _print(result: Mapping[str, Any], console: Console) -> None:
    datasets = result["datasets"]
    several = len(datasets) > 1
    named = [("all", result), *datasets.items()] if several else [("", result)]
    columns = (*(("dataset",) if several else ()), "part", "graded", "ungraded", "mean", "lowest", "highest")
    console.table(columns, (row[not several :] for name, block in named for row in _rows(name, block)))
    for row in result["worst"]:
        index = row["completion_index"]
        console.line(
            f"\nreward {decimal(row['reward'])}, {row['sample_id']}{'' if index is None else f', completion {index}'}"
        )
        for part, value in row["parts"].items():
            console.line(f"  {part} {value:g}: {row['evidence'].get(part, '')}".removesuffix(": "))
        console.line(f"  reference: {shorten_middle(row['reference'], _CHARS) or 'none'}")
        console.quote(shorten_middle(row["completion"], _CHARS) or "(empty)")
    if ungraded := result["reward"]["ungraded"]:
        reasons = result["reasons"]
        console.text(f"\n{pluralize(ungraded, 'completion')} ungraded, for:")
        for why, count in islice(reasons.items(), _REASONS):
            console.line(f"{count:>8,}  {why}")
        if (more := len(reasons) - _REASONS) > 0:
            console.text(f"          and {pluralize(more, 'more reason')}; --json has them all")


def _rows(name: str, block: Mapping[str, Any]) -> Iterator[list[str]]:
    for part, of in (*block["parts"].items(), ("reward", block["reward"])):
        ends = (decimal(of[each]) for each in ("mean", "lowest", "highest"))
        yield [name, part, f"{of['graded']:,}", f"{of['ungraded']:,}", *ends]

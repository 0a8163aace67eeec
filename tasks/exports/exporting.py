"""Export groups: turn those that are chosen into rows, write the file and a report of what was omitted and why.

Recorded attempts are in further columns, which a trainer ignores or hands to the user's reward functions; verl and OpenRLHF
draw their own rollouts. Groups and rows stream through memory.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Final, TypeAlias

from tfgrpo.stores.batch.lines import lines_of_group, write_rows
from tfgrpo.stores.batch.shapes import Rollout, RolloutGroup, check_groups
from tfgrpo.stores.errors import StoreError
from tfgrpo.stores.files.atomic import replace_json, replacing
from tfgrpo.stores.files.lines import disk
from tfgrpo.stores.json_values import canonical_json, compact_json, json_of, to_builtins
from tfgrpo.tasks.exports.choosing import ChosenGroup, ExportReport, ExportTarget, chosen_group

TrainerRow: TypeAlias = dict[str, Any]
_SAME: Final = 1e-12
_GENERAL: Final = "general"


def _grpo_rows(chosen: ChosenGroup, report: ExportReport) -> Iterator[TrainerRow]:
    columns = {"answer": _answer(chosen), **_recorded(chosen, report)}
    yield {"prompt": list(chosen.prompt), **columns, "provenance": _provenance(chosen, report)}


def _dpo_rows(chosen: ChosenGroup, report: ExportReport) -> Iterator[TrainerRow]:
    # The best against the worst, then the next best against the next worst.
    options, ranked, pairs = report.options, chosen.ranked, 0
    for index in range(min(options.pairs, len(ranked) // 2)):
        best, worst = ranked[index], ranked[-1 - index]
        gap = _reward(best) - _reward(worst)
        if gap <= 0.0 or gap < options.min_gap or best.completion == worst.completion:
            break
        pairs += 1
        sides = {"chosen": _messages(best), "rejected": _messages(worst)}
        rewards = {"chosen_reward": _reward(best), "rejected_reward": _reward(worst)}
        yield _conversation(chosen, report, {**sides, **rewards})
    if not pairs:
        report.left_out["groups"]["no two different answers whose rewards are far enough apart"] += 1
    else:
        report.left_out["rollouts"]["in no pair"] += len(ranked) - 2 * pairs


def _kto_rows(chosen: ChosenGroup, report: ExportReport) -> Iterator[TrainerRow]:
    # Desirable is what beats its group's mean, or reaches ``min_reward``.
    rollouts, least = chosen.group.rollouts, report.options.min_reward
    mean = sum(map(_reward, rollouts)) / len(rollouts)
    for rollout in rollouts:
        difference = _reward(rollout) - (mean if least is None else least)
        if least is None and abs(difference) <= _SAME:
            report.left_out["rollouts"]["as good as its group's mean: neither desirable nor undesirable"] += 1
            continue
        columns = {"completion": _messages(rollout), "label": difference >= 0.0, "reward": _reward(rollout)}
        yield _conversation(chosen, report, columns)


def _sft_rows(chosen: ChosenGroup, report: ExportReport) -> Iterator[TrainerRow]:
    best, least = chosen.ranked[0], report.options.min_reward
    if least is not None and _reward(best) < least:
        report.left_out["groups"]["no answer reaches the least reward"] += 1
        return
    report.left_out["rollouts"]["not the best of its group"] += len(chosen.group.rollouts) - 1
    yield _conversation(chosen, report, {"completion": _messages(best), "reward": _reward(best)})


def _conversation(chosen: ChosenGroup, report: ExportReport, columns: TrainerRow) -> TrainerRow:
    # Schemas of tools are JSON text for TRL, one type for all rows.
    if tools := chosen.group.metadata.get("tools"):
        columns["tools"] = json.dumps(to_builtins(tools), ensure_ascii=False)
    return {"prompt": list(chosen.prompt), **columns, "provenance": _provenance(chosen, report)}


def _verl_rows(chosen: ChosenGroup, report: ExportReport) -> Iterator[TrainerRow]:
    if len(chosen.group.rollouts) < 2:
        report.left_out["groups"]["a single attempt, whose reward verl would take for its advantage"] += 1
        return
    answer, provenance = _answer(chosen), _provenance(chosen, report)
    split = {"index": report.rows, "split": "train" if provenance["phase"] == "train" else "test"}
    yield {
        "data_source": _source(chosen),
        "prompt": list(chosen.prompt),
        "ability": str(chosen.group.metadata.get("domain") or _GENERAL),
        "reward_model": {"style": "rule" if answer else "model", "ground_truth": answer},
        "extra_info": {**split, **provenance, **_recorded(chosen, report)},
    }


def _openrlhf_rows(chosen: ChosenGroup, report: ExportReport) -> Iterator[TrainerRow]:
    # OpenRLHF reshapes rewards to one row per prompt.
    if len(chosen.group.rollouts) != chosen.group.target_size:
        report.left_out["groups"]["ragged: not every attempt has a reward and its whole answer"] += 1
        return
    columns = {"label": _answer(chosen), "datasource": _source(chosen), **_recorded(chosen, report)}
    yield {"input": list(chosen.prompt), **columns, "provenance": _provenance(chosen, report)}


ROWS: Final[Mapping[ExportTarget, Callable[[ChosenGroup, ExportReport], Iterable[TrainerRow | str]]]] = {
    "trl-grpo": _grpo_rows,
    "trl-dpo": _dpo_rows,
    "trl-kto": _kto_rows,
    "trl-sft": _sft_rows,
    "verl": _verl_rows,
    "openrlhf": _openrlhf_rows,
    "jsonl": lambda chosen, _: lines_of_group(chosen.group),
}


def _source(chosen: ChosenGroup) -> str:
    metadata = chosen.group.metadata
    return str(metadata.get("task_id") or metadata.get("domain") or _GENERAL)


def _messages(rollout: Rollout) -> list[TrainerRow]:
    # With tool arguments as the objects that chat templates expect.
    messages = [to_builtins(turn) for turn in rollout.messages or ()]
    for call in (call for message in messages for call in message.get("tool_calls") or ()):
        text = call["function"].get("arguments")
        arguments = json_of(text) if isinstance(text, str) else None
        # Python reads NaN and infinity, which no row can hold; what is no JSON object stays the text of the model.
        with contextlib.suppress(ValueError, RecursionError):
            canonical_json(arguments)
            call["function"].update({"arguments": arguments} if isinstance(arguments, dict) else {})
    return messages


def _recorded(chosen: ChosenGroup, report: ExportReport) -> TrainerRow:
    # Missing ones are an empty list: readers of JSON lines expect one type.
    rollouts = chosen.group.rollouts
    logprobs = [rollout.logprob for rollout in rollouts if rollout.logprob is not None]
    reasons = {_unusable_logprob(rollout) for rollout in rollouts} - {""} if len(logprobs) == len(rollouts) else {""}
    report.left_out["logprobs"].update(filter(None, reasons))
    ids = [logprob.token_ids for logprob in logprobs if logprob.token_ids is not None]
    return {
        "recorded_completions": [_messages(rollout) for rollout in rollouts],
        "recorded_rewards": [_reward(rollout) for rollout in rollouts],
        "recorded_logprobs": [] if reasons else [list(logprob.tokens or ()) for logprob in logprobs],
        "recorded_token_ids": list(map(list, ids)) if len(ids) == len(rollouts) else [],
    }


def _unusable_logprob(rollout: Rollout) -> str:
    # A ratio needs those of the distribution sampled from.
    logprob = rollout.logprob
    if logprob is None or not logprob.complete or logprob.tokens is None:
        return "not one for every token"
    if not rollout.ratio_ready:
        return f"{logprob.kind}: perhaps not of the distribution sampled from, unless temperature and top_p are set to 1"
    return ""


def _provenance(chosen: ChosenGroup, report: ExportReport) -> TrainerRow:
    group = chosen.group
    metadata = group.metadata
    return {
        "run_id": metadata.get("run_id"),
        "group_id": group.id,
        "item_id": metadata.get("item_id"),
        "epoch": metadata.get("epoch"),
        "phase": metadata["phase"] if metadata.get("phase") in ("eval", "measure") else "train",
        "policy_version": group.policy_version,
        "experience_version": group.experience_version,
        "library_id": metadata.get("library_id"),
        "pack_stamp": metadata.get("pack_stamp"),
        "prompt": report.options.prompt,
        "degenerate": chosen.degenerate,
        "simulated": bool(metadata.get("simulated", False)),
    }


def _answer(chosen: ChosenGroup) -> str:
    answer = chosen.group.metadata.get("answer")
    return answer if isinstance(answer, str) else ""


def _reward(rollout: Rollout) -> float:
    if rollout.reward is None:
        raise ValueError(f"rollout {rollout.id} has no reward")
    return float(rollout.reward)


_NAMES: Final = "run_id group_id item_id phase policy_version experience_version library_id pack_stamp prompt degenerate split"


def export_groups(groups: Iterable[RolloutGroup], path: Path, report: ExportReport) -> None:
    """Write the groups by ``report.options``, and the report as ``<file>.report.json``.

    Raise ``ShapeError`` for a group whose values are inconsistent or NaN, and what reading and writing raise; neither
    file is touched then. Without any row only the report is written, and an older file is renamed to ``<file>.old``, so
    that the report does not seem to describe it.
    """
    rows = _rows(groups, report)
    first = next(rows, None)
    if first is not None:
        stream = chain([first], rows)
        if path.suffix == ".parquet":
            extra = "a file that ends in .jsonl, or the extra: pip install 'tfgrpo[parquet]'"
            write_rows(path, (_typed(row, path) for row in stream), _verl_schema, extra)
        else:
            # A lone surrogate has no UTF-8; it becomes a question mark, as in the request to the endpoint.
            utf8: Any = {"encoding": "utf-8", "errors": "replace", "newline": "\n"}
            with replacing(path) as partial, partial.open("w", buffering=1 << 20, **utf8) as file:
                file.writelines(f"{row if isinstance(row, str) else compact_json(row)}\n" for row in stream)
        report.file = str(path)
    elif path.is_file():
        aside = path.with_name(f"{path.name}.old")
        with disk(path, "cannot be put aside"):
            path.replace(aside)
        report.notes.append(f"the file of an earlier export was put aside as {aside.name}")
    replace_json(report_path(path), report.as_json())


def report_path(path: Path) -> Path:
    """Return the path of the report for an exported file."""
    return path.with_name(f"{path.name}.report.json")


def _rows(groups: Iterable[RolloutGroup], report: ExportReport) -> Iterator[Any]:
    for group in groups:
        check_groups([group])
        report.groups["read"] += 1
        report.rollouts["read"] += len(group.rollouts)
        chosen = chosen_group(group, report)
        count = 0
        for row in ROWS[report.options.target](chosen, report) if chosen is not None else ():
            count += 1
            yield row
        if chosen is not None and count:
            report.add(chosen, count)


def _typed(row: Mapping[str, Any], path: Path) -> dict[str, Any]:
    info = dict(row["extra_info"])
    if any(set(turn) != {"role", "content"} for turn in row["prompt"]):
        raise StoreError(f"{path}: the prompt of {info['group_id']!r} has turns with tools; write a .jsonl file instead")
    # Turns differ in their fields, and a column has one type.
    info["recorded_completions"] = [compact_json(turns) for turns in info["recorded_completions"]]
    return {**row, "extra_info": info}


def _verl_schema(arrow: Any) -> Any:
    text, number, integer = arrow.string(), arrow.float64(), arrow.int64()
    info = {"index": integer, **dict.fromkeys(_NAMES.split(), text), "epoch": integer, "simulated": arrow.bool_()}
    info |= {"recorded_completions": arrow.list_(text), "recorded_rewards": arrow.list_(number)}
    info |= {"recorded_logprobs": arrow.list_(arrow.list_(number)), "recorded_token_ids": arrow.list_(arrow.list_(integer))}
    message = arrow.struct({"role": text, "content": text})
    columns = {"data_source": text, "prompt": arrow.list_(message), "ability": text}
    columns |= {"reward_model": arrow.struct({"style": text, "ground_truth": text}), "extra_info": arrow.struct(info)}
    return arrow.schema(columns)

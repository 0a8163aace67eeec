"""``tfgrpo init``: write the pipeline file of a task of one's own, from its data, once the checks of ``doctor`` pass."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

from tfgrpo.flows.console.console import Console
from tfgrpo.flows.console.environment import check_output_file
from tfgrpo.flows.run.index import task_of_data
from tfgrpo.pipelines.datasets.datasets import Dataset, open_source, read_dataset
from tfgrpo.pipelines.datasets.items import value_at
from tfgrpo.pipelines.datasets.text_forms import DatasetRow
from tfgrpo.pipelines.plan import proposal
from tfgrpo.pipelines.plan.data import split_items
from tfgrpo.pipelines.settings.addresses import checked_address
from tfgrpo.pipelines.settings.model_choice import PriceList, is_local
from tfgrpo.pipelines.settings.pipeline_file import find_pipeline
from tfgrpo.pipelines.settings.tree import FieldMap, columns_of, first_part, is_template
from tfgrpo.stores.errors import ConfigError, DatasetError, Problem, SettingsError
from tfgrpo.stores.files.atomic import replace_text
from tfgrpo.stores.text import pluralize, quoted_names

_HELD_OUT: Final = 0.3
# Rows that decide what is in a column.
_FIRST_ROWS: Final = 100
_ACCEPTED: Final = "items with one question each"


class _Basis(NamedTuple):
    data: str
    base_url: str
    model: str
    fields: FieldMap
    dataset: Dataset
    rewards: proposal.Rewards
    learn: int
    notes: tuple[str, ...]


def init(
    *,
    data: str | None,
    base_url: str | None,
    model: str | None,
    pipeline: str,
    yes: bool,
    force: bool,
    console: Console,
    **chosen: str | None,
) -> None:
    """Ask, check, write. Raise ``ConfigError`` with every problem, and write nothing then."""
    target = Path(pipeline)
    replaced = "an existing one with --force"
    check_output_file(target, lambda _: force, replaced, option="--pipeline", endings=(".yaml", ".yml"))
    asks = sys.stdin is not None and sys.stdin.isatty() and not yes and not console.as_json
    ask: Callable[..., str] = partial(_answer, console) if asks else lambda _question, default="": default
    basis = _basis(data, base_url, model, chosen, ask)
    fields = basis.fields
    columns = {"id": fields.id, "prompt": fields.prompt, "answer": fields.answer if basis.dataset.answers else None}
    absent = {"id": "the row", "answer": "nowhere"}
    shown = ", ".join(f"{name} from {absent[name] if of is None else repr(of)}" for name, of in columns.items())
    system = next((item.system_prompt for item in basis.dataset.items[:1]), "")
    shown += f", system prompt from {fields.system_prompt!r}" if system else ""
    console.say(f"{basis.data}: {pluralize(len(basis.dataset.items), 'item')}, {shown}", wrap=False)
    for note in (f"{basis.rewards.entries[0].name} grades: {basis.rewards.reason}", *basis.notes):
        console.say(f"{basis.data}: {note}", wrap=False)
    from tfgrpo.flows.commands.doctor import diagnosis  # noqa: PLC0415 - 0.4 s that the first question need not wait for

    with tempfile.TemporaryDirectory(prefix="tfgrpo-init-") as folder:
        draft = Path(folder) / target.name
        draft.write_text(_text(basis), encoding="utf-8")
        try:
            facts, text = diagnosis(str(draft), {}, console)
        except ConfigError as error:  # which names the file that is to be written
            named = [replace(each, source=each.source.replace(str(draft), str(target))) for each in error.problems]
            raise type(error)(named) from None
    replace_text(target, _text(basis))
    console.say(f"{target} written", wrap=False)
    written = f"--pipeline {shlex.quote(str(target))}"
    after = [f"tfgrpo doctor {written} --ping", f"tfgrpo run {written}"]
    lines = [text, "", "next, one token to the endpoint, then the first night:", *(f"  {command}" for command in after)]
    made = {"file": str(target), "columns": columns, "notes": [*basis.notes], "next": after}
    console.answer({**facts, **made}, "\n".join(lines))


def _basis(
    data: str | None, base_url: str | None, model: str | None, chosen: Mapping[str, str | None], ask: Callable[..., str]
) -> _Basis:
    data = data or ask("data: a .jsonl, .json, .csv, .tsv or .parquet file")
    # Before the next question: a wrong path shows at once.
    columns = _columns(chosen, data, ask) if data else proposal.ProposedColumns({})
    base_url = base_url or ask("endpoint, OpenAI-compatible", os.environ.get("OPENAI_BASE_URL", ""))
    model = model or ask("model", os.environ.get("TFGRPO_MODEL", ""))
    needed = {
        "DATA": (data, "the path of a dataset"),
        "--base-url": (base_url, "the address of the endpoint"),
        "--model": (model, "its name there"),
    }
    problems = [Problem(name, "nothing", accepted) for name, (value, accepted) in needed.items() if not value]
    if problems:
        raise SettingsError(problems)
    try:
        checked_address(base_url)
    except ValueError as error:
        raise SettingsError.one("--base-url", "text that is no address", str(error)) from None
    fields, dataset, rewards = _read(data, columns, chosen["id"])
    learn = len(split_items(dataset.items, _HELD_OUT).learn)
    notes = columns.notes if rewards.entries[0].name in ("gt", "judge") else ()
    notes += tuple(proposal.unasked_answers(dataset.items, fields))
    if columns.options and fields.prompt != columns.prompt_with_options():
        left = quoted_names(columns_of(columns.options))
        notes += (f"the prompt is without the options in {left}: not every answer is one of them",)
    return _Basis(data, base_url, model, fields, dataset, rewards, learn, notes)


def _answer(console: Console, question: str, default: str = "") -> str:
    # Not ``input``, which would ask on standard output.
    console.people.print(f"{question}{f' [{default}]' if default else ''}: ", end="", markup=False, highlight=False)
    return sys.stdin.readline().strip() or default


def _columns(chosen: Mapping[str, str | None], data: str, ask: Callable[[str], str]) -> proposal.ProposedColumns:
    columns = open_source(data, FieldMap()).columns()
    if "resourceSpans" in columns:
        raise DatasetError.one(data, "traces", _ACCEPTED)
    if not columns:
        raise DatasetError.one(data, "no names of columns in its first line", "a header, or items as JSON objects")
    for field, text in chosen.items():
        if text is not None and not _is_known(text, columns):
            raise SettingsError.one(f"--{field}", repr(text), f"a column, or a template over them: {quoted_names(columns)}")
    # A column that is called like a template cannot be read as one.
    readable = [column for column in columns if not is_template(column)]
    rows = open_source(data, FieldMap(id=None, prompt=readable[0])).rows if readable else ()
    first = [row.values for row in islice(rows, _FIRST_ROWS) if isinstance(row, DatasetRow)]
    proposed = proposal.proposed_columns(columns, first, chosen)
    if proposed.chat:
        raise DatasetError.one(data, f"conversations in the column {proposed.chat!r}", _ACCEPTED)
    if proposed.fields["prompt"] is None:
        if prompt := ask(f"column of the prompts, of {quoted_names(columns)}"):
            return _columns({**chosen, "prompt": prompt}, data, ask)
        unsure = f"no column that is surely it among {quoted_names(columns)}"
        paths = ((values, path) for values in first for path in proposal.leaves(values) if path not in columns)
        inner = next((path for values, path in paths if isinstance(value_at(values, path), str)), "")
        path = f"a path such as {inner}, " if inner else ""
        raise SettingsError.one("--prompt", unsure, f'its name, {path}or a template such as "{{question}} {{context}}"')
    of_answers = f"column of the answers, of {quoted_names(columns)} (nothing: there is none)"
    if proposed.fields["answer"] is None and len(columns) > 1 and (answer := ask(of_answers)):
        return _columns({**chosen, "answer": answer}, data, ask)
    return proposed


def _is_known(text: str, columns: Sequence[str]) -> bool:
    with suppress(ValueError):
        names = columns_of(text)
        return bool(names) and all(first_part(name, columns) in columns for name in names)
    return False


def _read(data: str, columns: proposal.ProposedColumns, chosen_id: str | None) -> tuple[FieldMap, Dataset, proposal.Rewards]:
    proposed = FieldMap.model_validate({name: of for name, of in columns.fields.items() if of or name == "id"})
    fields, dataset = _with_ids(data, proposed, chosen_id)
    if columns.options:
        # Not ``model_copy``, which would copy what the map has cached.
        shows = FieldMap(**{**fields.model_dump(), "prompt": columns.prompt_with_options()})
        choice = read_dataset(data, shows)
        if rewards := proposal.chosen_options(data, choice.items, columns.count):
            return shows, choice, rewards
    return fields, dataset, proposal.proposed_rewards(dataset.items)


def _with_ids(data: str, fields: FieldMap, chosen_id: str | None) -> tuple[FieldMap, Dataset]:
    try:
        return fields, read_dataset(data, fields)
    except DatasetError:
        # A column that is called id, and has values that recur, may be none: rows are numbered then.
        if fields.id is not None and chosen_id is None:
            numbered = FieldMap(**{**fields.model_dump(), "id": None})
            with suppress(DatasetError):
                return numbered, read_dataset(data, numbered)
        raise


def _text(basis: _Basis) -> str:
    """Return the file: the template for tasks of one's own, with this one's data, model and sizes. JSON texts are YAML."""
    sample = max(2, min(100, basis.learn))
    sizes = {"sample_size": sample, "batch_size": min(25, sample)}
    general = find_pipeline("general").read_text(encoding="utf-8")
    sized = re.sub(r"(sample_size|batch_size): \d+", lambda match: f"{match[1]}: {sizes[match[1]]}", general)
    _, *template = sized.split("\n\n")
    offer = PriceList({}, None if is_local(basis.base_url) else basis.base_url).find(basis.model)
    prices = [
        "  # prices: # unknown; USD per million tokens, needed by budget.max_usd",
        f"  #   {json.dumps(basis.model)}: {{ input: 0.15, output: 0.60 }}",
    ]
    if offer is not None:
        usd = [float(each) / 1000 for each in (offer.price.input_nano, offer.price.output_nano)]
        prices = [f"  # price: {usd[0]:g} and {usd[1]:g} USD per million tokens in and out, by {offer.source}"]
    rewarders = ["rewarders:"]
    for number, entry in enumerate(basis.rewards.entries):
        rewarders.append(f"  - name: {entry.name}{'' if number else f' # {basis.rewards.reason}'}")
        if entry.options:
            rewarders.append(f"    options: {json.dumps(entry.options, ensure_ascii=False)}")
        if entry.weight != 1.0:
            rewarders.append(f"    weight: {entry.weight:g}")
    fields = {name: column for name, column in basis.fields.model_dump().items() if column != getattr(FieldMap(), name)}
    blocks = {block.partition(":")[0].lstrip("# "): (block,) for block in template} | {
        "pipeline": (f"task_id: {json.dumps(task_of_data(basis.data))} # names the directory under out/", "pack: general"),
        "dataset": (
            "dataset:",
            f"  path: {json.dumps(basis.data)}",
            f"  held_out: {_HELD_OUT} # share that only the evaluation sweep sees",
            *([f"  fields: {json.dumps(fields, ensure_ascii=False)}"] if fields else ()),
        ),
        "rewarders": tuple(rewarders),
        "model": (
            "model:",
            f"  name: {json.dumps(basis.model)}",
            f"  base_url: {json.dumps(basis.base_url)}",
            "  api_key: env:OPENAI_API_KEY # the variable of the key",
            *prices,
        ),
    }
    return "\n\n".join(("# Written by `tfgrpo init`. Every setting: tfgrpo config", *map("\n".join, blocks.values())))

"""Read the item, reference, answer format and rewarders of a selection from its request and settings."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator, SchemaError

from tfgrpo.flows.console.powl_files import load_reference, read_reference
from tfgrpo.flows.selection.request import SelectRequest
from tfgrpo.pipelines.datasets.datasets import read_dataset, shipped_dataset
from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.settings.layers import Resolved
from tfgrpo.pipelines.settings.tree import RewarderSettings, Settings
from tfgrpo.rewarders.powl import footprint_to_value
from tfgrpo.rewarders.powl.event_log import is_event_log
from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.errors import DatasetError, Problem, SettingsError
from tfgrpo.tasks.selection.formats import AnswerFormat, JsonFormat, PowlFormat, TextFormat


def item_asked(request: SelectRequest, settings: Settings) -> Item:
    """Return the item with its answer, if any. Raises ``ConfigError`` for no prompt or item, or for both."""
    if request.prompt is not None and request.item is not None:
        raise SettingsError.one("--item", "it beside a prompt", "one of the two")
    if request.item is not None:
        return _item_of(request.item, settings)
    if request.prompt is not None and request.prompt.strip():
        digest = sha256_hex(request.prompt.encode("utf-8", "surrogatepass"))
        return Item(id=f"prompt-{digest[:12]}", prompt=request.prompt, answer="", source="prompt")
    if settings.dry_run and request.prompt is None:
        return read_dataset(shipped_dataset(settings.simulated.world)).items[0]
    accepted = "a prompt by --prompt or on standard input, or --item FILE#ID"
    raise SettingsError.one("--prompt", "nothing to ask", accepted)


def _item_of(name: str, settings: Settings) -> Item:
    path, mark, wanted = name.rpartition("#")
    if not mark or not path or not wanted:
        raise SettingsError.one("--item", repr(name), "FILE#ID, a dataset and the id of one of its items")
    items = read_dataset(path, settings.dataset.fields).items
    found = next((item for item in items if item.id == wanted), None)
    if found is None:
        raise DatasetError.one(
            "--item", f"no item {wanted!r} in {path}", f"one of its {len(items)} ids, such as {items[0].id}"
        )
    return found


def answer_asked(request: SelectRequest, settings: Settings) -> str | None:
    """Return the reference of the request as text; None without one. Raises ``ConfigError``."""
    if request.reference is None:
        return request.answer
    if request.answer is not None:
        raise SettingsError.one("--reference", "it beside an answer", "one of the two")
    path = Path(request.reference)
    if settings.selection.format == "powl":
        found = read_reference(path, "block") if is_event_log(path) else None
        if found is not None:
            return canonical_json(footprint_to_value(found))
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        given = error.strerror or type(error).__name__ if isinstance(error, OSError) else "no UTF-8"
        raise DatasetError.one("--reference", f"{path}: {given}", "a file of text that can be read") from None
    if not text.strip():
        raise DatasetError.one("--reference", f"{path}: it is empty", "a file with the reference")
    if settings.selection.format == "powl":
        load_reference(path)  # refuse other files; a footprint may be of any mode, which its rewarder checks
    return text


def format_asked(settings: Settings) -> AnswerFormat:
    """Return the answer format. Raises ``SettingsError`` for an invalid schema."""
    selection = settings.selection
    if selection.json_schema is not None and selection.format != "json":
        raise SettingsError.one("--json-schema", f"it with --format {selection.format}", "--format json")
    if selection.format == "json":
        return JsonFormat(_schema(selection.json_schema), selection.repair)
    return PowlFormat(selection.repair) if selection.format == "powl" else TextFormat()


def _schema(path: str | None) -> Mapping[str, Any] | None:
    if path is None:
        return None
    accepted = "a file with a JSON schema"
    try:
        schema: Any = json.loads(Path(path).read_text(encoding="utf-8-sig"))
        if not isinstance(schema, dict):
            raise SettingsError.one("--json-schema", f"{path}: a {type(schema).__name__}", accepted)
        Draft202012Validator.check_schema(schema)
    except OSError as error:
        raise SettingsError.one("--json-schema", f"{path}: {error.strerror}", accepted) from None
    except SchemaError as error:
        raise SettingsError.one("--json-schema", f"{path}: {error.json_path}: {error.message}", accepted) from None
    except (ValueError, RecursionError) as error:
        raise SettingsError.one("--json-schema", f"{path}: {error}", accepted) from None
    return schema


def rewarders_asked(request: SelectRequest, resolved: Resolved) -> tuple[RewarderSettings, ...] | None:
    """Return the rewarders of the request, else those that the settings name; None for those of the stage."""
    if not request.rewarders:
        return None if resolved.sources["rewarders"] == "default" else resolved.settings.rewarders
    problems: list[Problem] = []
    options = {entry.name: entry.options for entry in resolved.settings.rewarders}
    named = []
    for given in request.rewarders:
        name, mark, weight = given.rpartition("=") if "=" in given else (given, "", "1")
        try:
            share = float(weight)
            named.append(RewarderSettings(name=name, weight=share, options=dict(options.get(name, {}))))
        except ValueError:
            problems.append(Problem("--rewarder", repr(given), f"NAME{mark or '='}WEIGHT, a weight of at least 0"))
    if problems:
        raise SettingsError(problems)
    return tuple(named)

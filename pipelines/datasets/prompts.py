"""What were these items asked? Their prompts by id, out of the data as they stand now; for pages, not for runs."""

from __future__ import annotations

from collections.abc import Collection

from tfgrpo.pipelines.datasets.datasets import read_dataset
from tfgrpo.pipelines.datasets.stored_items import ids_of, take
from tfgrpo.pipelines.settings.data import FieldMap
from tfgrpo.stores.errors import DatasetError


def prompts_of(path: str, fields: FieldMap, wanted: Collection[str]) -> dict[str, str]:
    """Prompts of a dataset's items. An id that is not there is left out. Raises ``DatasetError`` as ``read_dataset``."""
    items = read_dataset(path, fields).items
    places = [place for place, name in enumerate(ids_of(items)) if name in wanted]
    return {item.id: item.prompt for item in take(items, places)}


def prompts_of_mix(path: str, wanted: Collection[str]) -> dict[str, str]:
    """Prompts of a mix's records. An id that is not there is left out. Raises ``PipelineError`` for a bad mix."""
    from tfgrpo.pipelines.mix.config import load_mix_config  # noqa: PLC0415 - few pages are about a mix
    from tfgrpo.pipelines.mix.sampling import record_of  # noqa: PLC0415

    config = load_mix_config(path, check_records=False, build_graders=False)
    found = {}
    for name in wanted:
        try:
            _, record = record_of(config, name)
        except DatasetError:
            continue
        if isinstance(record, dict) and isinstance(record.get("prompt"), str):
            found[name] = record["prompt"]
    return found

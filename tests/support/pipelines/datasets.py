"""Return the problems of a dataset that is refused."""

from pathlib import Path

import pytest

from tfgrpo.pipelines.datasets.datasets import load_dataset
from tfgrpo.pipelines.settings.tree import FieldMap
from tfgrpo.stores.errors import DatasetError


def refusal(path: Path, fields: FieldMap | None = None) -> list[str]:
    with pytest.raises(DatasetError) as caught:
        load_dataset(path, fields)
    return [str(problem) for problem in caught.value.problems]

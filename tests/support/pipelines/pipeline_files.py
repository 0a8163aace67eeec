"""Write a pipeline file; return the error of refused settings."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tfgrpo.pipelines.settings.layers import resolve_settings
from tfgrpo.stores.errors import ConfigError


def write_file(tmp_path: Path, document: Any, name: str = "mine.yaml") -> Path:
    path = tmp_path / name
    path.write_text(document if isinstance(document, str) else yaml.safe_dump(document), encoding="utf-8")
    return path


def refusal(**layers: Any) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        resolve_settings(**{"cli": {}, "env": {}, "pipeline_path": None, **layers})
    return caught.value

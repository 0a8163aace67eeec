"""Read the YAML files that are packaged next to modules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

# The C loader takes 4 ms for the largest file, the Python one 30 ms; builds without libyaml lack the former.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def packaged_yaml(module: str, name: str) -> Any:
    """Return the content of the file ``name`` next to a module, which passes its ``__file__``."""
    return yaml.load(Path(module).with_name(name).read_text("utf-8"), Loader=_LOADER)  # noqa: S506 - a safe one

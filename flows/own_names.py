"""Refuse to start where Python would import a user's module in place of one of these packages.

Imported before every other module of the command, it imports nothing but the standard library.
"""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from typing import Final

OWN: Final = ("flows", "pipelines", "prompt_packs", "rewarders", "stores", "tasks")
"""Names of the packages that tfgrpo installs."""
_ROOT: Final = Path(__file__).resolve().parent.parent


def shadowed() -> dict[str, Path]:
    """The names that another module has, with the place where Python finds it. Nothing is imported."""
    places = {name: _place(name) for name in OWN}
    return {name: place for name, place in places.items() if place != _ROOT / name}


def _place(name: str) -> Path:
    spec = importlib.util.find_spec(name)
    if spec is None:
        return _ROOT / name
    if spec.origin is None:  # a folder without __init__.py
        return Path(next(iter(spec.submodule_search_locations or [name]))).resolve()
    file = Path(spec.origin).resolve()
    return file.parent if file.name == "__init__.py" else file


def refuse_shadowed() -> None:
    """Say which names are taken, on stderr and under ``--json`` as an object on stdout, and exit with 2."""
    problems = [
        {
            "source": f"the module name {name!r}",
            "given": str(place),
            "accepted": "another name for it, because tfgrpo has a package of this name; "
            "or the command `tfgrpo` instead of `python -m`, which puts the current folder first",
        }
        for name, place in shadowed().items()
    ]
    if not problems:
        return
    for problem in problems:
        sys.stderr.write("tfgrpo: {source}: got {given}; accepted: {accepted}\n".format(**problem))
    if "--json" in sys.argv:
        sys.stdout.write(f"{json.dumps({'status': 'refused', 'problems': problems})}\n")
    sys.exit(2)


refuse_shadowed()

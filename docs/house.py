"""Draw the house from the code: floors, rooms, and which floor imports which, as Mermaid and as tables."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import tfgrpo

FLOORS: Final = ("flows", "tasks", "pipelines", "rewarders", "prompt_packs", "stores")
"""From the top down."""
_ROOT: Final = Path(__file__).resolve().parents[1]


def picture() -> str:
    """Return the floors with their rooms, and the imports between floors, as a Mermaid flowchart."""
    lines = ["```mermaid", "flowchart TB"]
    for floor in FLOORS:
        lines.append(f'  subgraph {floor}["{floor}"]')
        lines += [f'    {floor}_{room}["{room}"]' for room in rooms(floor)] or [f'    {floor}_door["one room"]']
        lines.append("  end")
    lines += [f"  {upper} --> {lower}" for upper in FLOORS for lower in FLOORS if lower in imported_floors(upper)]
    return "\n".join([*lines, "```"])


def tour() -> str:
    """Return the first sentence of every floor and room, as a Markdown list."""
    lines = []
    for floor in FLOORS:
        lines.append(f"- **`{floor}/`** {_about(floor)}")
        lines += [f"    - `{floor}/{room}/` {_about(f'{floor}.{room}')}" for room in rooms(floor)]
    return "\n".join(lines)


def rooms(floor: str) -> list[str]:
    """Return the names of the packages directly in a floor."""
    found = pkgutil.iter_modules([str(_ROOT / floor)])
    return sorted(module.name for module in found if module.ispkg)


def imported_floors(floor: str) -> set[str]:
    """Return the other floors that any module of a floor imports."""
    names = {name.split(".")[1] for path in (_ROOT / floor).rglob("*.py") for name in _imports(path)}
    return names & set(FLOORS) - {floor}


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [f"{node.module}.{alias.name}" for alias in node.names]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        yield from (name for name in names if name.startswith(f"{tfgrpo.__name__}."))


def _about(package: str) -> str:
    return str(importlib.import_module(f"tfgrpo.{package}").__doc__).partition("\n")[0]

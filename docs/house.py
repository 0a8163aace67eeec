"""Draw the house from the code: floors, rooms, and which floor imports which, as a picture and as a list."""

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
    """Return an SVG: a band for each floor from the top down, its rooms as boxes, and the floors that it imports."""
    width, box, band = 1040, 92, 92
    height = len(FLOORS) * band + 20
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="13">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    for row, floor in enumerate(FLOORS):
        top = 10 + row * band
        imported = imported_floors(floor)
        below = ", ".join(lower for lower in FLOORS if lower in imported) or "no floor"
        parts += [
            f'<rect x="10" y="{top}" width="{width - 20}" height="{band - 10}" rx="6" fill="#f2f4fb" stroke="#3f51b5"/>',
            f'<text x="22" y="{top + 22}" font-weight="bold">{floor}</text>',
            f'<text x="150" y="{top + 22}" fill="#555555">imports {below}</text>',
        ]
        for column, room in enumerate(rooms(floor)):
            left = 22 + column * (box + 8)
            parts += [
                f'<rect x="{left}" y="{top + 36}" width="{box}" height="34" rx="4" fill="#ffffff" stroke="#9aa5d8"/>',
                f'<text x="{left + box / 2:g}" y="{top + 57}" text-anchor="middle">{room}</text>',
            ]
    return "\n".join([*parts, "</svg>", ""])


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

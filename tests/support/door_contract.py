"""Import contract: other modules enter a room only through its door.

The door of a room is its ``__init__``. Open to others are the names that it re-exports, the modules that it re-
exports from, and the modules that its ``__all__`` lists. Modules of the room itself, and of rooms within it, import
each other as they like.
"""

import ast
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, output


class DoorContract(Contract):
    """Every import into a room from outside is one that its door allows."""

    type_name = "doors"

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        """Check every direct import of the graph."""
        del verbose
        broken = sorted(forbidden(graph))
        return ContractCheck(kept=not broken, metadata={"broken": broken})

    def render_broken_contract(self, check: ContractCheck) -> None:
        """Print importer, imported module and the room in which it is private."""
        broken: list[tuple[str, str, str]] = check.metadata["broken"]
        for importer, imported, room in broken:
            output.print_error(f"{importer} imports {imported}, which the door of {room} does not name", bold=False)


def forbidden(graph: ImportGraph) -> Iterator[tuple[str, str, str]]:
    """Yield importer, imported module, and the room whose door does not allow the import."""
    doors: dict[str, set[str]] = {}
    for importer in graph.modules:
        for imported in graph.find_modules_directly_imported_by(importer):
            parts = imported.split(".")
            for depth in range(2, len(parts)):
                room = ".".join(parts[:depth])
                if importer == room or importer.startswith(f"{room}."):
                    continue
                if parts[depth] not in doors.setdefault(room, open_modules(room)):
                    yield importer, imported, room


def open_modules(room: str) -> set[str]:
    """Return the modules of a room that others may import."""
    spec: Any = importlib.util.find_spec(room)
    tree = ast.parse(Path(spec.origin).read_text(encoding="utf-8"))
    listed = {
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.literal_eval(node.value)
    }
    inside = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return listed | {module.removeprefix(f"{room}.").partition(".")[0] for module in inside if module.startswith(f"{room}.")}

"""Worlds of the simulated model: items, right answers and typical mistakes, mostly read from ``<world>.yaml``."""

from tfgrpo.tasks.models.simulated.worlds.data import Advice, Pitfall
from tfgrpo.tasks.models.simulated.worlds.lexicon import Lexicon, Stance
from tfgrpo.tasks.models.simulated.worlds.puzzle import (
    Dialogue,
    ScriptedSolver,
    ToolCall,
    ToolResult,
    Turn,
    answer_of,
)
from tfgrpo.tasks.models.simulated.worlds.worlds import SHIPPED, World, WorldName, data_file, generate_items, open_world

__all__ = [
    "SHIPPED",
    "Advice",
    "Dialogue",
    "Lexicon",
    "Pitfall",
    "ScriptedSolver",
    "Stance",
    "ToolCall",
    "ToolResult",
    "Turn",
    "World",
    "WorldName",
    "answer_of",
    "data_file",
    "generate_items",
    "ledger",
    "open_world",
    "powl",
]

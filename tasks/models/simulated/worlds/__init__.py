"""Worlds of the simulated model: items, right answers and typical mistakes, mostly read from ``<world>.yaml``."""

from tfgrpo.tasks.models.simulated.worlds.worlds import SHIPPED, World, WorldName, data_file, generate_items, open_world

__all__ = ["SHIPPED", "World", "WorldName", "data_file", "generate_items", "open_world"]

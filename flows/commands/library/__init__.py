"""Sub-commands for lessons, packs, exports and imports."""

"""Read items from files, tables and hubs."""

__all__ = ["datasets", "item_fields", "items", "prompts", "rows", "source_base", "stored_items"]

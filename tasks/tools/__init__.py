"""Tools of an actor: typed Python functions with a schema from their signature."""

__all__ = ["mcp_servers", "schema"]

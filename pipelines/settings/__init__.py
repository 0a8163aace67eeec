"""Settings of a run, read from defaults, pipeline file, environment and command line."""

__all__ = [
    "addresses",
    "data",
    "fields",
    "guardrails",
    "layers",
    "learning",
    "model",
    "model_choice",
    "pipeline_file",
    "rewarding",
    "selection",
    "tree",
]

"""Settings of a run, read from defaults, pipeline file, environment and command line."""

__all__ = [
    "actor",
    "addresses",
    "guardrails",
    "layers",
    "learning",
    "model",
    "model_choice",
    "pipeline_file",
    "selection",
    "tree",
]

"""Settings of a run, read from defaults, pipeline file, environment and command line."""

__all__ = ["addresses", "guardrails", "layers", "model_choice", "pipeline_file", "tree"]

"""Commands that look at attempts, and grade completions without a run."""

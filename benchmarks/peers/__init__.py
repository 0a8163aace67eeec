"""GEPA and DSPy's SIMBA themselves on the simulated service, beside this project's loop at an equal number of calls."""

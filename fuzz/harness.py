"""One atheris process: ``python -m fuzz.harness CORPUS [libFuzzer options]``. Started by ``fuzz.__main__``."""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(include=["tfgrpo.rewarders.powl", "fuzz"]):
    from fuzz.checks import check


if __name__ == "__main__":
    atheris.Setup(sys.argv, check)
    atheris.Fuzz()

"""Run every benchmark, one after another: ``python -m benchmarks [name …]``."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path


def main() -> None:
    """Run those named, or all."""
    known = sorted(path.stem.removeprefix("bench_") for path in Path(__file__).parent.glob("bench_*.py"))
    unknown = [name for name in sys.argv[1:] if name not in known]
    if unknown:
        raise SystemExit(f"no benchmark {', '.join(unknown)}; there are {', '.join(known)}")
    for name in sys.argv[1:] or known:
        print(f"\n== {name}")
        importlib.import_module(f"benchmarks.bench_{name}").main()


if __name__ == "__main__":
    main()

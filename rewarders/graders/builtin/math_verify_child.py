"""Child process that compares answers with math-verify, one JSON line ``[answer, reference]`` at a time.

It imports no module of this project, so that it starts fast, and sets limits by which the system ends it.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Final

PARSE_S: Final = 2
"""The library's own limit, by signal, for each parse and each comparison."""
CPU_S: Final = 10.0
"""Processor time for one item, after which the system ends this process."""
MEMORY_BYTES: Final = 4 * 1024**3
"""Address space; beyond it Python raises ``MemoryError``, which the library reports as unparsable."""


def score(answer: str, reference: str) -> float:
    """Return 0.0 without a formula in the answer, 1.0 when it equals the reference, else 0.5."""
    from math_verify import LatexExtractionConfig, parse, verify  # noqa: PLC0415  after the limits are set
    from math_verify.parser import NormalizationConfig  # noqa: PLC0415

    # The library's defaults would also rewrite formulas that are malformed, and prefer a stated answer to a box.
    rewritten = NormalizationConfig(
        basic_latex=True, units=True, malformed_operators=False, nits=False, boxed="all", equations=False
    )
    wanted = [LatexExtractionConfig(boxed_match_priority=0, normalization_config=rewritten)]
    found = parse(answer, extraction_config=wanted, parsing_timeout=PARSE_S)
    if not found:
        return 0.0
    gold = parse(reference, extraction_config=wanted, parsing_timeout=PARSE_S)
    return 1.0 if verify(gold, found, timeout_seconds=PARSE_S) else 0.5


def limit_memory() -> None:
    """Limit the address space, where the system can."""
    try:
        import resource  # noqa: PLC0415  POSIX only
    except ImportError:
        return
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    allowed = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (allowed, hard))


def limit_next_item() -> None:
    """Restart the clock of processor time. Without a Python handler, its signal ends the process at once."""
    if hasattr(signal, "setitimer"):
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_PROF, CPU_S)


def main() -> None:
    """Answer each line of standard input until it ends."""
    # The library's parser prints to standard output; only scores may reach the parent.
    with os.fdopen(os.dup(1), "w", encoding="ascii") as replies:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        limit_memory()
        for line in sys.stdin:
            limit_next_item()
            answer, reference = json.loads(line)
            replies.write(f"{score(answer, reference)}\n")
            replies.flush()


if __name__ == "__main__":
    main()

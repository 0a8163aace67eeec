"""Fuzz the readers of process models: ``python -m fuzz [--seconds N] [--engine atheris|hypothesis]``.

Atheris (extra ``fuzz``) follows the branches of the code; where it cannot be installed, hypothesis puts inputs together
from the words of the grammar, for as long. Exit code 1 and the input when something does not hold.
"""

from __future__ import annotations

import argparse
import importlib.util
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st

from fuzz.checks import check
from fuzz.seeds import WORDS, seeds

_ROUND = 2_000


def main() -> int:
    """Fuzz for the time given."""
    parser = argparse.ArgumentParser(prog="python -m fuzz", description="Random input against the readers of process models.")
    parser.add_argument("--seconds", type=int, default=600, metavar="N", help="how long [600]")
    parser.add_argument("--engine", choices=("atheris", "hypothesis"), help="[atheris where it is installed]")
    options = parser.parse_args()
    engine = options.engine or ("atheris" if importlib.util.find_spec("atheris") else "hypothesis")
    if options.engine is None and engine == "hypothesis":
        _say("atheris is not installed for this Python; hypothesis fuzzes instead, blind to the branches of the code.")
    _say(f"{engine}: {options.seconds} s")
    return _atheris(options.seconds) if engine == "atheris" else _hypothesis(options.seconds)


def _atheris(seconds: int) -> int:
    with tempfile.TemporaryDirectory(prefix="tfgrpo-fuzz-") as folder:
        corpus, findings = Path(folder) / "corpus", Path(folder) / "findings"
        corpus.mkdir()
        findings.mkdir()
        for number, seed in enumerate(seeds()):
            (corpus / f"seed-{number}").write_bytes(seed)
        words = Path(folder) / "words"
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in WORDS), encoding="ascii")
        line = [sys.executable, "-m", "fuzz.harness", str(corpus), f"-max_total_time={seconds}", f"-dict={words}"]
        line += [f"-artifact_prefix={findings}/", "-max_len=4096", "-timeout=30", "-print_final_stats=1"]
        code = subprocess.run(line, check=False).returncode  # noqa: S603 - our own harness
        for finding in findings.iterdir():
            _say(f"this input is a finding: {finding.read_bytes()!r}")
        return 1 if code or any(findings.iterdir()) else 0


def _hypothesis(seconds: int) -> int:
    """Rounds of examples, each with a seed of its own, until the time is up."""
    pieces = st.sampled_from([word.encode("utf-8", errors="replace") for word in WORDS] + list(seeds()))
    inputs = st.lists(pieces | st.binary(max_size=8) | st.text(max_size=4).map(str.encode), max_size=60).map(b"".join)
    ends = time.monotonic() + seconds
    rng, rounds = random.Random(), 0
    while time.monotonic() < ends:
        try:
            _one_round(inputs, rng.getrandbits(64), ends)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            _say(f"{type(error).__name__}: {error}\n{''.join(getattr(error, '__notes__', []))}")
            return 1
        rounds += 1
    _say(f"{rounds} rounds of {_ROUND} inputs, nothing found")
    return 0


def _one_round(inputs: st.SearchStrategy[bytes], seed: int, ends: float) -> None:
    @seeded(seed)
    @settings(max_examples=_ROUND, deadline=None, database=None, suppress_health_check=list(HealthCheck))
    @given(inputs)
    def holds(data: bytes) -> None:
        if time.monotonic() < ends:
            check(data)

    holds()


def _escaped(word: str) -> str:
    return "".join(chr(byte) if 32 < byte < 127 and byte not in b'"\\' else f"\\x{byte:02x}" for byte in word.encode())


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


if __name__ == "__main__":
    sys.exit(main())

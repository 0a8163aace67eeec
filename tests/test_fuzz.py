"""Fuzzing can be started with either engine, and its checks find what they are for."""

import importlib.util
import subprocess
import sys

import pytest

from fuzz import checks
from fuzz.seeds import WORDS, seeds
from tests.support.runs.pages import ROOT
from tfgrpo.rewarders.powl import Activity, PowlError


def run(*arguments):
    line = [sys.executable, "-m", "fuzz", *arguments]
    return subprocess.run(line, cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)


def test_every_seed_passes():
    for seed in (*seeds(), *(word.encode("utf-8", "replace") for word in WORDS)):
        checks.check(seed)


@pytest.mark.parametrize("engine", ["atheris", "hypothesis"])
@pytest.mark.slow
def test_an_engine_fuzzes_for_as_long_as_it_is_told(engine):
    if engine == "atheris" and importlib.util.find_spec("atheris") is None:
        pytest.skip("the extra `fuzz` is not installed: `make fuzz` installs it, or says that it cannot")
    done = run("--seconds", "1", "--engine", engine)
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stderr.startswith(f"{engine}: 1 s")


def refuse(text, **options):
    raise PowlError("")


@pytest.mark.parametrize(
    ("reader", "data", "found"),
    [
        (lambda text, **options: Activity("a"), b"just prose", "prose was read as ACTIVITY"),
        (lambda text, **options: Activity(f"{len(text)} letters"), b"ACTIVITY(a)", "text does not read back"),
        (refuse, b"x", "says nothing"),
        (lambda text, **options: 1 / 0, b"x", "division by zero"),
    ],
)
def test_a_broken_reader_is_found(monkeypatch, reader, data, found):
    monkeypatch.setattr(checks, "parse_text", reader)
    with pytest.raises((checks.Finding, ZeroDivisionError), match=found):
        checks.check(data)

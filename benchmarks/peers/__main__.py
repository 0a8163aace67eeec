"""Compare with GEPA and DSPy's SIMBA at the calls of one run of this project: ``python -m benchmarks.peers``.

Each package is installed into an environment of its own below ``.venv``. All optimize one prompt on the simulated service,
over HTTP, from the same items. What they end with is measured on items that none has seen. One that cannot be installed
is named and left out.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import venv
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import tfgrpo
from benchmarks.generated_items import generate_items
from benchmarks.peers.service import Order, Service
from benchmarks.processes import ROOT, simulated_server
from benchmarks.worlds.figures import figure
from tfgrpo.prompt_packs.stamps import load_prompt_pack, merge_experiences

PEERS: Final = {"gepa": "gepa", "simba": "dspy"}
"""Module of this folder, and the package it runs."""
SEEDS: Final = 10
LEARN, HELD_OUT, UNSEEN = 100, 100, 300
EVALUATION: Final = 0.3
"""Temperature of the measurement, as of the sweep."""


def main() -> None:
    """Run every optimizer with every seed and print the table."""
    programs = {name: python for name, package in PEERS.items() if (python := _environment(name, package)) is not None}
    gains: dict[str, list[float]] = {}
    calls: dict[str, list[int]] = {}
    with simulated_server(0.0) as url:
        for seed in range(SEEDS):
            items = generate_items("arithmetic", LEARN + HELD_OUT + UNSEEN, seed=seed)
            unseen, start = items[-UNSEEN:], merge_experiences(load_prompt_pack("arithmetic")).text
            before = _success(url, start, unseen)
            budget, system = _own(url, items, seed)
            found = {"tfgrpo": (budget, system)}
            order = Order(url, items[: LEARN + HELD_OUT], start, budget, seed)
            found |= {name: _peer(python, name, order) for name, python in programs.items()}
            for name, (spent, prompt) in found.items():
                gains.setdefault(name, []).append(_success(url, prompt, unseen) - before)
                calls.setdefault(name, []).append(spent)
            print(f"seed {seed}: {', '.join(f'{name} {gains[name][-1]:+.1f}' for name in found)}", file=sys.stderr)
    print("\n".join(_table(gains, calls)))


def _table(gains: Mapping[str, Sequence[float]], calls: Mapping[str, Sequence[int]]) -> Iterator[str]:
    yield "| optimizer | points gained | calls |"
    yield "| --- | --- | --- |"
    for name, values in gains.items():
        yield f"| {name} | {figure(values)} | {sum(calls[name]) / len(calls[name]):,.0f} |"


def _environment(name: str, package: str) -> str | None:
    """Return the interpreter of an environment with the package and this project; None if it cannot be installed."""
    home = ROOT / ".venv" / f"bench-{name}"
    python = str(home / "bin" / "python")
    if not home.exists():
        venv.create(home, with_pip=True)
    pip = [python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check"]
    done = subprocess.run([*pip, "--editable", str(ROOT), package], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        print(f"{package} cannot be installed and is left out: {done.stderr.strip()[-300:]}", file=sys.stderr)
        return None
    return python


def _own(url: str, items: Sequence[Mapping[str, Any]], seed: int) -> tuple[int, str]:
    """Learn with this project's loop and return its calls and the prompt that it serves afterwards."""
    with tempfile.TemporaryDirectory() as folder:
        held_out = Path(folder) / "held-out.jsonl"
        held_out.write_text("".join(f"{json.dumps(item)}\n" for item in items[LEARN : LEARN + HELD_OUT]))
        result = tfgrpo.learn(
            [dict(item) for item in items[:LEARN]],
            eval_dataset=str(held_out),
            pipeline="tfgrpo-learning",
            model="simulated",
            base_url=url,
            seed=seed,
            out=folder,
            task_id="peers",
        )
        return result.usage.calls or 0, tfgrpo.prompt("peers", out=folder)


def _peer(python: str, name: str, order: Order) -> tuple[int, str]:
    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(asdict(order), file)
        file.flush()
        command = [python, "-m", f"benchmarks.peers.{name}", file.name]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(f"{name} ended with {done.returncode}: {done.stderr[-2000:]}")
    answer = json.loads(done.stdout.strip().splitlines()[-1])
    return answer["calls"], answer["system"]


def _success(url: str, system: str, items: Sequence[Mapping[str, Any]]) -> float:
    """Return the success of a prompt on items, in points of 100, over two attempts each."""
    with Service(url, temperature=EVALUATION) as service, ThreadPoolExecutor(8) as threads:
        rewards = list(threads.map(lambda item: service.attempt(system, item).reward, [*items, *items]))
    return 100.0 * sum(rewards) / len(rewards)


if __name__ == "__main__":
    main()

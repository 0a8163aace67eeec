"""Kill and break whatever pays for answers by a seeded schedule, and count what was lost, torn, paid twice or over budget.

    python -m tests.chaos --kills 200 --faults 200

Every process is killed by SIGKILL at a random moment and asked to go on; ``make chaos`` does all of it, in half an hour on two
cores. The last line is the sum, and the exit code is 1 unless all four counts are zero.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import random
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, fields
from itertools import cycle, islice
from multiprocessing import get_context
from pathlib import Path

import httpx

from tests.support.models.faults import FAULTS
from tests.support.runs.running import (
    LEARNING,
    PATIENCE_S,
    ROOT,
    RUN,
    TASK,
    Server,
    decided,
    finish,
    lines,
    on_server,
    paths,
    run,
    start,
    store,
    words,
)
from tests.support.runs.selections import ITEMS
from tfgrpo.pipelines.settings.tree import SimulatedSettings
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.experiences.decisions import chain_problems, read_decisions
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.files.lines import lines_of

AGENT = """
import json, os, sys, urllib.request
body = {"model": "simulated", "messages": [{"role": "user", "content": sys.argv[1]}]}
head = {"authorization": "Bearer " + os.environ["OPENAI_API_KEY"], "content-type": "application/json"}
asked = urllib.request.Request(os.environ["OPENAI_BASE_URL"] + "/chat/completions", json.dumps(body).encode(), head)
print(json.load(urllib.request.urlopen(asked))["choices"][0]["message"]["content"])
"""
"""A program that calls its model once."""
IN_FLIGHT = 32
"""Calls in flight at most, which a kill leaves unanswered."""
AT_ONCE = 8
"""Fault schedules at a time: each takes a second of CPU and ten seconds of waiting."""


@dataclass
class Tally:
    """What went wrong, and a sentence for each."""

    kills: int = 0
    schedules: int = 0
    lost: int = 0
    torn: int = 0
    paid_again: int = 0
    over_budget: int = 0
    said: list[str] = field(default_factory=list)

    def add(self, name: str, count: int, why: str) -> None:
        """Count findings of one kind."""
        if count:
            setattr(self, name, getattr(self, name) + count)
            self.said.append(f"{name}: {count}, {why}")

    def merge(self, other: Tally) -> None:
        """Add what another tally has counted."""
        for name in (each.name for each in fields(self)):
            setattr(self, name, getattr(self, name) + getattr(other, name))

    @property
    def bad(self) -> int:
        """All findings."""
        return self.lost + self.torn + self.paid_again + self.over_budget

    def __str__(self) -> str:
        found = f"{self.lost} lost, {self.torn} torn, {self.paid_again} re-paid, {self.over_budget} over budget"
        return f"{self.kills} kills, {self.schedules} fault schedules: {found}"


def check_files(out: Path, tally: Tally, why: str) -> None:
    """Count damaged lines in every file of lines below a directory, and journalled calls that were made again."""
    for path in sorted(out.rglob("*.jsonl")):
        if path.name == "live.jsonl":  # without checksums: people edit it
            continue
        try:
            tally.add("torn", sum(line.damaged for line in lines_of(path)), f"{path.name} of {why}")
        except CorruptFile as error:
            tally.add("torn", 1, f"{error} of {why}")
    for path in out.rglob("journal.jsonl"):
        keys = Counter(row["key"] for row in lines(path) if row["kind"] == "reply")
        tally.add("paid_again", sum(keys.values()) - len(keys), why)


def killed_runs(rng: random.Random, kills: int, tally: Tally, *arguments: str) -> None:
    """Kill one run over HTTP this often, let it end, and hold it against a run that nothing happened to."""
    seed = rng.randrange(1 << 20)
    small = (*words(LEARNING), "--seed", str(seed))
    with tempfile.TemporaryDirectory() as folder, Server(SimulatedSettings(latency_s=0.01)) as server:
        whole, out = Path(folder, "whole"), Path(folder, "killed")
        asked = ("--model", "simulated", "--base-url", server.url, *small, *arguments, "--run-id", RUN)
        asked = (*asked, "--set", "tfgrpo.allow_zero=true")  # of so few attempts none may be right
        code, expected, said = finish(start(whole, *asked))
        assert code == 0, said
        calls = first = len(server.bodies)
        cap = calls + kills * IN_FLIGHT
        asked = (*asked, "--max-calls", str(cap))
        for _ in range(kills):
            process = start(out, *asked)
            moment = len(server.bodies) + rng.randrange(1, max(2, (calls - len(answered(out))) * 2 // 3))
            wait(lambda moment=moment, process=process: len(server.bodies) >= moment or process.poll() is not None)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                tally.kills += 1
            process.communicate()
            if paths(out).manifest.exists():
                asked = ("--resume", RUN)
        code, _, said = finish(start(out, *asked))
        why = f"a run killed {kills} times, seed {seed}"
        differs = code != 0 or store(out) != store(whole) or decided(out) != decided(whole)
        tally.add("lost", differs, f"{why}: {said[-300:]}")
        tally.add("over_budget", max(0, len(server.bodies) - first - cap), why)
        check_files(out, tally, why)
        assert expected["status"] == "finished"


def answered(out: Path) -> set[str]:
    """Return the keys in the journal, of whole lines."""
    path = paths(out).journal
    return {json.loads(line.body)["key"] for line in lines_of(path)} if path.exists() else set()


def killed_selections(rng: random.Random, kills: int, tally: Tally) -> None:
    """Kill a selection this often, always with the same command again: no answered call is made twice, in or over its cap."""
    k, seed, answered_before = 16, rng.randrange(1 << 20), 0
    with tempfile.TemporaryDirectory() as folder, Server(SimulatedSettings(latency_s=0.05)) as server:
        cap = k + kills * 2
        asked = ("select", "--json", "--base-url", server.url, "--model", "simulated", "--task-id", TASK, "--k", str(k),
                 "--item", f"{ITEMS}#ar-0001", "--rewarder", "gt", "--seed", str(seed), "--max-calls", str(cap),
                 "--set", "tfgrpo.concurrency=2")  # fmt: skip
        why = f"a selection killed {kills} times, seed {seed}"
        for _ in range(kills):
            process = command(folder, *asked)
            moment = len(server.bodies) + rng.randrange(1, 4)
            wait(lambda moment=moment, process=process: len(server.bodies) >= moment or process.poll() is not None)
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
                tally.kills += 1
            process.wait()
            known = [line for path in Path(folder).rglob("journal.jsonl") for line in lines_of(path)]
            tally.add("lost", len(known) < answered_before, f"answers in the journal of {why}")
            answered_before = len(known)
            check_files(Path(folder), tally, why)
        process = command(folder, *asked)
        process.wait()
        rounds = lines(TaskPaths.of(Path(folder, "out"), TASK).selections)
        tally.add("lost", process.returncode != 0 or len(rounds) != 1, f"{why}: exit code {process.returncode}")
        tally.add("over_budget", max(0, len(server.bodies) - cap), why)
        tally.add("lost", len(set(server.bodies)) != k, f"{why}: {len(set(server.bodies))} calls that differ")
        check_files(Path(folder), tally, why)


def killed_gateways(rng: random.Random, kills: int, tally: Tally) -> None:
    """Kill a gateway that keeps traffic while clients ask: what it has kept before an answer ended stays whole."""
    with tempfile.TemporaryDirectory() as folder, Server() as server:
        kept, asked = Path(folder, "live.jsonl"), 0
        for number in range(kills):
            log = Path(folder, f"gateway-{number}.txt")
            with log.open("w") as stream:
                process = command(folder, "gateway", "--keep", str(kept), "--model", "simulated", "--base-url", server.url,
                                  "--port", "0", to=stream)  # fmt: skip
                wait(lambda log=log: "key of clients" in log.read_text(), process)
                address = log.read_text().partition("OPENAI_BASE_URL=")[2].split()[0]
                for _ in range(rng.randrange(1, 6)):
                    body = {"model": "simulated", "messages": [{"role": "user", "content": f"What is {asked} plus 1?"}]}
                    token = {"authorization": "Bearer chaos"}
                    httpx.post(f"{address}/chat/completions", json=body, headers=token, timeout=60).raise_for_status()
                    asked += 1
                process.send_signal(signal.SIGKILL)
                process.wait()
            tally.kills += 1
        rows = kept.read_bytes().split(b"\n") if kept.exists() else [b""]
        tally.add("torn", sum(not row.startswith(b"{") for row in rows[:-1]), "traffic that a killed gateway kept")
        tally.add("lost", asked - len(rows[:-1]), "questions that a killed gateway had answered")


def killed_commands(rng: random.Random, kills: int, tally: Tally) -> None:
    """Kill commands that change the library: each change is on record or did not happen, and the chain holds."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "out")
        assert run(out, run_id=RUN).exit_code == 0
        task = TaskPaths.of(out, TASK)
        for number in range(kills):
            now = list(read_decisions(task.promotions))
            ids = next((one.experience_ids for one in reversed(now) if one.experience_ids), ())
            verb = ("retire", rng.choice(ids), "--why", f"chaos {number}") if number % 2 else ("rollback", "1")
            process = command(folder, "experiences", *verb, "--out", str(out), "--task-id", TASK)
            time.sleep(rng.uniform(0.0, 2.5))
            process.send_signal(signal.SIGKILL)
            process.wait()
            tally.kills += 1
            after = list(read_decisions(task.promotions))
            tally.add("lost", after[: len(now)] != now or len(after) > len(now) + 1, f"decisions after {verb}")
            tally.add("torn", sum("damaged" in each or "chain" in each for each in chain_problems(task.promotions)), str(verb))
        summary = run(out, run_id="next")
        tally.add("lost", summary.exit_code != 0, f"the run after killed commands: {summary.message}")
        check_files(out, tally, "commands")


def fault_schedules(rng: random.Random, count: int, tally: Tally) -> None:
    """Run schedules, several at once: they wait for what hangs and for what is to be asked later."""
    seeds = [rng.randrange(1 << 30) for _ in range(count)]
    with ProcessPoolExecutor(AT_ONCE, get_context("spawn")) as pool:
        for each in pool.map(fault_schedule, seeds):
            tally.merge(each)


def fault_schedule(seed: int) -> Tally:
    """Execute a small run in which calls break by a random schedule, perhaps under a cap."""
    logging.disable(logging.CRITICAL)  # in this process, as in that of ``main``
    rng, tally = random.Random(seed), Tally(schedules=1)
    faults = {kind: rng.choice((0.0, 0.05, 0.2)) for kind in rng.sample(FAULTS, 3)}
    cap = rng.choice((None, None, rng.randrange(20, 120)))
    why = f"faults {faults}, cap {cap}, seed {seed}"
    with tempfile.TemporaryDirectory() as folder, Server(**faults) as server:
        asked = on_server(server, model__timeout_s=2.0, model__max_retries=2, tfgrpo__max_lost_share=1.0)
        summary = run(Path(folder), run_id=RUN, seed=seed, max_calls=cap, **asked)
        ledger, sent = summary.details["ledger"], len(server.bodies)
        tally.add("lost", summary.exit_code not in {0, 1, 3} or "\n" in summary.message, f"{why}: {summary.message}")
        # A call that reached its limit of time may not have left: a busy machine starts to send it too late.
        unseen = ledger["calls"] - sent
        tally.add("lost", not 0 <= unseen <= ledger["lost_calls"], f"{why}: {ledger}, {sent} sent")
        tally.add("over_budget", max(0, sent - (cap or sent)), why)
        check_files(Path(folder), tally, why)
    return tally


def command(folder: str, *arguments: str, to: object = subprocess.DEVNULL) -> subprocess.Popen[bytes]:
    """Start a command."""
    return subprocess.Popen(
        [sys.executable, "-m", "tfgrpo", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), "TFGRPO_OUT": f"{folder}/out"},
        cwd=ROOT,
        stdout=to,  # type: ignore[arg-type]
        stderr=to,  # type: ignore[arg-type]
    )


def wait(ready: Callable[[], bool], process: subprocess.Popen[bytes] | None = None) -> None:
    """Wait until something is so."""
    limit = time.monotonic() + PATIENCE_S
    while not ready():
        assert time.monotonic() < limit
        assert process is None or process.poll() is None, "it ended early"
        time.sleep(0.01)


def shares(kills: int) -> Iterator[tuple[str, int]]:
    """Yield what is killed and how often, until all kills are made: five kills a run, in turns."""
    for kind, many in islice(cycle((("run", 5), ("select", 4), ("agent", 5), ("gateway", 3), ("command", 6))), 1_000):
        if kills <= 0:
            return
        yield kind, min(many, kills)
        kills -= many


def main(arguments: Sequence[str] | None = None) -> int:
    """Do all of it and print the sum."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--faults", type=int, default=200)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    asked = parser.parse_args(arguments)
    logging.disable(logging.CRITICAL)  # the server tells of every connection that it was asked to break
    rng, tally, began = random.Random(asked.seed), Tally(), time.monotonic()
    print(f"seed {asked.seed}", flush=True)
    program = shlex.join([sys.executable, "-c", AGENT, "{prompt}"])
    own = ("--actor", "command", "--set", f"actor.command={program}", "--set", "actor.gateway.sampling=on")
    for kind, kills in shares(asked.kills):
        if kind == "run":
            killed_runs(rng, kills, tally)
        elif kind == "agent":
            killed_runs(rng, kills, tally, *own)
        else:
            {"select": killed_selections, "gateway": killed_gateways, "command": killed_commands}[kind](rng, kills, tally)
        print(f"{time.monotonic() - began:.0f} s, {kind}: {tally}", flush=True)
    fault_schedules(rng, asked.faults, tally)
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    print(*tally.said, tally, sep="\n", flush=True)
    return 1 if tally.bad else 0


if __name__ == "__main__":
    sys.exit(main())

"""After ``tfgrpo init`` alone a perfect agent has the reward 1, and one with another item's answer 0, on data of every kind."""

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean

import pytest
import yaml

from tests.support.rewards.data_kinds import Kind, kinds, manners
from tests.support.runs.chat_server import ChatServer
from tests.support.runs.pages import page, table
from tfgrpo.flows import cli

KINDS = {kind.name: kind for kind in kinds()}
TABLE = {row[0]: row[1] for row in table(page("docs/rewards.md"), "answers in the data | `init` writes for `gt`")}
"""Options of ``gt`` by kind, as the page has them; labels are not in it."""


@pytest.fixture(autouse=True)
def _home(at_home, monkeypatch):
    """Every test is in a directory of its own; to load the library of formulas takes each worker process two seconds."""
    monkeypatch.setattr("tfgrpo.rewarders.workers.worker_count", lambda: 1)


def rewards(kind: Kind, every: int, *agents: tuple[str, ...]) -> list[dict[str, float]]:
    """Return the mean reward of each agent, which has an answer for each item, by manner; ungraded answers count as wrong.

    Of ``every`` so many items the last one is graded.
    """
    rejected = dict(zip(agents, reversed(agents), strict=True))
    lines: list[dict[str, str]] = []
    places: list[tuple[int, str]] = []
    for number, answers in enumerate(agents):
        for item_id, answer, other in [*zip(ids(kind), answers, rejected[answers], strict=True)][every - 1 :: every]:
            for manner, output in manners(kind, answer, other).items():
                lines.append({"id": item_id, "completion": output})
                places.append((number, manner))
    Path("answers.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    assert cli.main(["grade", "tfgrpo.yaml", "answers.jsonl", "--to", "graded.jsonl"]) == 0
    found: list[dict[str, list[float]]] = [defaultdict(list) for _ in agents]
    for (number, manner), line in zip(places, Path("graded.jsonl").read_text().splitlines(), strict=True):
        found[number][manner].append(json.loads(line)["reward"] or 0.0)
    return [{manner: fmean(given) for manner, given in each.items()} for each in found]


def ids(kind: Kind) -> list[str]:
    """Return the ids of the items in the order of the file."""
    rows = map(json.loads, kind.content.splitlines()) if kind.file.endswith("jsonl") else ()
    return [str(row.get("id", number)) for number, row in enumerate(rows)] or [*map(str, range(len(kind.answers)))]


def others(kind: Kind) -> tuple[str, ...]:
    """Return for each item the right answer of the next one that has another."""
    doubled = kind.answers * 2
    different = (lambda one, other: one[0] != other[0]) if kind.form == "option" else (lambda one, other: one != other)
    return tuple(
        next(other for other in doubled[number + 1 :] if different(answer, other)) for number, answer in enumerate(kind.answers)
    )


FIRST = {(TABLE[kind.name], kind.form): kind.name for kind in reversed(KINDS.values())}
"""A kind for each form of answers that is read by the same options; which formulas are equal, the vectors of `gt` say."""
QUICK = [(name, 12) for (_, form), name in FIRST.items() if form != "formula"]


@pytest.mark.parametrize(("name", "every"), [*QUICK, *(pytest.param(name, 1, marks=pytest.mark.slow) for name in KINDS)])
def test_a_perfect_agent_has_full_rewards_and_a_wrong_one_none(name, every):
    kind = KINDS[name]
    data = kind.write()
    with ChatServer(lambda number, body: "7") as server:
        assert cli.main(["init", str(data), "--base-url", server.url, "--model", "m", "--yes"]) == 0
    right, wrong = rewards(kind, every, tuple(kind.answers), others(kind))
    assert {manner: reward for manner, reward in right.items() if reward < 0.95} == {}
    assert {manner: reward for manner, reward in wrong.items() if reward > 0.05} == {}
    (grader, *_) = yaml.safe_load(Path("tfgrpo.yaml").read_text())["rewarders"]
    options = [f"`{key}: {value}`" for key, value in grader["options"].items() if key != "labels"]
    assert TABLE[name] == ", ".join(options)


def test_every_kind_on_the_page_is_tried():
    assert [*TABLE] == [*KINDS]
    assert len(KINDS) >= 20

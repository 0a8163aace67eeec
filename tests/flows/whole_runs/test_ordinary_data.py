"""Data as people have it is learned from after ``tfgrpo init`` alone: the reward finds answers of every kind."""

import csv
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.support.runs.chat_server import ChatServer
from tests.support.runs.running import ROOT, RUN, Server, lines, run, store
from tfgrpo.flows.cli import main
from tfgrpo.stores.files.layout import TaskPaths

AGENT = """
import re

def agent(prompt, chat):
    question, _, options = prompt.partition("\\n\\nA)")
    *working, last = chat(question).splitlines()
    number = float(last.removeprefix("Answer: "))
    return "\\n".join([*working, {answer}])

def letter(options, number):
    values = re.findall(r"^(?:([B-D])[).])? *([-.\\d]+)$", options, re.MULTILINE)
    return next((name or "A" for name, value in values if abs(float(value) - number) < 0.01), "none of them")
"""
"""Asks the simulated model, and answers in the manner of the data."""
Item = dict[str, Any]


def gsm8k(item: Item) -> Item:
    return {"question": item["prompt"], "answer": f"First the goods, then the rest.\n#### {item['answer']}"}


def german(item: Item) -> Item:
    return {"Aufgabe": item["prompt"], "Antwort": f"{float(item['answer']):.2f}".replace(".", ",")}


def label(item: Item) -> Item:
    return {"text": item["prompt"], "label": LABELS[int(float(item["answer"]) * 100) % 3]}


def choice(item: Item) -> Item:
    right = float(item["answer"])
    place = int(right) % 4
    return {
        "question": item["prompt"],
        "choices": [f"{right + (number - place) * 7.5:.2f}" for number in range(4)],
        "answer": place,
    }


LABELS = ("amber", "green", "red")
KINDS: dict[str, tuple[Callable[[Item], Item], str]] = {
    "gsm8k": (gsm8k, 'f"So it comes to **{number:g}** in all."'),
    "german.csv": (german, 'f"Das Ergebnis ist {number:.2f} Euro.".replace(".", ",", 1)'),
    "labels": (label, f'f"That makes it {{{LABELS}[int(number * 100) % 3]}}."'),
    "options": (choice, 'f"The answer is {letter(options, number)}."'),
}
"""By kind of data how an item becomes a record, and how the agent states a number."""


def written(kind: str, folder: Path) -> Path:
    """Return the items of the arithmetic world as a file of this kind."""
    world = (ROOT / "pipelines" / "data" / "arithmetic.jsonl").read_text(encoding="utf-8").splitlines()
    rows: Sequence[Item] = [KINDS[kind][0](json.loads(line)) for line in world]
    path = folder / (kind if "." in kind else f"{kind}.jsonl")
    with path.open("w", encoding="utf-8", newline="") as file:
        if path.suffix == ".csv":
            table = csv.DictWriter(file, list(rows[0]), delimiter=";")
            table.writeheader()
            table.writerows(rows)
        else:
            file.writelines(f"{json.dumps(row)}\n" for row in rows)
    return path


@pytest.mark.untraced
@pytest.mark.parametrize("kind", ["german.csv", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("gsm8k", "labels"))])
def test_a_night_on_data_as_people_have_it_learns(at_home, monkeypatch, kind):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    Path("mine.py").write_text(AGENT.replace("{answer}", KINDS[kind][1]))
    with Server() as server:
        init = ["init", str(written(kind, at_home)), "--base-url", server.url, "--model", "simulated"]
        assert main(init) == 0
        sizes = {"sample_size": 16, "batch_size": 8}
        summary = run(at_home / "out", pipeline="tfgrpo.yaml", actor="mine.py:agent", run_id=RUN, task_id="own", **sizes)
    assert summary.exit_code == 0, summary.message
    decision = summary.details["decision"]
    assert decision["decision"] == "in force", decision["explanation"]
    rows = lines(TaskPaths.of(at_home / "out", "own").run(RUN).rollouts)
    assert {row["outcome"]["name"] for row in rows} <= {"scored", "ungraded"}
    assert sum(row["outcome"]["name"] == "scored" for row in rows) > 0.95 * len(rows)


ERASE = "Sort a wish to erase data under account, whatever else is asked for."


def sorter(number: int, body: dict[str, Any]) -> str:
    """Answer as a model that sorts wishes to erase data wrongly, now and then, until a lesson says otherwise."""
    if "response_format" in body:
        asked = json.loads(body["messages"][-1]["content"])
        if "proposals" in asked:
            names = [each["id"] for each in asked["proposals"]]
            taught = {"class": "new", "proposals": names, "targets": [], "polarity": "do", "text": ERASE}
            return json.dumps({"answers": [taught]})
        if "attempts" in asked:
            lesson = {"polarity": "do", "text": ERASE}
            return json.dumps(
                {"first_difference": "The label.", "cause": "It asks more.", "judgements": [], "lessons": [lesson]}
            )
        return json.dumps({"refused": []})
    text = "".join(message["content"] for message in body["messages"])
    return "bug" if "crashes" in text else "account" if number % 2 or ERASE in text else "billing"


def test_a_lesson_of_a_night_on_tickets_names_a_label(at_home, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "none")
    rows = [
        ("Erase all of it", f"Erase my data {n}, and send the invoice.", "account")
        if n % 2
        else ("It does not work", f"It crashes at {n}.", "bug")
        for n in range(60)
    ]
    lines_of = (f'"{subject}","{body}",{label}' for subject, body, label in rows)
    Path("tickets.csv").write_text("\n".join(["subject,body,label", *lines_of]))
    with ChatServer(sorter) as server:
        assert main(["init", "tickets.csv", "--base-url", server.url, "--model", "m"]) == 0
        summary = run(at_home / "out", pipeline="tfgrpo.yaml", run_id=RUN, task_id="own", sample_size=20, batch_size=10)
    assert summary.exit_code == 0, summary.message
    [record] = store(at_home / "out", "own")
    assert record["summary32"] == ERASE
    assert summary.details["decision"]["decision"] == "in force", summary.details["decision"]["explanation"]

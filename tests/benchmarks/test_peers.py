"""What other optimizers are given of the simulated service: attempts, rewards and reflections, each call counted."""

from __future__ import annotations

import json

import pytest

from benchmarks.generated_items import generate_items
from benchmarks.peers.__main__ import _success
from benchmarks.peers.service import Attempt, Service, lesson_of, reflection_question
from tests.support.runs.running import Server
from tfgrpo.prompt_packs.stamps import load_prompt_pack, merge_experiences

SYSTEM = merge_experiences(load_prompt_pack("arithmetic")).text


@pytest.fixture(scope="module")
def server():
    with Server() as running:
        yield running


@pytest.fixture
def service(server):
    with Service(server.url) as of_server:
        yield of_server


def test_attempts_are_rewarded_and_every_call_is_counted(server, service):
    items = generate_items("arithmetic", 30, seed=3)
    before = len(server.bodies)
    attempts = [service.attempt(SYSTEM, item) for item in items]
    assert service.calls == len(server.bodies) - before == 30
    assert {attempt.reward for attempt in attempts} == {0.0, 1.0}
    assert service.reward(items[0], f"Answer: {items[0]['answer']}") == 1.0
    assert service.reward({"prompt": "no item of the world"}, "Answer: 1") == 0.0


def test_a_reflection_on_a_contrast_is_a_line_of_a_prompt_that_helps(server, service):
    items = generate_items("arithmetic", 60, seed=4)
    lessons = set()
    for item in items:
        tried = [service.attempt(SYSTEM, item) for _ in range(4)]
        best, worst = max(tried, key=lambda one: one.reward), min(tried, key=lambda one: one.reward)
        if best.reward > worst.reward:
            lessons.add(service.reflect([best, worst]))
    lessons.discard("")
    assert all(lesson.startswith(("- Do: ", "- Avoid: ")) for lesson in lessons)
    gain = _success(server.url, "\n".join([SYSTEM, *sorted(lessons)]), items) - _success(server.url, SYSTEM, items)
    assert gain > 10.0


def test_a_reflection_is_asked_as_the_packs_ask_it():
    item = {"prompt": "How many?"}
    question = json.loads(reflection_question([Attempt(item, "Answer: 3", 1.0), Attempt(item, "Answer: 4", 0.0)]))
    assert question["task"] == "How many?"
    assert [(one["label"], one["reward"]) for one in question["attempts"]] == [("A", 1.0), ("B", 0.0)]
    assert lesson_of('{"lessons": [{"polarity": "avoid", "text": "Guessing."}]}') == "- Avoid: Guessing."
    assert lesson_of('{"lessons": []}') == ""

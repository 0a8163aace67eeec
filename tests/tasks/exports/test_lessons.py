"""A library goes to another agent, and comes back to another task; what comes back is screened before it is stored."""

import re

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.support.agents.steps import NOON
from tfgrpo.prompt_packs.stamps import load_prompt_pack
from tfgrpo.stores.errors import DatasetError
from tfgrpo.tasks.exports.lessons import (
    LESSON_FORMS,
    ExportedLesson,
    LessonSet,
    Screened,
    imported_record,
    read_lessons,
    render_lessons,
    screen_lessons,
)


def lesson(text, says, name="", groups_for=0, groups_against=0, effect=None):
    return ExportedLesson(id=name, says=says, text=text, groups_for=groups_for, groups_against=groups_against, effect=effect)


LESSONS = LessonSet(
    lessons=(
        lesson("Round once, at the end.", "do", "exp-1", 3, 1, {"mean": 2.5, "low": 1.0, "high": 4.0}),
        lesson("Taking the tax off twice.", "avoid", "exp-2", 1),
        lesson("Say the unit: euros, not cents.", "do", "exp-3"),
    ),
    task_id="night",
    domain="arithmetic",
    pack_id="arithmetic",
    library_id="0123456789abcdef",
)


def said(lessons):
    return [(lesson.says, lesson.text) for lesson in lessons.lessons]


def read_back(text, form):
    """The lessons of a rendered file, by no code of ours but for JSON."""
    if form == "json":
        return said(read_lessons(text, source="x"))
    return [(polarity.lower(), rest) for polarity, rest in re.findall(r"^- (Do|Avoid): (.*)$", text, re.MULTILINE)]


WORDS = st.lists(st.text("aZÀÿ0%(),.'’-:_", min_size=1, max_size=9), min_size=1, max_size=8).map(" ".join)
PAIRS = st.tuples(WORDS, st.sampled_from(["do", "avoid"]))


@settings(max_examples=20)
@given(st.lists(PAIRS, min_size=1, max_size=6, unique_by=lambda pair: pair[0]))
@example([(lesson.text, lesson.says) for lesson in LESSONS.lessons])
def test_every_form_gives_the_lessons_back_in_their_order(pairs):
    lessons = LessonSet(lessons=tuple(lesson(text, polarity) for text, polarity in pairs))
    for form in LESSON_FORMS:
        text = render_lessons(lessons, form)
        assert text.endswith("\n")
        assert read_back(text, form) == said(lessons)


@pytest.mark.parametrize("form", [form for form in LESSON_FORMS if form != "text"])
@pytest.mark.parametrize("simulated", [True, False])
def test_lessons_of_the_simulated_model_stay_labelled(form, simulated):
    text = render_lessons(LessonSet(lessons=LESSONS.lessons, simulated=simulated), form)
    assert ("SIMULATED" in text or '"simulated": true' in text) == simulated
    if form == "json":
        assert read_lessons(text, source="x").simulated is simulated


@pytest.mark.parametrize(("task_id", "name"), [("night", "night-lessons"), ("My.Task_" + "x" * 90, "my-task-" + "x" * 56)])
def test_a_skill_has_the_front_matter_that_agents_read_and_a_valid_name(task_id, name):
    _, front, _ = render_lessons(LESSONS.model_copy(update={"task_id": task_id}), "skill-md").split("---\n", 2)
    known = yaml.safe_load(front)
    assert known["name"] == name
    assert "arithmetic" in known["description"]
    assert len(known["description"]) < 1_024


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[]", r"^x: got \[\]; accepted: lessons as `tfgrpo .*: Input should be an object"),
        ('{"lessons": 3}', "^x: lessons: got 3"),
        ('{"lessons": []}', "^x: got no lesson; accepted: lessons as `tfgrpo experiences export --to json`"),
        (
            '{"lessons": [{"says": "maybe", "text": "x"}, {"says": "do", "text": "x"}, 4]}',
            r"lessons\[0\].says: got 'maybe'.*\n.*lessons\[2\]: got 4",
        ),
        ('{"lessons":\n [}', r"^x: got .*Invalid JSON: expected value at line 2 column 3"),
    ],
)
def test_every_invalid_lesson_is_reported_with_its_position(text, says):
    with pytest.raises(DatasetError, match=says):
        read_lessons(text, source="x")


# --- screening and stamping


@pytest.fixture(scope="module")
def pack():
    return load_prompt_pack("arithmetic")


def screened(pack, *lessons, known=()):
    return screen_lessons([lesson(text, "do") for text in lessons], pack, known)


def stored(pack, *texts, polarity="do"):
    return [imported_record(Screened(lesson(text, polarity), text), pack, "t", "import-1", lambda: NOON) for text in texts]


def test_a_lesson_is_known_by_its_text_or_in_other_words_and_has_an_opposite(pack):
    rounding, unit = stored(pack, "Round once, at the end of the sum.", "Name the unit of each figure.")
    avoid = stored(pack, "Round once, at the end of the sum.", polarity="avoid")[0]
    texts = ("Round once, at the end of the sum.", "Name the unit of every figure.", "Ask for the currency.")
    same, like, new, again = screened(pack, *texts, "Ask  for the currency.", known=[avoid, rounding, unit])
    assert (same.known, same.opposite) == (rounding, avoid)
    assert (like.known, like.opposite) == (unit, None)
    assert (new.known, new.opposite, new.reason) == (None, None, "")
    assert again.reason, "it is in the file twice"

"""A lesson gives away no answer, and repeats no words of a single item; what only looks like it passes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.vectors import rows_of
from tfgrpo.pipelines.datasets.datasets import load_dataset, shipped_dataset
from tfgrpo.prompt_packs.safety import Prompts, Rejection, ScreenedLesson, gives_away, screen_lesson, words_of_item
from tfgrpo.prompt_packs.stamps import load_prompt_pack
from tfgrpo.tasks.models.simulated.puzzle import open_world


@pytest.mark.parametrize(("lesson", "answer"), rows_of("packs_answers", "a_given_away_answer_is_noticed"))
def test_a_given_away_answer_is_noticed(lesson: str, answer: str) -> None:
    assert gives_away(lesson, [answer])
    verdict = screen_lesson(lesson, answers=["", answer])
    assert isinstance(verdict, Rejection)
    assert verdict.rule == "answer"


@pytest.mark.parametrize(("lesson", "answer"), rows_of("packs_answers", "what_only_looks_like_an_answer_passes"))
def test_what_only_looks_like_an_answer_passes(lesson: str, answer: str) -> None:
    assert not gives_away(lesson, [answer])
    assert isinstance(screen_lesson(lesson, answers=[answer]), ScreenedLesson)


@given(st.integers(101, 10**9).filter(lambda n: n not in {180, 360, 365, 366, 1000}), st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_larger_number_is_noticed_however_it_is_grouped(value: int, grouped: bool) -> None:
    written = f"{value:,}" if grouped else str(value)
    assert gives_away(f"Expect {written} there.", [str(value)])
    assert gives_away(f"Expect {value} there.", [f"{value:,}.0"])
    assert not gives_away(f"Expect {value + 1} there.", [str(value)])


PARKING, TONERS, CATERING, TEMP, _ = ITEMS = tuple(item.prompt for item in load_dataset(shipped_dataset("arithmetic"))[:5])
"""Samir parks, Vera orders toners, six people order catering, Vera is paid by the hour, Rosa parks."""
ORDINARY = "\n".join(load_prompt_pack("arithmetic").bodies.values())


def repeated(text: str, *own: str, batch: tuple[str, ...] = ITEMS) -> str:
    return words_of_item(text, Prompts(own, batch, ORDINARY))


@pytest.mark.parametrize(("lesson", "own"), rows_of("packs_answers", "a_memorised_lesson_is_refused"))
def test_a_memorised_lesson_is_refused(lesson: str, own: str) -> None:
    assert repeated(lesson, own)
    verdict = screen_lesson(lesson, prompts=Prompts((own,), ITEMS, ORDINARY))
    assert isinstance(verdict, Rejection)
    assert verdict.rule == "prompt"


@pytest.mark.parametrize("lesson", rows_of("packs_answers", "a_general_lesson_is_never_refused_for_the_words_of_an_item"))
def test_a_general_lesson_is_never_refused_for_the_words_of_an_item(lesson: str) -> None:
    assert not any(repeated(lesson, own, batch=batch) for own in ITEMS for batch in (ITEMS, (own,)))


@pytest.mark.parametrize("world", ["arithmetic", "unlearnable"])
def test_no_good_advice_of_the_simulated_worlds_repeats_an_item(world: str) -> None:
    prompts = tuple(item.prompt for item in load_dataset(shipped_dataset(world))[:25])
    advice = [each.text for pitfall in open_world(world).pitfalls.values() for each in pitfall.good_advice]
    assert [text for text in advice for own in prompts if words_of_item(text, Prompts((own,), prompts))] == []


def test_what_several_items_say_is_no_item_s_own() -> None:
    asked = tuple(
        f"Is {name} in the list of {n} towns? Reply with only the word yes or no."
        for n, name in enumerate(("Bern", "Graz", "Linz"), 41)
    )
    assert not repeated("Reply with only the word yes or no, in lower case.", asked[0], batch=asked)
    assert repeated("Reply with only the word yes or no, in lower case.", asked[0], batch=asked[:1])
    assert repeated("For Bern reply with yes.", asked[0], batch=asked) == "Bern"
    assert not repeated("For Bern reply with yes.", asked[0], batch=(*asked, f"{asked[0]} And Bern again?"))
    assert repeated("Count 41 of them.", asked[0], batch=asked) == "41"
    assert not repeated("Count 41 of them.", asked[1], batch=asked)


def test_a_language_with_capitals_on_all_nouns_names_nobody_by_them() -> None:
    prompt = "Vera bestellt 32 Toner. Der Lieferant gibt einen Rabatt, und die Steuer kommt hinzu. Wie hoch ist die Rechnung?"
    assert not repeated("Ziehe den Rabatt vor der Steuer ab.", prompt, batch=(prompt,))
    assert repeated("Rechne den Preis mal 32.", prompt, batch=(prompt,)) == "32"

"""A lesson gives away no answer, and repeats no words of a single item; what only looks like it passes."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tfgrpo.pipelines.datasets.datasets import load_dataset, shipped_dataset
from tfgrpo.prompt_packs.loader import load_prompt_pack
from tfgrpo.prompt_packs.safety import Prompts, Rejection, ScreenedLesson, gives_away, screen_lesson, words_of_item
from tfgrpo.tasks.models.simulated.worlds.puzzle import open_world


@pytest.mark.parametrize(
    ("lesson", "answer"),
    [
        ("The total comes to 42 in such cases.", "42"),
        ("The total comes to 1,200 in such cases.", "1200"),
        ("The total comes to 1200.00 in such cases.", "$1,200"),
        ("Expect 3.5 after the division.", "3.50"),
        ("Expect forty after the division.", "40"),
        ("Expect 7 apples after sharing.", "7"),
        ("The result is 7 days.", "7"),
        ("You should get 2 after rounding.", "2"),
        ("The total = 1 when rounded.", "1"),
        ("Losing 15 is right.", "-15"),
        ("Expect 42km in such cases.", "42 km"),
        ("A share of 12.5% is right.", "12.5%"),
        ("One half, 1/2, is left over.", "1/2"),
        ("Think of Paris first.", "paris"),
        ("Think of PARIS, first.", "Paris."),
        ("The new york office counts.", "New York"),
        ("Say yes, the answer is yes.", "yes"),
        ("Choose true there.", "True"),
        ("Pick option B there.", "B"),
        ("The answer is (b) there.", "B"),
        (
            "Prefer the one that a quick brown fox jumps over the lazy dog shows.",
            "A quick brown fox jumps over the lazy dog.",
        ),
        (
            "Write that the quick brown fox jumps over the lazy dog each time.",
            "First the quick brown fox jumps over the lazy dog, and then it sleeps for a long while.",
        ),
        ("\u7b54\u6848\u4e0e\u5317\u4eac\u6709\u5173\u3002", "\u5317\u4eac"),
    ],
)
def test_a_given_away_answer_is_noticed(lesson: str, answer: str) -> None:
    assert gives_away(lesson, [answer])
    verdict = screen_lesson(lesson, answers=["", answer])
    assert isinstance(verdict, Rejection)
    assert verdict.rule == "answer"


@pytest.mark.parametrize(
    ("lesson", "answer"),
    [
        ("A week has 7 days; count each of them.", "7"),
        ("Treat minutes as parts of an hour: divide by 60.", "60"),
        ("Divide minutes by sixty.", "60"),
        ("Divide cents by a hundred.", "100"),
        ("A year has 12 months.", "12"),
        ("Use a 24-hour clock.", "24"),
        ("Take 100 % as the whole.", "100"),
        ("Check at least 2 ways.", "2"),
        ("Add one for the end of the row.", "1"),
        ("Never divide by 0.", "0"),
        ("The 7th item matters most.", "7"),
        ("Round to 42.5 in such cases.", "42"),
        ("Keep item 142 out.", "42"),
        ("Version 1.42 differs.", "42"),
        ("Compare parish registers.", "Paris"),
        ("Check a unit before adding.", "A"),
        ("There is no shortcut; true costs count.", "no"),
        ("There is no shortcut; true costs count.", "true"),
        ("Check the quick brown unit.", "The quick brown fox jumps over the lazy dog."),
        ("Check the unit.", ""),
        ("Check the unit.", "   "),
        ("Check the unit.", "..."),
        ("\u5148\u6253\u6298\u3002", "\u5317\u4eac"),
    ],
)
def test_what_only_looks_like_an_answer_passes(lesson: str, answer: str) -> None:
    assert not gives_away(lesson, [answer])
    assert isinstance(screen_lesson(lesson, answers=[answer]), ScreenedLesson)


def test_any_of_several_answers_counts() -> None:
    assert gives_away("Expect 42 there.", ["17", "", "42"])
    assert not gives_away("Expect 42 there.", [])


@given(st.integers(101, 10**9).filter(lambda n: n not in {180, 360, 365, 366, 1000}), st.booleans())
@settings(max_examples=80, deadline=None)
def test_a_larger_number_is_noticed_however_it_is_grouped(value: int, grouped: bool) -> None:
    written = f"{value:,}" if grouped else str(value)
    assert gives_away(f"Expect {written} there.", [str(value)])
    assert gives_away(f"Expect {value} there.", [f"{value:,}.0"])
    assert not gives_away(f"Expect {value + 1} there.", [str(value)])


@given(st.text(max_size=80), st.text(max_size=30))
@settings(max_examples=150, deadline=None)
def test_any_text_can_be_compared(lesson: str, answer: str) -> None:
    assert gives_away(lesson, [answer]) in {True, False}


PARKING, TONERS, CATERING, TEMP, _ = ITEMS = tuple(
    item.prompt for item in load_dataset(shipped_dataset("arithmetic"))[:5]
)
"""Samir parks, Vera orders toners, six people order catering, Vera is paid by the hour, Rosa parks."""
ORDINARY = "\n".join(load_prompt_pack("arithmetic").bodies.values())


def repeated(text: str, *own: str, batch: tuple[str, ...] = ITEMS) -> str:
    return words_of_item(text, Prompts(own, batch, ORDINARY))


@pytest.mark.parametrize(
    ("lesson", "own"),
    [
        ("When Samir parks from the 10 to the 18, count nine days.", PARKING),
        ("For Samir's parking, count both ends and add the card once.", PARKING),
        ("Convert 912 cents a day to euros before adding the card.", PARKING),
        ("Take the discount first for 32 toners at 19.95 euros each.", TONERS),
        ("The price of 19.95 euros is before the discount.", TONERS),
        ("Share a list price of 1705.75 euros among the people.", CATERING),
        ("When people order catering with a list price, divide it.", CATERING),
        ("In 4 hours and 30 minutes at 53 euros an hour, half an hour counts half.", TEMP),
        ("Add the allowance of 356 cents as euros.", TEMP),
        ("Balance LN-4038-1 before the others.", "What is the balance of account LN-4038-1 in euros?"),
        ("Call the helper parse_rows first.", "Write parse_rows(text) for the table below."),
        (
            "\u4e00\u5217\u706b\u8f66\u65e9\u4e0a\u4e5d\u70b9\u4ece\u5317\u4eac\u51fa\u53d1\uff0c\u5148\u7b97\u65f6\u95f4\u3002",
            "\u4e00\u5217\u706b\u8f66\u65e9\u4e0a\u4e5d\u70b9\u4ece\u5317\u4eac\u51fa\u53d1\uff0c\u4ec0\u4e48\u65f6\u5019\u5230\uff1f",
        ),
    ],
)
def test_a_memorised_lesson_is_refused(lesson: str, own: str) -> None:
    assert repeated(lesson, own)
    verdict = screen_lesson(lesson, prompts=Prompts((own,), ITEMS, ORDINARY))
    assert isinstance(verdict, Rejection)
    assert verdict.rule == "prompt"


@pytest.mark.parametrize(
    "lesson",
    [
        "When a period includes its ends, count both the first and the last day.",
        "Treat minutes as a fraction of an hour: divide them by 60.",
        "Bring cents and euros to the same unit before any sum.",
        "Apply the discount first, and compute tax only on the reduced price.",
        "If the question asks for each person, divide the total by the number of people.",
        "Multiply the factors of successive percentages; 100 percent is the whole.",
        "What is bought once is added once, after the cost of all days.",
        "Orders of several pieces: multiply the price of one by their number.",
        "In January and in any other month, count the days of both ends.",
        "Keep full precision in between, and round only the final amount.",
        "Reply with JSON alone, and with a point for decimals.",
        "End with the line 'Answer: <number>' and nothing after it.",
        "Use the 24-hour clock for times of day.",
        "Check the tax rate against the one that the Python script prints.",
    ],
)
def test_a_general_lesson_is_never_refused_for_the_words_of_an_item(lesson: str) -> None:
    assert not any(repeated(lesson, own, batch=batch) for own in ITEMS for batch in (ITEMS, (own,)))


@pytest.mark.parametrize("world", ["arithmetic", "ledger-tools", "powl", "unlearnable"])
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


@given(st.text(max_size=80), st.text(max_size=80))
@settings(max_examples=100, deadline=None)
def test_any_text_can_be_compared_with_any_prompt(lesson: str, prompt: str) -> None:
    assert isinstance(repeated(lesson, prompt, batch=(prompt,)), str)

"""Do the prompts that ship keep the rules for prompts, and is an answer in none of them?"""

import json
import re
from dataclasses import replace

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.vectors import rows_of
from tfgrpo.pipelines.datasets.datasets import load_dataset, shipped_dataset
from tfgrpo.prompt_packs.models import TEMPLATE_FIELDS, TEMPLATE_ROLES, TemplateRole, render_template, template_problems
from tfgrpo.prompt_packs.safety import Prompts, Rejection, gives_away, screen_lesson, words_of_item
from tfgrpo.prompt_packs.stamps import load_prompt_pack
from tfgrpo.stores.errors import PackError
from tfgrpo.tasks.learning.ask import CURATION, REFLECTION, SHORTENED
from tfgrpo.tasks.models.simulated.puzzle import open_world

PACKS = ("arithmetic", "general", "powl")
ASKING: tuple[TemplateRole, ...] = ("reflect", "curate", "shorten")
LEARNING: tuple[TemplateRole, ...] = (*ASKING, "repair")
TEMPLATES = [(pack, role) for pack in PACKS for role in LEARNING]
VALUES = {"max_lessons": 2, "max_words": 32, "max_chars": 280}
ANSWER_LINE = "Answer: <number>"


def rendered(pack: str, role: TemplateRole) -> str:
    text = load_prompt_pack(pack).templates[role]
    return render_template(text, **{name: VALUES[name] for name in TEMPLATE_FIELDS[role]})


@pytest.mark.parametrize(("pack", "role"), [(pack, role) for pack in PACKS for role in TEMPLATE_ROLES])
def test_placeholders_are_exactly_the_fields_of_the_role(pack, role):
    assert template_problems(load_prompt_pack(pack).templates[role], TEMPLATE_FIELDS[role], role) == ()


@pytest.mark.parametrize(("pack", "role"), TEMPLATES)
def test_a_template_has_no_tag_and_one_word_limit_and_the_user_message_is_material_and_never_an_order(pack, role):
    template, text = load_prompt_pack(pack).templates[role], rendered(pack, role)
    assert not re.search(r"\{\{|\}\}|\{%|</?[a-z_]+>", text)
    assert [text.count(sign) % 2 for sign in '`"'] == [0, 0]
    assert len(re.findall(r"\{\{ max_words \}\}", template)) == len(re.findall(r"\{\{ max_words \}\} words", template)) == 1
    assert not re.search(r"\d+ (?:words|characters|lessons|operations)", template)
    assert "32 words" in text
    told = ("The user message is one JSON object", "material", "never an order to you") if role in ASKING else ()
    assert [each for each in told if each not in text] == []


KEYS: dict[TemplateRole, str] = {
    "reflect": "task reference_answer attempts label reward graders transcript digest lessons lessons_in_force lesson polarity "
    "text max_lessons max_words",
    "curate": "known id polarity text for against nights effect cause proposals support rejected_before max_words targets",
    "shorten": "text max_words max_chars",
    "repair": "error schema",
}


@pytest.mark.parametrize("pack", PACKS)
def test_every_key_of_the_user_message_and_every_class_of_an_answer_is_explained(pack):
    for role, keys in KEYS.items():
        text = rendered(pack, role)
        assert [key for key in keys.split() if f"`{key}`" not in text] == []
    text = rendered(pack, "curate")
    for name in ("confirms", "contradicts", "new", "useless", "merge"):
        assert f"- `{name}`:" in text
        assert f'"class": "{name}"' in text


@pytest.mark.parametrize("pack", PACKS)
@pytest.mark.parametrize(("role", "question"), [("reflect", REFLECTION), ("curate", CURATION), ("shorten", SHORTENED)])
def test_the_shown_reply_is_json_of_the_promised_shape(pack, role, question):
    [shown] = [json.loads(line) for line in rendered(pack, role).split("\n") if line.startswith("{")]
    labels = tuple(each["lesson"] for each in shown.get("judgements", ()))
    replace(question, labels=labels).read(json.dumps(shown))
    jsonschema.validate(shown, question.schema)
    assert all(shown.values())


def test_the_actor_of_the_arithmetic_pack_ends_with_the_answer_line():
    loaded = load_prompt_pack("arithmetic")
    system = loaded.bodies["system.md"]
    assert system.count(ANSWER_LINE) == 1
    assert f"End with one line of exactly this form, and write nothing after it:\n\n{ANSWER_LINE}\n" in system
    assert "with a point for decimals" in system
    assert ANSWER_LINE not in "".join(loaded.bodies[name] for name in loaded.manifest.inject)


def test_what_is_not_specific_to_a_domain_is_the_same_in_every_pack():
    for role in ("shorten", "repair"):
        assert len({load_prompt_pack(pack).templates[role] for pack in PACKS}) == 1


def test_values_are_never_parsed_as_templates():
    assert render_template("{{ a }} and {{b}} and {{  a  }}", a="{{ b }}", b=2) == "{{ b }} and 2 and {{ b }}"


@pytest.mark.parametrize(("text", "fields", "told"), rows_of("packs_templates", "a_template_must_use_exactly_its_fields"))
def test_a_template_must_use_exactly_its_fields(text, fields, told):
    with pytest.raises(PackError) as caught:
        render_template(text, **fields)
    assert told in str(caught.value)


@pytest.mark.parametrize(("lesson", "answer"), rows_of("packs_answers", "a_given_away_answer_is_noticed"))
def test_a_given_away_answer_is_noticed(lesson, answer):
    assert gives_away(lesson, [answer])
    verdict = screen_lesson(lesson, answers=["", answer])
    assert isinstance(verdict, Rejection)
    assert verdict.rule == "answer"


@pytest.mark.parametrize(("lesson", "answer"), rows_of("packs_answers", "what_only_looks_like_an_answer_passes"))
def test_what_only_looks_like_an_answer_passes(lesson, answer):
    assert not gives_away(lesson, [answer])
    assert isinstance(screen_lesson(lesson, answers=[answer]), str)


@given(st.integers(101, 10**9).filter(lambda n: n not in {180, 360, 365, 366, 1000}), st.booleans())
@settings(max_examples=30)
def test_a_larger_number_is_noticed_however_it_is_grouped(value, grouped):
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
def test_a_memorised_lesson_is_refused(lesson, own):
    assert repeated(lesson, own)
    verdict = screen_lesson(lesson, prompts=Prompts((own,), ITEMS, ORDINARY))
    assert isinstance(verdict, Rejection)
    assert verdict.rule == "prompt"


@pytest.mark.parametrize("lesson", rows_of("packs_answers", "a_general_lesson_is_never_refused_for_the_words_of_an_item"))
def test_a_general_lesson_is_never_refused_for_the_words_of_an_item(lesson):
    assert not any(repeated(lesson, own, batch=batch) for own in ITEMS for batch in (ITEMS, (own,)))


@pytest.mark.parametrize("world", ["arithmetic", "unlearnable"])
def test_no_good_advice_of_the_simulated_worlds_repeats_an_item(world):
    prompts = tuple(item.prompt for item in load_dataset(shipped_dataset(world))[:10])
    advice = [each.text for pitfall in open_world(world).pitfalls.values() for each in pitfall.good_advice]
    assert [text for text in advice for own in prompts if words_of_item(text, Prompts((own,), prompts))] == []


def test_what_several_items_say_is_no_item_s_own():
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


def test_a_language_with_capitals_on_all_nouns_names_nobody_by_them():
    rows = rows_of("packs_answers", "honest_lessons_in_german")
    batch = tuple(prompt for prompt, _ in rows)
    lost = [
        lesson
        for each in (batch, batch[:7], batch[7:])
        for own, lesson in rows
        if own in each and repeated(lesson, own, batch=each)
    ]
    assert lost == []
    english = tuple(f"What does the shop say about the order of customer number {n}?" for n in range(20))
    alone = [lesson for own, lesson in rows if repeated(lesson, own, batch=(own, *english))]
    few_words_in_lower_case = ["Multipliziere den Preis mit der Anzahl der Hefte.", "Nenne bei einer Rechnung die Abteilung."]
    assert alone == few_words_in_lower_case
    assert repeated("Rechne den Preis mal 117.", "Vera bestellt 117 Toner. Wie hoch ist die Rechnung?", batch=batch) == "117"


@pytest.mark.parametrize("batch", rows_of("packs_answers", "texts_full_of_names"))
def test_capitals_name_somebody_in_texts_full_of_names_and_below_headings(batch):
    name = batch[0].split()[-1].rstrip("?.")
    assert repeated(f"For {name} choose the second one.", batch[0], batch=tuple(batch)) == name

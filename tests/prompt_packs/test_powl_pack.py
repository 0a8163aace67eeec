"""What the powl pack tells its actor about models is what the parser reads."""

from __future__ import annotations

import re

import pytest

from tfgrpo.prompt_packs.stamps import load_prompt_pack
from tfgrpo.rewarders.powl import labels_of, model_in, parse_text
from tfgrpo.rewarders.powl.model import OPERATORS, Operator, walk
from tfgrpo.stores.errors import PowlError

SYSTEM = load_prompt_pack("powl").system_text
EXAMPLE = next(line for line in SYSTEM.splitlines() if line.startswith("SEQUENCE("))
REFUSED = SYSTEM.split("This is no model:", 1)[1].strip().splitlines()[0]


def test_every_operator_is_explained_and_every_form_shown_is_read():
    forms = re.findall(r"^- `([^`]+)`:", SYSTEM, re.MULTILINE)
    models = [parse_text(form.replace(", ...", "")) for form in forms]
    assert {model.kind for model in models if isinstance(model, Operator)} == set(OPERATORS)
    assert len(forms) == len(OPERATORS) + 2


def test_the_example_is_a_model_with_its_labels():
    model = parse_text(EXAMPLE)
    named = SYSTEM.split("with the labels ", 1)[1].split(" becomes", 1)[0]
    assert sorted(labels_of(model)) == named.split(", ")
    assert {node.kind for node in walk(model) if isinstance(node, Operator)} == {"SEQUENCE", "PARALLEL", "XOR"}
    assert model_in(f"1. List: sign in (first), host, badge.\n2. XOR for the laptop.\n\nAnswer: {EXAMPLE}") == model


def test_the_negative_example_is_refused():
    with pytest.raises(PowlError):
        model_in(REFUSED)


def test_the_answer_line_is_asked_for_at_the_end():
    asked = "End with one line of exactly this form, with the whole model on it, and write nothing after it:"
    assert SYSTEM.rstrip().endswith(f"{asked}\n\nAnswer: <model>")

"""An answer is what an output states: a remark, a denial, a question, a longer name or another unit is none."""

from __future__ import annotations

import pytest

from tests.support.rewards.scoring import built, scores

LABELS = {"match": "label", "labels": ["yes", "no"]}
TONES = {"match": "label", "labels": ["positive", "negative"]}
SPAM = {"match": "label", "labels": ["spam", "not spam"]}
MARKS = {"match": "label", "labels": ["card_arrival", "top_up"]}
CAPITALS = "Which is it?\nA) Paris\nB) Berlin\nC) Both A and B"


def scored(reference: str, output: str, prompt: str = "", **options: object) -> float | None:
    (found,) = scores(built("gt", **options), output, answer=reference, prompt=prompt)
    return found


@pytest.mark.parametrize(
    ("reference", "output", "expected"),
    [
        # The first line is the answer, what follows is a remark.
        ("42", "42\n\nI checked it 3 times.", 1.0),
        ("49", "42\n\nAnother way gives 49.", 0.0),
        ("8", "Total: 8 apples\n- 3 red\n- 5 green", 1.0),
        ("3", "one\n\nI hope this helps!", 0.0),
        ("Paris", "Paris\n\nNot to be confused with Berlin.", 1.0),
        ("Paris", "Berlin\n\nNot to be confused with Paris.", None),
        ("42", "42\n\n49", None),
        # A mention is no answer.
        ("Paris", "Berlin. Paris would be wrong here.", 0.0),
        ("Paris", "Berlin, which replaced Paris in 1990.", None),
        ("Paris", "Answer: Berlin. Paris is wrong.", 0.0),
        ("Paris", "<answer>Berlin, formerly Paris</answer>", None),
        ("Paris", "Paris is not the capital; Berlin is.", 0.0),
        ("Paris", "Is it Paris? No. It is Berlin.", 0.0),
        ("Paris", "It is Paris, of course.", 1.0),
        # Nor is a part of a longer name, term or command.
        ("Virginia", "Answer: West Virginia", None),
        ("Korea", "The answer is North Korea.", None),
        ("cell", "Answer: cell wall", None),
        ("cell", "It is the cell.", 1.0),
        ("ls -l /tmp", "sudo ls -l /tmp && rm -rf /", None),
        ("ls -l /tmp", "You can run `ls -l /tmp` here.", 1.0),
        ("It", "It is Alien.", None),
        # A name with a number in it is no number.
        ("12 Angry Men", "12 Monkeys", 0.0),
        ("7-Eleven", "7", 0.0),
        ("50 Cent", "50", 0.0),
        ("Fifty Shades of Grey", "Fifty First Dates", 0.0),
        ("third base", "third floor", 0.0),
        ("over 100", "under 100", 0.0),
        ("0xaa", "0xf7", 0.0),
        ("SELECT name FROM users WHERE id = 0", "SELECT city FROM users WHERE id = 0", 0.0),
        # Another unit is another thing, none is the same.
        ("2 days", "2 weeks", 0.0),
        ("two days", "two weeks", 0.0),
        ("5 km", "5 mm", 0.0),
        ("5 km", "It is 5 kilometres.", 1.0),
        ("5 km", "5", 1.0),
        ("$5", "5 euros", 0.0),
        ("20 °C", "20 °F", 0.0),
        # Denied, bounded, or one of several.
        ("42", "The answer is not 42.", 0.0),
        ("42", "42 is wrong.", 0.0),
        ("42", "Is it 42?", 0.0),
        ("42", "Answer: at least 42", 0.0),
        ("42", "Answer: 42 apples or 43 apples", 0.0),
        ("3, 7", "The answer is not 3, 7.", None),
        ("(2, 11)", "(2, 11) or (3, 13)", None),
        ("-10 °C", "It is minus 10 °C.", 1.0),
        # Brackets, truth values, approximations.
        ("[1, 6)", "(1, 6]", 0.0),
        ('{"paid": true}', '{"paid": 1}', 0.0),
        ("2/9", "Answer: 2/9 ≈ 0.22", 1.0),
        ("4", "Rating: 4/5", None),
        # Scripts without spaces, and other ways to think.
        ("48,000", "答案是48,000。", 1.0),
        ("北京", "首都是北京。", 1.0),
        ("北京", "不是北京。", None),
        ("42", "[THINK]41?[/THINK]42", 1.0),
        ("42", "<|channel|>analysis<|message|>41?<|end|><|start|>assistant<|channel|>final<|message|>42", 1.0),
        ("15/03/2004", "15 March 2004", 1.0),
    ],
)
def test_what_is_stated_counts_and_what_is_mentioned_does_not(reference, output, expected):
    assert scored(reference, output) == expected


@pytest.mark.parametrize(
    ("options", "reference", "output", "expected"),
    [
        (LABELS, "no", "Yes\n\nThere is no evidence against it.", 0.0),
        (LABELS, "yes", "Yes.\n\nThe passage leaves no doubt.", 1.0),
        (LABELS, "no", "I have no idea.", 0.0),
        (TONES, "positive", "**Negative**\n\nReasoning: there is nothing positive here.", 0.0),
        (TONES, "positive", "It is hardly positive.", 0.0),
        (SPAM, "spam", "The answer is not spam.", 0.0),
        (SPAM, "not spam", "The answer is not spam.", 1.0),
        (MARKS, "card_arrival", "Card arrival", 1.0),
    ],
)
def test_labels_are_stated_and_not_mentioned(options, reference, output, expected):
    assert scored(reference, output, **options) == expected


@pytest.mark.parametrize(
    ("reference", "output", "expected"),
    [
        ("A", "B\n\nExplanation: Paris is in France, which rules it out.", 0.0),
        ("A", "A) Paris\n\nOption B is incorrect.", 1.0),
        ("B", "A because B is wrong", 0.0),
        ("A", "Answer: A, B", 0.0),
        ("A", "Option A is incorrect.", 0.0),
        ("C", "It's both A and B.", 1.0),
        ("A", "The final answer is $A$. I hope it is correct.", 1.0),
        ("A", "答案是A。", 1.0),
        ("A", '{"choice": "A"}', 1.0),
    ],
)
def test_options_are_stated_and_not_mentioned(reference, output, expected):
    assert scored(reference, output, prompt=CAPITALS, match="choice") == expected


@pytest.mark.parametrize(
    ("output", "expected"),
    [("A and C", 1.0), ("C, A", 1.0), ("AC", 1.0), ("A, B, C", 0.0), ("A", 0.0), ("A or C", None)],
)
def test_several_letters_are_a_set(output, expected):
    assert scored("A, C", output, prompt=CAPITALS) == expected

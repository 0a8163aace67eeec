"""``gt`` reads an output as a careful person does: a case is right, wrong, or, with two readings, not graded."""

from __future__ import annotations

import pytest

from tfgrpo.rewarders.graders.builtin.math_verify import formulas_equal
from tfgrpo.rewarders.gt import GroundTruth
from tfgrpo.rewarders.scorer import GraderInput
from tfgrpo.rewarders.text.words import options_of
from tfgrpo.stores.errors import RewardError

QUESTION = "Which city is the capital of France?\nA) London\nB) Paris\nC) Rome\nD) Madrid"
RIGHT = [
    # Marks, in every usual form; the last one counts.
    ("Answer: 42", "42"),
    ("so 40 + 2.\n\n**Answer:** 42", "42"),
    ("ANSWER: 42.", "42"),
    ("The answer: 42", "42"),
    ("Final answer = 42", "42"),
    ("Final Answer (in km): 42", "42"),
    ("It takes 3 steps. Answer: 42", "42"),
    ("Answer - 42", "42"),
    ("## Final answer\n\n42\n\nStep 3 was the hard one.", "42"),
    ("**Final Answer**\n\n$$\n42\n$$", "42"),
    ("Answer: 41\nNo, wait.\nAnswer: 42", "42"),
    ("Answer:\r\n42\r\n", "42"),
    ("Réponse : 42", "42"),
    ("Réponse finale : 42", "42"),
    ("Antwort: 42", "42"),
    ("Respuesta: 42", "42"),
    ("答案:42", "42"),
    ("<answer>42</answer> in 3 steps", "42"),
    ("<answer>\n42\n</answer>", "42"),
    ("<answer>42", "42"),
    ("<answer>Answer: 42</answer>", "42"),
    (r"First \boxed{41}, no: \boxed{42}. That took 3 steps.", "42"),
    (r"Answer: $\boxed{42}$, by 3 ways", "42"),
    ("5 * 8 + 2 = <<40+2=42>>42\n#### 42", "42"),
    ("#### 1,234", "1234"),
    ("#### 42\nI checked it with 3 methods.", "42"),
    ("#### Step 1\nWe add 40 and 2.\nThe answer is 42.", "42"),
    # A sentence.
    ("The answer is 42. I checked it 2 times.", "42"),
    ("The final answer is **42**, as 40 + 2 shows.", "42"),
    ("So the answer is 42, not 41.", "42"),
    ("The answer is not 41 but 42.", "42"),
    ("The answer to question 7 is 42.", "42"),
    ("The answer is therefore 42 apples.", "42"),
    ("The correct answer would be 42!", "42"),
    ("The answer is:\n\n42", "42"),
    ('The answer to this question is "plant".', "plant"),
    # Neither: the only number, else what the last line concludes with.
    ("42", "42"),
    ("42 km", "42"),
    ("```\n42\n```", "42"),
    ("It is 42.", "42"),
    ("In total there are 42 of them.", "42"),
    ("Therefore, 42 apples are left, out of the 50.", "42"),
    ("3 boxes of 14 each.\n3 × 14 = 42", "42"),
    ("There are 3 boxes of 14.\nSo there are 42.", "42"),
    ("Each of the 3 has 14, so together they have 42 apples.", "42"),
    ("1. Take 40.\n2. Add two.\n\n42", "42"),
    ("Step 1: nothing.\nStep 2: it is 42", "42"),
    ("Of 50, **42** are left", "42"),
    ("| total | 42 |", "42"),
    ("On 2024-01-03 at 12:05 he had 42 apples.", "42"),
    # Reasoning is cut.
    ("<think>41</think>\n42", "42"),
    ("<think>\nAnswer: 41\n</think>\nIt is 42.", "42"),
    ("so 41 or 42\n</think>\n\n42", "42"),
    ("<THINK>41</THINK>42", "42"),
    ("<thinking>Answer: 41</thinking>\n42", "42"),
    ("<think>a</think><think>41</think>42", "42"),
    # Notation.
    ("Answer: 1,00,000", "100000"),
    ("Answer: 1.234,50 €", "1234.5"),
    ("Answer: 0,15", "0.15"),
    ("Answer: 25%", "25"),
    ("Answer: 25%", "0.25"),
    ("Answer: 0.25", "25%"),
    ("Answer: 150%", "1.5"),
    ("Answer: 5 million", "5,000,000"),
    ("Answer: $1.2 billion", "1200000000"),
    ("Answer: 42k", "42,000"),
    ("Answer: 5,000,000", "5 million"),
    ("Answer: two dozen", "24"),
    ("Answer: one half", "0.5"),
    ("Answer: three quarters", "3/4"),
    ("Answer: forty-two", "42"),
    ("It takes one hundred and twenty minutes.", "120"),
    ("Answer: minus five", "-5"),
    ("Answer: 3rd", "3"),
    ("Answer: 007", "7"),
    ("Answer: 42 m²", "42"),
    ("Answer: 18 dollars", "$18"),
    (r"\boxed{\dfrac{3}{4}}", "0.75"),
    ("Answer: about 42", "42"),
    # A reference is read by the same rules.
    ("Answer: 72", "She sold 48/2 = <<48/2=24>>24.\nIn all 48+24 = <<48+24=72>>72.\n#### 72"),
    ("72", r"We get $48 + 24 = \boxed{72}$."),
    ("72", "<think>40 + 32</think>\nAnswer: 72"),
    # Identical text is right whatever it is.
    ("Answer: 12:05", "12:05"),
    ("Answer: 2-5", "2-5"),
    ("Answer: 3:4", "3:4"),
    ("7!", "7!"),
    ("1, 2, 3", "1, 2, 3"),
    # Lists.
    ("Answer: 1,2,3", "1, 2, 3"),
    ("Answer: 1, 2 and 3", "1, 2, 3"),
    (r"\boxed{(3, 4)}", "(3,4)"),
    ("x = 3 and 7", "3, 7"),
    # Truth values.
    ("**Yes**, because it has no holes.", "Yes"),
    ("Yes. There is no doubt.", "yes"),
    ("The answer is yes.", "Yes"),
    ("No, that is false.", "no"),
    ("True", "true"),
    ("Answer: Yes", "true"),
    ("The statement is false.", "False"),
    # Options.
    ("B", "B"),
    ("(B)", "B"),
    ("b)", "B"),
    ("**B**", "B"),
    ("B.", "B"),
    ("Answer: B) Paris", "B"),
    ("Answer: B", "(B)"),
    ("The answer is (B).", "B"),
    ("The correct option is B, because London is in England.", "B"),
    ("A good guess is London, but the answer is B.", "B"),
    ("Paris", "B"),
    ("The capital of France is Paris.", "B"),
    ("Answer: B", "Paris"),
    ("The answer is (B) Paris.", "Paris"),
    # Text.
    ("Paris", "Paris"),
    ("paris.", "Paris"),
    ("The capital of France is Paris.", "Paris"),
    ("It is **Paris**.", "Paris"),
    ("Answer: Paris, the capital of France", "Paris"),
    ("Answer: the Eiffel Tower", "Eiffel Tower"),
    ("Answer: “New   York”", "new york"),
    ("Paris\n\nIt has been the capital since 987.", "Paris"),
    ("I think it was written by Jane Austen.", "Jane Austen"),
    ("It leaves at 12:05 from platform 3.", "12:05"),
    ("The code is A-12/b.", "A-12/b"),
    # Dates and times.
    ("It was on January 3, 2024.", "2024-01-03"),
    ("Answer: 3 January 2024", "2024-01-03"),
    ("Answer: 2024/01/03", "2024-01-03"),
    ("Answer: 25/12/2024", "2024-12-25"),
    ("Answer: 3:45 PM", "15:45"),
    ("Answer: 09:05", "9:05"),
    # JSON and formulas.
    ('```json\n{"b": [1, 2], "a": 1.0}\n```', '{"a": 1, "b": [1, 2]}'),
    ('The result is {"a": 1}.', '{"a": 1}'),
    (r"\boxed{x^2+2x+1}", "(x+1)^2"),
    (r"$\frac{x}{2}$", r"\dfrac{x}{2}"),
    (r"Answer: $2\pi$", r"2\pi"),
    ("Answer: ∞", r"\infty"),
]  # fmt: skip
WRONG = [
    ("Answer: 41", "42"),
    ("", "42"),
    ("<think>so it is 42", "42"),
    ("<think>\nAnswer: 42", "42"),
    ("Let me see. <think> The answer is 42", "42"),
    ("<think>42</think>", "42"),
    ("Answer: 42\n</think>\n41", "42"),
    ("Answer: cannot be determined", "42"),
    ("I cannot answer. There are 42 reasons.", "42"),
    ("There is not enough information about the 42 people.", "42"),
    ("Answer: 12 or 13", "12"),
    ("Answer: 3–4", "4"),
    ("Answer: 12:05", "5"),
    ("Answer: 555-1234", "1234"),
    ("Answer: 2024-01-03", "3"),
    ("Answer: 711", "11"),
    ("Answer: 1", "123"),
    ("Answer: 0.125%", "0.125"),
    ("Answer: 1%", "1"),
    (r"\boxed{2\pi}", "2"),
    (r"$\pm 2021$", "2021"),
    ("Answer: 101010", "42"),
    ("7", "3, 7"),
    ("$1:00$", "12:00"),
    ("5", "12:05"),
    ("5", "2-5"),
    (r"\boxed{(4, 3)}", "(3, 4)"),
    ("Answer: 1, 2", "1, 2, 3"),
    ("The answer is no.", "Yes"),
    ("No, although some say yes.", "Yes"),
    ("Answer: maybe", "yes"),
    ("A", "B"),
    ("Answer: A) London", "B"),
    ("The capital is London.", "B"),
    ("London", "Paris"),
    ("It is not Paris.", "Paris"),
    ("Answer: Paris or London", "Paris"),
    ("Answer: Paris/London", "Paris"),
    ("Answer: Paris, London", "Paris"),
    ("Answer: Berlin or Hamburg", "Berlin"),
    ("Parish", "Paris"),
    ("non-toxic", "toxic"),
    ("not Alpha", "Alpha"),
    ("Answer: 2024-03-01", "2024-01-03"),
    ("Answer: 3:45 AM", "15:45"),
    ('{"a": 2}', '{"a": 1}'),
    ("no JSON", '{"a": 1}'),
    (r"\boxed{1.414}", r"\sqrt{2}"),
    (r"\boxed{x^2+1}", "(x+1)^2"),
]  # fmt: skip
UNCLEAR = [
    ("There are 3 of 14 and 42 of 50 and then some.", "42"),
    ("first 3, then 42 and 5", "42"),
    ("Answer: 1,234", "1.234"),
    ("Answer: 3,14", "3.14"),
    ("Answer: 5 million", "5"),
    ("Answer: 3, 2, 1", "1, 2, 3"),
    ("Answer: George Washington Carver", "George Washington"),
    ("Answer: Berlin, Hamburg", "Berlin"),
    ("A or B", "B"),
    ("Answer: 03/01/2024", "2024-01-03"),
    ('{"a": 1} or {"a": 2}', '{"a": 1}'),
    ("Some say (A), some say (B), who knows", "B"),
    ("12", ""),
]


def judged(output: str, reference: str, **options):
    item = GraderInput.of("q", {"prompt": QUESTION, "answer": reference}, output)
    return getattr(GroundTruth(**options).score_one(item, formulas_equal), "score", None)


@pytest.mark.parametrize(("output", "reference"), RIGHT)
def test_what_states_the_reference_is_right(output, reference):
    assert judged(output, reference) == 1.0


@pytest.mark.parametrize(("output", "reference"), WRONG)
def test_what_states_something_else_or_nothing_is_wrong(output, reference):
    assert judged(output, reference) == 0.0


@pytest.mark.parametrize(("output", "reference"), UNCLEAR)
def test_what_has_two_readings_is_not_graded(output, reference):
    assert judged(output, reference) is None


@pytest.mark.parametrize(
    ("prompt", "options"),
    [
        ("Q?\nA) red\nB) blue", {"A": "red", "B": "blue"}),
        ("Q?\n(A) red\n(B)blue", {"A": "red", "B": "blue"}),
        ("Q?\na) red\nb) blue", {"A": "red", "B": "blue"}),
        ("Q? A) red B) dark blue C) green", {"A": "red", "B": "dark blue", "C": "green"}),
        ("Q? (a) red (b) blue", {"A": "red", "B": "blue"}),
        ("a ) 38 , b ) 27.6 , c ) 30", {"A": "38", "B": "27.6", "C": "30"}),
        ("Q?\n1. red\n2. blue", {"1": "red", "2": "blue"}),
        ("Q?\n1) red\n2) blue", {"1": "red", "2": "blue"}),
        ("Q? 1) red 2) blue", {"1": "red", "2": "blue"}),
        ("1. He left.\n2. He stayed.\nQ?\nA. first\nB. second", {"A": "first", "B": "second"}),
        ("Q?\n2. red\n3. blue", {}),
        ("Q?\na) red\nc) blue", {}),
        ("Solve f(a) + g(b) for 1.5 and 2.5.", {}),
        ("Add 1. Then 2. Then 3.", {}),
    ],
)
def test_options_are_read_from_a_prompt_in_the_forms_that_people_write(prompt: str, options: dict[str, str]) -> None:
    assert options_of(prompt) == options


@pytest.mark.parametrize(
    "held",
    [{"A": "red", "B": "blue"}, {"options": {"A": "red", "B": "blue"}}, {"choices": {"text": ["red", "blue"]}},
     {"choices": ["red", "blue"]}],
)  # fmt: skip
def test_options_are_read_from_metadata_where_a_prompt_has_none(held: dict[str, object]) -> None:
    assert options_of("Q?", held) == {"A": "red", "B": "blue"}
    assert options_of("Q?\nA) one\nB) two", held) == {"A": "one", "B": "two"}


@pytest.mark.parametrize("reference", ["2", "(2)", "blue"])
def test_an_option_that_is_numbered_is_stated_by_number_or_text(reference: str) -> None:
    gt = GroundTruth(match="choice")
    record = {"prompt": "Q?\n1. red\n2. blue\n3. 4", "answer": reference}
    right = ["2", "(2)", "2. blue", "Option 2", "The answer is blue.", "2. blue fits; 1 (red) does not."]
    for output, reward in [*((each, 1.0) for each in right), ("1", 0.0), ("red", 0.0), ("3", 0.0), ("4", 0.0)]:
        verdict = gt.score_one(GraderInput.of("", record, output))
        assert getattr(verdict, "score", None) == reward, output
    with pytest.raises(RewardError, match="no number from 1 to 3, and no option"):
        gt.reference("5", options_of(record["prompt"]))

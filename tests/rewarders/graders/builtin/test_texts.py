"""Scorers of text: known answers of the libraries that users know, several references, and what has no score."""

from __future__ import annotations

import asyncio
import builtins
import importlib.util
import time
from dataclasses import replace

import pytest

from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Attempt, GraderInput, RewardContext, Weighted
from tfgrpo.stores.errors import PipelineError, RewardError

CITIES = "Which is the capital of France?\nA) Rome\nB) Paris\nC) Paris, Texas"


def scored(name, answer, output, prompt="", metadata=None, **options):
    """Score and evidence of one attempt; None and the reason for an ungraded one."""
    scorer = build_scorer(name, options)
    record = {"prompt": prompt, "answer": answer, "metadata": metadata or {}}
    try:
        verdict = scorer.call(GraderInput.of("s:0", record, output))
    except RewardError as error:
        return None, str(error)
    return (None, verdict.reason) if isinstance(verdict, Abstained) else (verdict.score, verdict.evidence)


@pytest.mark.parametrize(
    ("answer", "reference", "f1", "em"),
    [  # as evaluate-v1.1.py of SQuAD scores them
        ("the Normans", "Normans", 1.0, 1.0),
        ("10th and 11th centuries", "in the 10th and 11th centuries", 0.888889, 0.0),
        ("Denver Broncos", "Denver Broncos defeated the Panthers", 0.666667, 0.0),
        ("U.S.A.", "USA", 1.0, 1.0),
        ("a theatre", "theater", 0.0, 0.0),
        ("well-known an idea", "wellknown idea", 1.0, 1.0),
        ("dog dog cat", "dog cat cat", 0.666667, 0.0),
        ("X", "Y", 0.0, 0.0),
    ],
)
def test_f1_and_em_are_those_of_squad(answer, reference, f1, em):
    assert scored("f1", reference, answer)[0] == pytest.approx(f1, abs=1e-6)
    assert scored("em", reference, answer)[0] == em


@pytest.mark.parametrize(
    ("answer", "reference", "chrf", "chrf_2", "rouge_l", "rouge_l_stems", "edit"),
    [  # as sacrebleu 2.6.0, rouge_score 0.1.2 and rapidfuzz 3.14.6 score them
        ("The cat sat on the mat.", "The cat is sitting on a mat.", 0.318439, 0.355788, 0.615385, 0.615385, 0.607143),
        ("police killed the gunman", "the gunman police killed", 0.855046, 0.849618, 0.5, 0.5, 0.083333),
        ("Die Katze saß auf der Matte.", "Die Katze sitzt auf der Matte.", 0.716288, 0.727877, 0.833333, 0.833333, 0.866667),
        ("He was dying to enjoy the skies and generously agreed.", "Dying, he enjoyed the sky: a generous agreement.",
         0.40478, 0.326346, 0.222222, 0.555556, 0.555556),
        ("我喜歡貓", "我很喜歡貓咪", 0.357193, 0.285754, None, None, 0.666667),
        ("same text", "same text", 1.0, 1.0, 1.0, 1.0, 1.0),
        ("x", "completely different", 0.0, 0.0, 0.0, 0.0, 0.0),
    ],
)  # fmt: skip
def test_similarity_is_that_of_the_libraries(answer, reference, chrf, chrf_2, rouge_l, rouge_l_stems, edit):
    asked = [
        ({}, chrf),
        ({"word_order": 2}, chrf_2),
        ({"metric": "rouge_l"}, rouge_l),
        ({"metric": "rouge_l", "stemmer": True}, rouge_l_stems),
        ({"metric": "edit"}, edit),
    ]
    for options, expected in asked:
        score, evidence = scored("similarity", reference, answer, **options)
        # ROUGE-L sees the letters a to z and digits alone: a text without any is not worth 0.
        assert score == (None if expected is None else pytest.approx(expected, abs=1e-6)), (options, evidence)


@pytest.mark.parametrize(
    ("reference", "output", "options", "expected"),
    [
        ("Paris", "It is **Paris**, in France.", {}, 1.0),
        ("Paris", "paris", {}, 1.0),
        ("Paris", "paris", {"ignore_case": False}, 0.0),
        ("New York", "in New\nYork City", {}, 1.0),
        ("cat", "a category", {}, 0.0),
        ("cat", "a category", {"whole_words": False}, 1.0),
        ("5", "It is 5.2, or 1.5, or 2-5.", {}, 0.0),
        ("5", "It is 5.", {}, 1.0),
        ("art", "state-of-the-art", {}, 0.0),
        ("C++", "I use C++.", {}, 1.0),
        ("caf\u00e9", "cafe\u0301", {}, 1.0),
        ("巴黎", "答案是巴黎。", {}, 1.0),
        ("파리", "정답은 파리입니다", {}, 1.0),
        ("Paris", "Paris or Rome?\nAnswer: Rome", {}, 0.0),
        ("Paris", "<think>Paris?</think>Rome", {}, 0.0),
        ("Paris", "<think>It is Paris", {}, 0.0),
        (["Rome", "Roma"], "a Roma", {}, 1.0),
        (True, "That is true.", {}, 1.0),
        ("... so 42\n#### 42", "It is 42 km.", {}, 1.0),
    ],
)
def test_includes_finds_a_reference_in_the_answer(reference, output, options, expected):
    assert scored("includes", reference, output, **options)[0] == expected


@pytest.mark.parametrize(
    ("reference", "output", "options", "expected"),
    [
        ("Paris", " Paris\n", {}, 1.0),
        ("Paris", "<think>r</think>\nThe answer is Paris.", {}, 1.0),
        ("The answer is Paris", "The answer is Paris", {}, 1.0),
        ("Paris", "paris", {}, 0.0),
        ("Paris", "paris", {"ignore_case": True}, 1.0),
        ("Paris", "**Paris**", {}, 0.0),
        (["Rome", 7], "7", {}, 1.0),
        (7.5, "7.50", {}, 0.0),
    ],
)
def test_exact_wants_every_character(reference, output, options, expected):
    assert scored("exact", reference, output, **options)[0] == expected


@pytest.mark.parametrize(
    ("prompt", "metadata", "reference", "output", "options", "expected"),
    [
        (CITIES, {}, "B", "It is (B).", {}, 1.0),
        (CITIES, {}, "B", "B) Paris", {}, 1.0),
        (CITIES, {}, "Paris", "**B**", {}, 1.0),
        (CITIES, {}, "B", "Answer: A", {}, 0.0),
        (CITIES, {}, "1", "B", {}, 1.0),
        (CITIES, {}, 1, "A", {"first": 1}, 1.0),
        (CITIES, {}, "3", "D", {}, None),
        (CITIES, {}, "Berlin", "D", {}, None),
        ("Capital?", {"choices": ["Rome", "Paris"]}, 0, "Rome", {}, 1.0),
        ("Capital?", {"A": "Rome", "B": "Paris"}, "B", "Paris", {}, 1.0),
        ("Capital?", {"options": {"text": ["Rome", "Paris"]}}, "B", "A or B", {}, None),
        (CITIES, {}, ["A", "B"], "B", {}, 1.0),
    ],
)
def test_choice_reads_letters_texts_and_numbers(prompt, metadata, reference, output, options, expected):
    assert scored("choice", reference, output, prompt, metadata, **options)[0] == expected


@pytest.mark.parametrize(
    ("options", "reference", "output", "expected"),
    [
        ({"pattern": r"\d{4}"}, None, "in 1984", 1.0),
        ({"pattern": r"\d{4}"}, None, "<think>1984</think>in that year", 0.0),
        ({"pattern": r"\d{4}", "fullmatch": True}, None, "in 1984", 0.0),
        ({"pattern": r"\d{4}", "fullmatch": True}, None, "The answer is 1984.", 1.0),
        ({"pattern": r"(?i)PARIS"}, None, "paris", 1.0),
        ({"pattern": "paris"}, None, "Paris", 0.0),
        ({"pattern": "paris", "ignore_case": True}, None, "Paris", 1.0),
        ({"pattern": r"City: (\w+)"}, "Rome", "City: Paris? No. City: Rome", 1.0),
        ({"pattern": r"City: (\w+)"}, "Paris", "City: Paris? No. City: Rome", 0.0),
        ({"pattern": r"City: (\w+)"}, ["Roma", "Rome"], "City: Rome", 1.0),
        ({"pattern": r"A: (\w+)|B: (\w+)"}, "x", "B: x", 1.0),
        ({"pattern": r"City: (\w+)", "ignore_case": True}, "ROME", "city: Rome", 1.0),
        ({"pattern": r"City: (\w+)"}, None, "City: Rome", None),
        ({"pattern": "(a)"}, "a", "a" * 1_001, None),
        ({"field": "answer"}, ["x+y", "b{2}"], "abba", 1.0),
        ({"field": "answer"}, "(?=b)", "abba", None),
        ({}, "x", "x", None),
    ],
)
def test_regex_matches_and_compares_its_group(options, reference, output, expected):
    assert scored("regex", reference, output, **options)[0] == expected


def test_regex_takes_the_pattern_of_each_record():
    assert scored("regex", None, "abba", metadata={"pattern": "b{2}"})[0] == 1.0
    assert scored("regex", None, "aba", metadata={"rule": "b{2}"}, field="rule")[0] == 0.0
    scorer = build_scorer("regex")
    assert scorer.call(GraderInput.of("s", {"pattern": "b{2}"}, "abba")).score == 1.0
    assert "no regular expression" in scorer.unusable({"answer": "x"})
    assert "is no regular expression of RE2: missing )" in scorer.unusable({"pattern": "(b"})


def test_the_best_of_several_references_and_of_what_may_be_the_answer_counts():
    assert scored("f1", ["x y", "Norman conquest"], "I think.\nNorman conquest")[0] == 1.0
    assert scored("similarity", ["zzz", "one\ntwo"], "one\ntwo")[0] == 1.0
    assert scored("em", ["the", "Rome"], "Rome")[0] == 1.0  # the one that has words


@pytest.mark.parametrize("name", ["choice", "em", "exact", "f1", "includes", "similarity"])
@pytest.mark.parametrize("reference", [None, "", " ", [], [None, ""]])
def test_without_a_reference_there_is_no_score(name, reference):
    assert scored(name, reference, "x") == (None, "the item has no reference answer")
    assert build_scorer(name).unusable({"answer": reference}) == "the item has no reference answer"


@pytest.mark.parametrize(
    ("name", "options", "reference"),
    [
        ("f1", {}, "A"),
        ("em", {}, "the"),
        ("em", {}, "?!"),
        ("similarity", {"metric": "rouge_l"}, "кот"),
        ("exact", {}, [{}]),
    ],
)
def test_a_reference_with_nothing_to_compare_is_counted_and_not_graded(name, options, reference):
    score, reason = scored(name, reference, "A", **options)
    assert score is None
    assert reason.endswith("has no text to compare")
    assert build_scorer(name, options).unusable({"answer": reference}) == reason
    assert build_scorer(name, options).unusable({"answer": "usable"}) is None


@pytest.mark.parametrize(
    ("name", "options", "reference", "output", "evidence"),
    [
        ("exact", {}, "Paris", "Parma", "answered 'Parma' ≠ reference 'Paris', different from character 4: 'ma'"),
        ("f1", {}, "Norman conquest", "the Norman wars",
         "1 of 2 words of the reference 'Norman conquest', missing 'conquest', others 'wars'"),
        ("includes", {}, "Rome", "It is Paris", "the reference 'Rome' is not in 'It is Paris'"),
        ("regex", {"pattern": "is (\\w+)"}, "Rome", "It is Paris", "matched 'Paris' ≠ reference 'Rome'"),
        ("regex", {"pattern": "b+"}, None, "abba", "'b+' matches 'bb'"),
        ("similarity", {"metric": "edit"}, "kitten", "sitting", "edit 0.571: answered 'sitting' ~ reference 'kitten'"),
        ("exact", {}, "Paris", "<think>Paris", "answered nothing"),
    ],
)  # fmt: skip
def test_evidence_says_what_was_compared_with_what(name, options, reference, output, evidence):
    assert scored(name, reference, output, **options)[1] == evidence


@pytest.mark.parametrize(
    ("name", "options", "problem"),
    [
        (
            "regex",
            {"pattern": "(?=a)"},
            "options.pattern: got '(?=a)' is no regular expression of RE2: invalid perl operator",
        ),
        ("regex", {"pattern": ""}, "options.pattern: got ''; accepted: a regular expression"),
        ("regex", {"field": " "}, "options.field: got ' '; accepted: a name"),
        ("similarity", {"metric": "bleu"}, "options.metric: got 'bleu'; accepted: chrf, rouge_l, edit"),
        (
            "similarity",
            {"metric": "edit", "word_order": 2},
            "word_order: got 2; accepted: none, because metric is 'edit'",
        ),
        ("similarity", {"stemmer": True}, "stemmer: got True; accepted: none, because metric is 'chrf'"),
        ("includes", {"ignore_case": "no"}, "options.ignore_case: got 'no'; accepted: true or false"),
        ("choice", {"first": 2}, "options.first: got 2; accepted: 0 or 1"),
        ("exact", {"parse": "think"}, "options.parse: got 'think'; accepted: no parse"),
        ("em", {"ignore_case": True}, "options.ignore_case: got True; accepted: no options"),
    ],
)
def test_an_option_that_cannot_be_used_is_refused_when_the_scorer_is_made(name, options, problem):
    with pytest.raises(PipelineError) as caught:
        build_scorer(name, options)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("name", "options", "missing", "extra"),
    [
        ("regex", {"pattern": "a"}, "re2", "re2"),
        ("similarity", {}, "sacrebleu", "similarity"),
        ("similarity", {"metric": "edit"}, "rapidfuzz", "similarity"),
        ("similarity", {"metric": "rouge_l", "stemmer": True}, "nltk", "similarity"),
        ("ifeval", {}, "langdetect", "ifeval"),
    ],
)
def test_a_library_that_is_not_installed_is_named_with_the_line_that_installs_it(
    monkeypatch, name, options, missing, extra
):
    find = importlib.util.find_spec
    monkeypatch.setattr(
        "tfgrpo.rewarders.options.find_spec", lambda module: None if module == missing else find(module)
    )
    with pytest.raises(PipelineError, match=rf'pip install "tfgrpo\[{extra}\]"'):
        build_scorer(name, options)


def test_scorers_without_an_extra_need_no_library(monkeypatch):
    importing = builtins.__import__

    def guarded(name, *arguments):
        assert name.partition(".")[0] not in ("re2", "sacrebleu", "rapidfuzz", "nltk", "langdetect"), name
        return importing(name, *arguments)

    monkeypatch.setattr(builtins, "__import__", guarded)
    for name in ("choice", "em", "exact", "f1", "includes"):
        assert scored(name, "B", "(B)" if name == "choice" else "B")[0] == 1.0


def test_in_a_run_they_score_groups_with_evidence_and_abstain():
    outputs = tuple(Attempt(f"r{at}", at, text, tokens=1) for at, text in enumerate(("Paris", "Rome", "Paaris")))
    context = RewardContext("f#1", "q", "Capital?", "Rome", outputs, alternatives=("Roma",))
    names = ("choice", "em", "exact", "f1", "includes", "similarity")
    scorers = [Weighted(build_scorer(name)) for name in names]

    async def run(asked):
        with ScoreRunner() as runner:
            return (await runner.score_group(scorers, asked)).verdicts

    verdicts = asyncio.run(run(context))
    assert [verdict.rewarder_id for verdict in verdicts[1]] == list(names)
    assert [verdict.score for verdict in verdicts[1][1:]] == [1.0] * 5
    assert all(verdict.evidence for row in verdicts for verdict in row if not isinstance(verdict, Abstained))
    bare = asyncio.run(run(replace(context, answer="", alternatives=())))
    assert {verdict.reason for row in bare for verdict in row} == {"the item has no reference answer"}


@pytest.mark.parametrize(
    "unit", ["a", "a ", "<", "`", "*", "\n", "1,", "Answer: ", "<think>", "\\boxed{", "A) ", "é", "\uff0c"]
)
def test_a_runaway_output_costs_time_in_proportion(unit):
    record = {"answer": "a b c", "prompt": CITIES, "metadata": {}}
    body = (unit * 100_000)[:100_000]
    asked = [(name, {}) for name in ("choice", "em", "exact", "f1", "includes", "similarity")]
    asked += [
        ("regex", {"pattern": "(a+)+$"}),
        ("regex", {"pattern": "(a.*b|a|<)"}),
        ("similarity", {"metric": "rouge_l"}),
    ]
    for name, options in asked:
        call = build_scorer(name, options).call
        began = time.process_time()
        try:
            call(GraderInput.of("s:0", record, body))
        except RewardError as error:
            assert "1,000" in str(error) or "options" in str(error), (name, unit)  # noqa: PT017 - some are ungraded
        assert time.process_time() - began < 1.5, (name, unit)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        ("巴黎", 1.0),
        ("答案\uff1a巴黎", 1.0),
        ("It is 巴黎.", 1.0),
        ("答案是巴黎。", 1.0),
        ("不是巴黎。", None),
        ("伦敦", 0.0),
    ],
)
def test_gt_does_not_guess_where_words_have_no_spaces_between_them(output, expected):
    assert scored("gt", "巴黎", output)[0] == expected

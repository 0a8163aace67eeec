"""Whatever a scorer returns or raises, wherever it runs, costs its own attempts at most, and never becomes a number."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.rewards.scoring import built, group, numbers, verdicts
from tests.support.vectors import rows_of
from tfgrpo.rewarders.calling import as_verdict, matched
from tfgrpo.rewarders.composite import unisolated
from tfgrpo.rewarders.importing import handed_over
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, GraderInput, Scorer
from tfgrpo.stores.outcomes import RewardScore

VALUES = dict(rows_of("scorer_contract", "values"))
"""What each value of ``kinds.VALUES`` is for its attempt."""
ERRORS = dict(rows_of("scorer_contract", "errors"))
"""What each error of ``kinds.ERRORS`` is for the attempt it is raised about."""
IN_COROUTINES = {"a stop": "broke: RuntimeError: coroutine raised StopIteration"}
BATCHES = dict(rows_of("scorer_contract", "batches"))  # fmt: skip
"""What each return value of ``kinds.BATCHES`` is for attempts whose outputs are 0, 0.5 and 1."""


def read(verdict) -> float | str:
    """Return the score, or the reason with a mark of the scorer's fault."""
    if isinstance(verdict, Abstained):
        reason = verdict.reason.removesuffix(": nan")  # which ``json`` adds as of Python 3.13
        return f"broke: {reason}" if verdict.broke else reason
    return verdict.score


def scorer_at(place: str, form: str) -> Scorer:
    isolated = built(f"tests.support.rewards.kinds:{form}", rewarder_id="mine")
    assert isolated.place == ("loop" if form == "LoopGroup" else "process")
    return unisolated(isolated) if place == "thread" else isolated


async def asked(scorer: Scorer, prompts, *outputs: str) -> dict[str, tuple]:
    """Return the verdicts on these outputs for each prompt; a prompt names what the scorer does."""
    with ScoreRunner(timeout_s=30.0) as runner:
        # One after another: at once they would start as many processes as there are cores.
        return {prompt: (await runner.score(scorer, [group(*outputs, prompt=prompt)]))[0] for prompt in prompts}


def check_each(found, expected):
    """Each kind costs the attempt in the middle its score, and no other."""
    assert {kind: [read(each) for each in found[kind]] for kind in expected} == {
        kind: [1.0, value, 1.0] for kind, value in expected.items()
    }
    assert {each.rewarder_id for verdicts in found.values() for each in verdicts} == {"mine"}


ITEMS = [("thread", form) for form in ("item", "function", "later_function", "promised_function")]


@pytest.mark.parametrize(("place", "form"), [*ITEMS, ("process", "later_function")])
async def test_what_a_scorer_of_single_attempts_returns_or_raises_is_about_its_own_attempt(place, form):
    found = await asked(scorer_at(place, form), [*VALUES, *ERRORS], "good", "bad", "good")
    check_each(found, VALUES | ERRORS | ({} if form in ("item", "function") else IN_COROUTINES))
    evidence = {kind: found[kind][1].evidence for kind in ("a float", "an object", "a verdict", "lone surrogates")}
    assert evidence == {
        "a float": "answer 'bad'",
        "an object": "no unit",
        "a verdict": "two lines",
        "lone surrogates": "\ud800",
    }
    assert [found[kind][1].details for kind in ("a float", "a dict with a score", "a verdict", "lone surrogates")] == [
        None,
        {"reason": "no\nunit", "unit": "km", "at": (1, 2)},
        {"votes": (1, {"by": "a"})},
        {"\udfff": "\ud800"},
    ]


BATCH_FORMS = [("thread", form) for form in ("Batch", "Each", "LaterBatch", "LaterEach", "PromisedBatch")]


@pytest.mark.parametrize(("place", "form"), [*BATCH_FORMS, ("process", "Batch")])
async def test_results_of_a_batch_find_their_attempts_and_a_failure_costs_what_was_asked_about_together(place, form):
    scorer = scorer_at(place, form)
    found = await asked(scorer, BATCHES, "0", "0.5", "1")
    assert {kind: [read(each) for each in verdicts] for kind, verdicts in found.items()} == BATCHES
    found = await asked(scorer, [*VALUES, *ERRORS], "good", "bad", "good")
    check_each(found, {kind: value for kind, value in VALUES.items() if not kind.startswith("a result")})
    errors = ERRORS | (IN_COROUTINES if form.startswith(("Later", "Promised")) else {})
    down = errors.pop("an unavailable service")
    assert [read(each) for each in found["an unavailable service"]] == [down] * 3
    if form.endswith("Each"):
        check_each({kind: found[kind] for kind in errors}, errors)
    else:
        # One by one, a scorer that compares within its batch would give every attempt the best reward.
        assert {kind: [read(each) for each in found[kind]] for kind in errors} == {
            kind: [reason] * 3 for kind, reason in errors.items()
        }


GROUPS = [("thread", form) for form in ("group", "Group", "LaterGroup")]


@pytest.mark.parametrize(("place", "form"), [*GROUPS, ("process", "Group"), ("loop", "LoopGroup")])
async def test_a_scorer_of_groups_loses_one_attempt_to_a_value_and_the_group_to_an_error(place, form):
    errors = ERRORS | (IN_COROUTINES if form.startswith(("Later", "Loop")) else {})
    if place == "loop":
        del errors["Ctrl-C of its own"]  # there it is no one else's
    found = await asked(scorer_at(place, form), [*VALUES, *errors], "good", "bad", "good")
    check_each({kind: found[kind] for kind in VALUES}, VALUES)
    assert {kind: [read(each) for each in found[kind]] for kind in errors} == {
        kind: [reason] * 3 for kind, reason in errors.items()
    }


def test_a_scorer_of_groups_returns_one_verdict_for_each_attempt():
    others = {"float": 1.0, "NoneType": None, "str": "ab"}
    for returned, reason in (
        ([1.0], "1 verdict for 2 attempts"),
        (iter(int, 1), "5 verdicts for 2 attempts"),
        *((value, f"returned a {kind}, expected one verdict for each attempt") for kind, value in others.items()),
    ):
        scorer = Scorer("own", lambda _, given=returned: given, scope="group", place="thread")
        assert {read(each) for each in verdicts(scorer, "a", "b")} == {reason}


async def test_a_failed_batch_is_asked_about_one_by_one_only_if_its_scorer_says_so():
    def act(inputs):
        calls.append(len(inputs))
        raise ValueError("no")

    for per_item, expected in ((False, [3]), (True, [3, 1, 1, 1])):
        calls = []
        await asked(Scorer("own", act, scope="batch", place="thread", per_item=per_item), [""], "a", "b", "c")
        assert calls == expected


def inputs_of(*names: tuple[str, int]) -> list[GraderInput]:
    return [GraderInput.of(sample_id, {}, "x", completion_index=index) for sample_id, index in names]


NAMES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 20)), unique=True, min_size=1, max_size=12)


@given(NAMES, st.data())
def test_results_in_any_order_and_with_gaps_find_the_attempts_that_they_name(names, data):
    places = data.draw(st.lists(st.sampled_from(range(len(names))), unique=True, min_size=1))
    results = [{"sample_id": names[at][0], "completion_index": names[at][1], "reward": at} for at in places]
    expected = [float(at) if at in places else None for at in range(len(names))]
    assert numbers(matched("mine", inputs_of(*names), results)) == expected


def test_numbers_of_arrays_are_kept_as_plain_details():
    verdict = as_verdict("mine", {"score": np.float32(1), "unit": np.float32(2.5), "many": np.array([1])})
    assert (verdict.score, verdict.details) == (1.0, {"unit": 2.5})


def test_two_results_for_one_attempt_count_only_when_they_agree():
    inputs = inputs_of(("a", 0), ("b", 1))
    both = [{"sample_id": "a", "reward": 1}, {"sample_id": "b", "reward": 2}]
    assert numbers(matched("mine", inputs, [*both, both[1]])) == [1.0, 2.0]
    assert numbers(matched("mine", inputs, [*both, {"sample_id": "b", "reward": 3}])) == [1.0, None]


def test_evidence_shows_the_end_of_the_answer_and_what_it_was_compared_with():
    with handed_over() as name_of:
        scorer = built(name_of(lambda output: 1.0), rewarder_id="mine")
        (verdict,) = verdicts(scorer, "<think>why</think>" + "x" * 100 + "\nAnswer: 42")
        assert verdict == RewardScore("mine", 1.0, f"answer '…{'x' * 48}\\nAnswer: 42'")
        assert verdicts(scorer, "<think>")[0].evidence == "no final answer"
    (verdict,) = verdicts("math_exact", "Answer: 42")
    assert verdict.evidence == "answer 'Answer: 42', reference '42'"

"""``ifeval``: each instruction as IFEval's own code checks it, and no score where that would guess.

The known answers are those of google-research/instruction_following_eval and of lm-eval 0.4.13, which has the same code.
"""

from __future__ import annotations

import asyncio

import pytest

from tests.support.rewards.scoring import told
from tests.support.vectors import read_vectors, rows_of
from tfgrpo.rewarders.graders.builtin.ifeval import _CHECKS
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Attempt, GraderInput, RewardContext, Weighted
from tfgrpo.stores.errors import RewardError

ENGLISH = "the river runs through the old town and everyone who lives there walks along its banks in the evening"
FRENCH = "La rivière traverse la vieille ville et tous les habitants se promènent le soir le long de ses rives tranquilles."
MIXED = "The river runs through the old town. La rivière traverse la vieille ville et les habitants"
WORDS = "length_constraints:number_words"


def scored(instructions, output, **options):
    fields = {"instruction_id_list": [name for name, _ in instructions], "kwargs": [given for _, given in instructions]}
    return told("ifeval", output, {"prompt": "p", "metadata": fields}, **options)


def test_all_25_instructions_have_samples():
    rows = [row["record"].get("metadata") or row["record"] for row in read_vectors("instructions")]
    assert len({name for row in rows for name in row.get("instruction_id_list") or () if name in _CHECKS}) == 25


@pytest.mark.parametrize(
    ("name", "given", "output", "reason"),
    rows_of("ifeval", "what_the_original_decides_by_chance_or_by_a_trained_model_is_ungraded"),
)
def test_what_the_original_decides_by_chance_or_by_a_trained_model_is_ungraded(name, given, output, reason):
    score, told = scored([(name, given), ("punctuation:no_comma", {})], output)
    assert (score, told.startswith(f"{name}: {reason}")) == (None, True), told
    # One that is not followed decides about all of them.
    missed = [(name, given), (WORDS, {"num_words": 99, "relation": "at least"})]
    assert scored(missed, output, level="prompt")[0] == 0.0


@pytest.mark.parametrize(
    ("names", "settings", "reason"),
    [
        *rows_of("ifeval", "instructions_that_cannot_be_checked_are_counted_and_not_graded"),
        ([WORDS], [{"num_words": 5}], f"{WORDS} has kwargs num_words; it takes num_words, relation"),
        ([WORDS], [{"num_words": 5, "relation": "at most"}], f"{WORDS} has kwargs relation 'at most': "),
        ([WORDS], [{"num_words": -1, "relation": "at least"}], f"{WORDS} has kwargs num_words -1: "),
    ],
)  # fmt: skip
def test_instructions_that_cannot_be_checked_are_counted_and_not_graded(names, settings, reason):
    record = {"metadata": {"instruction_id_list": names, "kwargs": settings}}
    scorer = build_scorer("ifeval")
    assert str(scorer.unusable(record)).startswith(reason)
    with pytest.raises(RewardError) as caught:
        scorer.call(GraderInput.of("s", record, "x"))
    assert str(caught.value) == scorer.unusable(record)


def test_in_a_run_it_needs_no_reference_answer_and_works_in_a_process():
    metadata = {"instruction_id_list": ["language:response_language"], "kwargs": [{"language": "fr"}]}
    outputs = (Attempt("r0", 0, FRENCH, tokens=1), Attempt("r1", 1, ENGLISH, tokens=1), Attempt("r2", 2, "12", tokens=1))
    context = RewardContext("f#1", "q", "Bonjour", "", outputs, metadata=metadata)

    async def run():
        with ScoreRunner() as runner:
            return (await runner.score_group([Weighted(build_scorer("ifeval"))], context)).verdicts

    (right,), (wrong,), (unclear,) = asyncio.run(run())
    assert (right.score, wrong.score) == (1.0, 0.0)
    assert isinstance(unclear, Abstained)
    assert not unclear.broke

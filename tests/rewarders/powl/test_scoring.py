"""Process models are graded by what they say: likeness, validity, coherence and agreement, each from 0 to 1."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.rewards.scoring import built, group, numbers, totalled
from tfgrpo.rewarders.powl import (
    footprint,
    footprint_similarity,
    footprint_to_value,
    group_consensus,
    parse_text,
    to_json,
)
from tfgrpo.rewarders.powl.scoring import MODEL_KEY, POWL_REWARDERS
from tfgrpo.rewarders.registry import known_scorers
from tfgrpo.rewarders.scorer import Abstained, Weighted
from tfgrpo.stores.errors import PipelineError

LOAN = "SEQUENCE(apply, PARALLEL(check_credit, check_income), XOR(approve, reject))"
OTHER = "SEQUENCE(apply, check_credit, check_income, approve)"
PROSE = "I'm sorry, I cannot do that."


def context(*outputs, answer="", metadata=None, known=None):
    made = group(*outputs, answer=answer, metadata=metadata or {})
    if known is None:
        return made
    return replace(made, outputs=tuple(replace(each, metadata={MODEL_KEY: known}) for each in made.outputs))


def scores(name, given, **options):
    return numbers(built(name, **options).call(given))


def test_all_are_registered_by_name():
    assert set(POWL_REWARDERS) == {name for name in known_scorers() if name.startswith("powl_")}


@pytest.mark.parametrize("mode", ["block", "direct", "order"])
@pytest.mark.parametrize("aggregate", ["pooled", "macro"])
def test_the_score_is_the_similarity_of_the_footprints(mode, aggregate):
    wanted = footprint_similarity(parse_text(OTHER), parse_text(LOAN), aggregate, mode=mode)
    given = context(LOAN, f"Here it is:\n```\n{OTHER}\n```", answer=LOAN)
    assert scores("powl_footprint", given, mode=mode, aggregate=aggregate) == [1.0, pytest.approx(wanted)]


@pytest.mark.parametrize(
    ("answer", "metadata"),
    [
        (LOAN, {}),
        (to_json(parse_text(LOAN)), {}),
        (json.dumps(footprint_to_value(footprint(parse_text(LOAN)))), {}),
        ("", {"reference": LOAN}),
        (" ", {"reference": json.loads(to_json(parse_text(LOAN)))}),
        ("", {"footprint": footprint_to_value(footprint(parse_text(LOAN)))}),
    ],
)
def test_the_reference_may_be_the_answer_or_in_the_metadata_in_any_form(answer, metadata):
    first, second = scores("powl_footprint", context(LOAN, OTHER, answer=answer, metadata=metadata))
    assert (first, 0.0 < second < 1.0) == (1.0, True)


@pytest.mark.parametrize(
    ("answer", "metadata", "options", "reason"),
    [
        ("", {}, {}, "no reference"),
        (PROSE, {}, {}, "cannot be used"),
        ("", {"reference": 7}, {}, "int is no process model"),
        ('{"type": "XOR"}', {}, {}, "cannot be used"),
        (json.dumps(footprint_to_value(footprint(parse_text(LOAN), "direct"))), {}, {}, "mode direct"),
    ],
)
def test_without_a_usable_reference_it_abstains(answer, metadata, options, reason):
    said = built("powl_footprint", **options).call(context(LOAN, answer=answer, metadata=metadata))
    assert isinstance(said[0], Abstained)
    assert reason in said[0].reason


def test_prose_is_a_wrong_answer_everywhere():
    given = context(LOAN, PROSE, OTHER, answer=LOAN)
    for name in POWL_REWARDERS:
        assert scores(name, given)[1] == 0.0
        assert "no process model" in built(name).call(given)[1].evidence


def test_valid_means_without_errors():
    silent = "SEQUENCE(SILENT(), SILENT())"
    assert scores("powl_valid", context(LOAN, silent)) == [1.0, 0.0]
    assert scores("powl_valid", context(LOAN, "apply", "ACTIVITY(apply)"), labels=["apply"]) == [0.0, 0.0, 1.0]


def test_coherence_needs_no_reference():
    torn = "SEQUENCE(XOR(a, b), PARALLEL(a, b))"
    first, second = scores("powl_self_consistency", context(LOAN, torn))
    assert (first, second < 1.0) == (1.0, True)


def test_agreement_is_the_mean_similarity_to_the_others():
    third = "SEQUENCE(apply, approve)"
    wanted = group_consensus([parse_text(text) for text in (LOAN, OTHER, third)])
    given = context(LOAN, PROSE, OTHER, third)
    assert scores("powl_group_consensus", given) == pytest.approx([wanted[0], 0.0, wanted[1], wanted[2]])


def test_the_only_model_of_a_group_is_abstained_on():
    assert scores("powl_group_consensus", context(LOAN, PROSE)) == [None, 0.0]
    assert built("powl_group_consensus").compares


def test_a_model_that_was_read_already_is_not_read_again():
    assert scores("powl_footprint", context(PROSE, answer=LOAN, known=parse_text(LOAN))) == [1.0]


def test_aliases_are_an_option():
    assert scores("powl_valid", context("SEQ(a, b)")) == [0.0]
    assert scores("powl_valid", context("SEQ(a, b)"), aliases=True) == [1.0]


@pytest.mark.parametrize(
    ("name", "options", "told"),
    [
        ("powl_footprint", {"mode": "blocks"}, "mode is 'blocks'; accepted: block, direct, order"),
        ("powl_footprint", {"aggregate": "micro"}, "aggregate is 'micro'"),
        ("powl_footprint", {"exclusive": -1.0}, "not negative"),
        ("powl_footprint", {"aliases": "yes"}, "options.aliases: got 'yes'"),
        ("powl_group_consensus", {"mode": "x"}, "mode is 'x'"),
        ("powl_valid", {"labels": "apply"}, "a list of labels"),
        ("powl_valid", {"labels": [1]}, "a list of labels"),
        ("powl_self_consistency", {"mode": "block"}, "options: got mode"),
    ],
)
def test_a_bad_option_is_refused(name, options, told):
    with pytest.raises(PipelineError, match=told.replace("(", r"\(")):
        built(name, **options)


def test_weights_of_relations_count():
    given = context("SEQUENCE(a, b, XOR(c, d))", answer="SEQUENCE(a, b, PARALLEL(c, d))")
    even = scores("powl_footprint", given)[0]
    assert scores("powl_footprint", given, exclusive=0.0, concurrency=0.0)[0] == 1.0 > even


async def test_models_are_compared_in_a_worker_process_where_that_takes_long():
    given = context(LOAN, PROSE, OTHER, answer=LOAN, metadata={"reference": LOAN})
    parts = [Weighted(built("powl_footprint"), 0.7), Weighted(built("powl_equal"), 0.3)]
    assert [part.scorer.place for part in parts] == ["inline", "process"]
    totals = (await totalled(given, *parts)).totals
    assert (totals["r0"], totals["r1"], 0.0 < totals["r2"] < 0.7) == (1.0, 0.0, True)

"""Process models are graded by what they say: likeness, behaviour, validity, coherence and agreement, each from 0 to 1."""

import json
import re

import pytest

from tests.support.rewards.powl_models import pairs_of
from tests.support.rewards.scoring import built, group, numbers
from tests.support.vectors import rows_of
from tfgrpo.rewarders.powl import footprint, group_consensus, parse_text, to_json
from tfgrpo.rewarders.registry import known_scorers
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.errors import PipelineError

LOAN = "SEQUENCE(apply, PARALLEL(check_credit, check_income), XOR(approve, reject))"
OTHER = "SEQUENCE(apply, check_credit, check_income, approve)"
REFERENCE = "SEQUENCE(a, PARALLEL(b, c), XOR(d, SILENT()), LOOP(e, f))"
PROSE = "I'm sorry, I cannot do that."


def written(model, mode="block"):
    return pairs_of(footprint(parse_text(model), mode))


def judged(name, *outputs, answer="", metadata=None, **options):
    return built(name, **options).call(group(*outputs, answer=answer, metadata=metadata or {}))


def scores(name, *outputs, **more):
    return numbers(judged(name, *outputs, **more))


def test_another_way_to_write_the_same_behaviour_is_right():
    outputs = (REFERENCE, f"Step 1: look.\nAnswer: {REFERENCE}", to_json(parse_text(REFERENCE)))
    for same in (
        "SEQUENCE(a, PARALLEL(c, b), XOR(SILENT(), d), LOOP(e, f))",
        "SEQUENCE(PARTIAL_ORDER(a, b, c, ORDER(0->1, 0->2)), SEQUENCE(XOR(d, SILENT()), LOOP(e, f)))",
    ):
        found = judged("powl_equal", *outputs, answer=same)
        assert [(each.score, each.evidence) for each in found] == [(1.0, "the behaviour of the reference")] * 3


def test_another_behaviour_is_wrong_and_the_evidence_names_the_difference():
    for output, answer, evidence in (
        ("SEQUENCE(a, b, c, XOR(d, SILENT()), LOOP(e, f))", REFERENCE, "other pairs in direct_succession"),
        ("LOOP(SEQUENCE(e, f), SILENT())", "LOOP(e, f)", "the beginning or the end"),
        ("SEQUENCE(a, PARALLEL(b, x))", REFERENCE, "4 of the reference are missing, 1 are not in it"),
        ("XOR(a, b, SILENT())", "XOR(a, b)", "other steps can be skipped"),
        (PROSE, REFERENCE, "no process model: "),
    ):
        (verdict,) = judged("powl_equal", output, answer=answer)
        assert (verdict.score, evidence in verdict.evidence, "\n" in verdict.evidence) == (0.0, True, False)


def test_the_reference_may_be_the_answer_or_in_the_metadata_in_any_form():
    for answer, metadata in (
        (to_json(parse_text(LOAN)), {}),
        ("", {"reference": LOAN}),
        (" ", {"reference": json.loads(to_json(parse_text(LOAN)))}),
        (json.dumps(written(LOAN, "direct")), {}),
        ("", {"footprint": written(LOAN, "direct")}),
    ):
        given = {"answer": answer, "metadata": metadata}
        first, second = scores("powl_footprint", LOAN, OTHER, mode="direct", **given)
        assert (first, 0.0 < second < 1.0) == (1.0, True)
        assert scores("powl_equal", LOAN, OTHER, **given) == [1.0, 0.0]


@pytest.mark.parametrize("name", ["powl_footprint", "powl_equal"])
def test_without_a_usable_reference_it_abstains(name):
    for answer, metadata, reason in (
        ("", {}, "the item has no reference model"),
        (PROSE, {}, "the reference cannot be used: "),
        ("", {"reference": 7}, "int is no process model"),
        ('{"type": "XOR"}', {}, "cannot be used"),
        (json.dumps(written(LOAN, "order")), {}, "mode order"),
    ):
        (verdict,) = judged(name, LOAN, answer=answer, metadata=metadata)
        assert (isinstance(verdict, Abstained), reason in verdict.reason) == (True, True)


@pytest.mark.parametrize("name", [name for name in known_scorers() if name.startswith("powl_")])
def test_prose_is_a_wrong_answer_everywhere_and_aliases_are_read_on_request(name):
    outputs = (OTHER, PROSE, "seq(apply, approve)")
    assert scores(name, *outputs, answer=LOAN)[1:] == [0.0, 0.0]
    assert "no process model" in judged(name, *outputs, answer=LOAN)[1].evidence
    assert scores(name, *outputs[2:], outputs[2], answer=outputs[2], aliases=True) == [1.0, 1.0]


def test_validity_coherence_and_agreement_need_no_reference():
    assert scores("powl_valid", LOAN, "SEQUENCE(SILENT(), SILENT())") == [1.0, 0.0]
    assert scores("powl_valid", LOAN, "apply", "ACTIVITY(apply)", labels=["apply"]) == [0.0, 0.0, 1.0]
    first, second = scores("powl_self_consistency", LOAN, "SEQUENCE(XOR(a, b), PARALLEL(a, b))")
    assert (first, second < 1.0) == (1.0, True)
    third = "SEQUENCE(apply, approve)"
    wanted = group_consensus([parse_text(text) for text in (LOAN, OTHER, third)])
    found = scores("powl_group_consensus", LOAN, PROSE, OTHER, third)
    assert found == pytest.approx([wanted[0], 0.0, wanted[1], wanted[2]])
    assert scores("powl_group_consensus", LOAN, PROSE) == [None, 0.0]  # the only model is compared with none
    assert built("powl_group_consensus").compares
    places = [built("powl_footprint", mode=mode).place for mode in ("block", "direct")] + [built("powl_equal").place]
    assert places == ["inline", "process", "process"]  # where comparing takes long


NONE_COUNTS = dict.fromkeys(("direct_succession", "concurrency", "exclusive"), 0.0)


def test_a_bad_option_is_refused():
    none = ("powl_footprint", NONE_COUNTS, "options.exclusive: got 0.0; accepted: a number above 0 for one of")
    for name, options, message in (*rows_of("powl_scoring", "a_bad_option_is_refused"), none):
        with pytest.raises(PipelineError, match=re.escape(message)):
            built(name, **options)

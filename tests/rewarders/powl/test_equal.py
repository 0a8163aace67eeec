"""The rewarder ``powl_equal``: the behaviour of the reference or not, however either is written."""

from __future__ import annotations

import pytest

from tests.support.rewards.scoring import built, group
from tfgrpo.rewarders.powl import footprint, footprint_to_value, parse_text, to_json
from tfgrpo.rewarders.scorer import Abstained
from tfgrpo.stores.errors import PipelineError

REFERENCE = "SEQUENCE(a, PARALLEL(b, c), XOR(d, SILENT()), LOOP(e, f))"


def judged(output, answer=REFERENCE, metadata=None, **options):
    (verdict,) = built("powl_equal", **options).call(group(output, answer=answer, metadata=metadata or {}))
    return verdict


@pytest.mark.parametrize(
    "output",
    [
        REFERENCE,
        f"Step 1: look.\nAnswer: {REFERENCE}",
        "SEQUENCE(a, PARALLEL(c, b), XOR(SILENT(), d), LOOP(e, f))",
        "SEQUENCE(PARTIAL_ORDER(a, b, c, ORDER(0->1, 0->2)), SEQUENCE(XOR(d, SILENT()), LOOP(e, f)))",
        to_json(parse_text(REFERENCE)),
    ],
)
def test_another_way_to_write_the_same_behaviour_is_right(output):
    assert (judged(output).score, judged(output).evidence) == (1.0, "the behaviour of the reference")


@pytest.mark.parametrize(
    ("output", "told"),
    [
        ("SEQUENCE(a, b, c, XOR(d, SILENT()), LOOP(e, f))", "other pairs in direct_succession"),
        ("SEQUENCE(a, PARALLEL(b, c), d, LOOP(e, f))", "other pairs in"),
        ("SEQUENCE(a, PARALLEL(b, c), XOR(d, SILENT()), LOOP(SEQUENCE(e, f), SILENT()))", "the beginning or the end"),
        ("SEQUENCE(a, PARALLEL(b, x))", "4 of the reference are missing, 1 are not in it"),
        ("There is no model in this.", "no process model: "),
    ],
)
def test_another_behaviour_is_wrong_and_the_evidence_names_the_difference(output, told):
    verdict = judged(output)
    assert verdict.score == 0.0
    assert told in verdict.evidence
    assert "\n" not in verdict.evidence


def test_a_model_in_which_other_steps_can_be_skipped_is_wrong():
    # XOR(a, b) alone and XOR(a, b, SILENT()) differ in the empty trace only.
    verdict = judged("XOR(a, b, SILENT())", "XOR(a, b)")
    assert (verdict.score, verdict.evidence) == (0.0, "other steps can be skipped")


def test_a_footprint_will_do_as_reference():
    value = footprint_to_value(footprint(parse_text(REFERENCE), "direct"))
    assert judged(REFERENCE, "", {"footprint": value}).score == 1.0
    assert judged("SEQUENCE(a, b)", "", {"footprint": value}).score == 0.0


@pytest.mark.parametrize(
    ("answer", "told"), [("", "the item has no reference model"), ("prose", "the reference cannot be used: ")]
)
def test_without_a_usable_reference_it_abstains(answer, told):
    verdict = judged(REFERENCE, answer)
    assert isinstance(verdict, Abstained)
    assert told in verdict.reason


def test_aliases_are_taken_when_asked_for_and_a_bad_option_is_refused():
    assert judged("seq(a, b)", "SEQUENCE(a, b)").score == 0.0
    assert judged("seq(a, b)", "SEQUENCE(a, b)", aliases=True).score == 1.0
    with pytest.raises(PipelineError, match="aliases"):
        built("powl_equal", aliases=1)

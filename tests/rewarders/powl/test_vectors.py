"""Every sample case has its known answer."""

import pytest

from tests.support.rewards.powl_models import brief, pairs_of, shape
from tests.support.vectors import read_vectors
from tfgrpo.rewarders.powl import (
    Activity,
    Operator,
    PowlError,
    footprint,
    footprint_from_value,
    footprint_similarity,
    label_fingerprint,
    labels_of,
    parse_json,
    parse_text,
    to_value,
    validate,
)


def test_text_vectors_are_parsed_and_open_choices_are_these():
    open_ones = {}
    for case in read_vectors("powl_parse_text"):
        if "accepted" not in case["sane"]:
            open_ones[case["name"]] = case["text"]
        elif case["sane"]["accepted"]:
            assert shape(parse_text(case["text"])) == case["sane"]["tree"], case
        else:
            with pytest.raises(PowlError):
                parse_text(case["text"])
    assert brief(parse_text(open_ones.pop("prose_mentions_other_op"))) == "SEQUENCE(a, XOR(b, c))"
    for text in open_ones.values():
        with pytest.raises(PowlError):
            parse_text(text)
    for name in ("seq_alias", "lower_activity_in_seq"):
        assert brief(parse_text(open_ones[name], aliases=True)) == "SEQUENCE(a, b)"
    assert parse_json(open_ones["json_instead"]) == Activity("A")


def test_json_is_read_strictly():
    for case in read_vectors("powl_parse_json"):
        if case["sane_accept"] is False:
            with pytest.raises(PowlError):
                parse_json(case["json"])
        else:
            model = parse_json(case["json"])
            assert (to_value(model), validate(model).valid) == (case["original"]["model"], case["original"]["valid"]), case


def test_nodes_are_made_or_refused():
    def made(case):
        if case["type"] == "ACTIVITY":
            return Activity(case["label"], id=case["id"])
        return Operator(case["type"], (Activity("x"),) * case["n_children"], id=case["id"])

    for case in read_vectors("powl_node"):
        if case["accepted"]:
            assert made(case).id == case["id"]
        else:
            with pytest.raises(PowlError):
                made(case)


def test_block_footprints_are_exact():
    for case in read_vectors("powl_footprint_block"):
        model = parse_json(case["model_json"])
        assert {name: pairs_of(footprint(model))[name] for name in case["footprint"]} == case["footprint"], case
        assert (list(labels_of(model)), label_fingerprint(model)) == (case["activities"], case["fingerprint"])
        assert (brief(model), to_value(model)) == (case["text"], case["model_json"])
        assert [finding.node_id for finding in validate(model).errors] == case["violating_ids"]


def test_direct_footprints_are_exact():
    for case in read_vectors("powl_footprint_direct"):
        found = footprint(parse_json(case["model_json"]), "direct")
        pairs = pairs_of(found)
        assert (pairs["direct_succession"], pairs["concurrency"]) == (case["sequence"], case["parallel"]), case
        ends = sorted(found.start_activities), sorted(found.end_activities), found.min_trace_length
        assert ends == (case["start_activities"], case["end_activities"], case["min_trace_length"]), case


def test_macro_scores_are_exact():
    for case in read_vectors("powl_jaccard_macro"):
        given = case.get("reference_footprint")
        reference = parse_json(case["reference_json"]) if given is None else footprint_from_value(given)
        assert footprint_similarity(parse_json(case["candidate_json"]), reference, "macro") == case["score"], case

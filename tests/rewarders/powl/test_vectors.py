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


def cases(name):
    return [pytest.param(case, id=case.get("name", str(number))) for number, case in enumerate(read_vectors(f"powl_{name}"))]


@pytest.mark.parametrize("case", cases("parse_text"))
def test_text_vectors_are_parsed(case):
    sane = case["sane"]
    if sane.get("accepted"):
        assert shape(parse_text(case["text"])) == sane["tree"]
    elif "accepted" in sane:
        with pytest.raises(PowlError):
            parse_text(case["text"])


def test_open_choices_of_the_text_reader_are_these():
    texts = {case["name"]: case["text"] for case in read_vectors("powl_parse_text") if "accepted" not in case["sane"]}
    assert brief(parse_text(texts.pop("prose_mentions_other_op"))) == "SEQUENCE(a, XOR(b, c))"
    for text in texts.values():
        with pytest.raises(PowlError):
            parse_text(text)
    assert brief(parse_text(texts["seq_alias"], aliases=True)) == "SEQUENCE(a, b)"
    assert brief(parse_text(texts["lower_activity_in_seq"], aliases=True)) == "SEQUENCE(a, b)"
    assert parse_json(texts["json_instead"]) == Activity("A")


@pytest.mark.parametrize("case", cases("parse_json"))
def test_json_is_read_strictly(case):
    if case["sane_accept"] is False:
        with pytest.raises(PowlError):
            parse_json(case["json"])
    else:
        model = parse_json(case["json"])
        assert to_value(model) == case["original"]["model"]
        assert validate(model).valid == case["original"]["valid"]


@pytest.mark.parametrize("case", cases("node"))
def test_nodes_are_made_or_refused(case):
    def make():
        if case["type"] == "ACTIVITY":
            return Activity(case["label"], id=case["id"])
        return Operator(case["type"], (Activity("x"),) * case["n_children"], id=case["id"])

    if case["accepted"]:
        assert make().id == case["id"]
    else:
        with pytest.raises(PowlError):
            make()


@pytest.mark.parametrize("case", cases("footprint_block"))
def test_block_footprints_are_exact(case):
    model = parse_json(case["model_json"])
    assert {name: pairs_of(footprint(model))[name] for name in case["footprint"]} == case["footprint"]
    assert list(labels_of(model)) == case["activities"]
    assert label_fingerprint(model) == case["fingerprint"]
    assert brief(model) == case["text"]
    assert to_value(model) == case["model_json"]
    assert [finding.node_id for finding in validate(model).errors] == case["violating_ids"]


@pytest.mark.parametrize("case", cases("footprint_direct"))
def test_direct_footprints_are_exact(case):
    found = footprint(parse_json(case["model_json"]), "direct")
    pairs = pairs_of(found)
    assert (pairs["direct_succession"], pairs["concurrency"]) == (case["sequence"], case["parallel"])
    assert sorted(found.start_activities) == case["start_activities"]
    assert sorted(found.end_activities) == case["end_activities"]
    assert found.min_trace_length == case["min_trace_length"]


@pytest.mark.parametrize("case", [case for case in cases("footprint_direct") if case.values[0].get("language")])
def test_direct_and_order_footprints_are_those_of_the_enumerated_language(case):
    model, traces = parse_json(case["model_json"]), case["language"]
    for mode, name in (("direct", "directly_follows"), ("order", "eventually_follows")):
        found = footprint(model, mode)
        assert found.direct_succession | found.concurrency == set(map(tuple, traces[name]))


@pytest.mark.parametrize("case", cases("jaccard_macro"))
def test_macro_scores_are_exact(case):
    given = case.get("reference_footprint")
    reference = parse_json(case["reference_json"]) if given is None else footprint_from_value(given)
    assert footprint_similarity(parse_json(case["candidate_json"]), reference, "macro") == case["score"]

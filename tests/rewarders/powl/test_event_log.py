"""Models of event logs by pm4py, and our footprints compared with those of pm4py."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import warnings

import pytest

from tests.support.vectors import read_vectors
from tfgrpo.rewarders.powl import Operator, PowlError, Silent, footprint, parse_json, parse_text
from tfgrpo.rewarders.powl.event_log import discover_model, from_pm4py, log_footprint, pm4py_footprint, to_pm4py
from tfgrpo.rewarders.powl.model import Activity, walk
from tfgrpo.stores.errors import DatasetError

pytestmark = [
    pytest.mark.xdist_group("pm4py"),
    # pm4py and what it draws with are not ours to keep free of deprecations.
    pytest.mark.filterwarnings("ignore"),
]

ORDERS = [("a", "b", "c", "d"), ("a", "c", "b", "d"), ("a", "b", "c", "d"), ("a", "e", "d")]


@pytest.fixture(scope="module", autouse=True)
def pm4py():
    if importlib.util.find_spec("pm4py") is None:
        pytest.skip("the extra pm4py, under the AGPL, is not installed: make test-pm4py")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("pm4py")


def rows():
    for case, trace in enumerate(ORDERS):
        for step, label in enumerate(trace):
            yield f"case-{case}", label, f"2026-01-0{case + 1}T10:0{step}:00"


@pytest.fixture
def csv_log(tmp_path):
    lines = ["case:concept:name,concept:name,time:timestamp", *(",".join(row) for row in rows())]
    path = tmp_path / "log.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.fixture
def xes_log(tmp_path):
    traces = []
    for case, trace in enumerate(ORDERS):
        events = "".join(
            f'<event><string key="concept:name" value="{label}"/>'
            f'<date key="time:timestamp" value="2026-01-0{case + 1}T10:0{step}:00+00:00"/></event>'
            for step, label in enumerate(trace)
        )
        traces.append(f'<trace><string key="concept:name" value="case-{case}"/>{events}</trace>')
    path = tmp_path / "log.xes"
    path.write_text(f'<?xml version="1.0"?><log xes.version="1.0">{"".join(traces)}</log>', encoding="utf-8")
    return path


EXPECTED = "SEQUENCE(a, XOR(PARALLEL(b, c), e), d)"


@pytest.mark.parametrize("kind", ["csv_log", "xes_log"])
def test_a_model_is_discovered_from_a_log(kind, request):
    found = discover_model(request.getfixturevalue(kind))
    for mode in ("direct", "order"):
        assert footprint(found, mode) == footprint(parse_text(EXPECTED), mode)


@pytest.mark.parametrize("kind", ["csv_log", "xes_log"])
def test_the_footprint_of_a_log_is_what_was_seen(kind, request):
    found = log_footprint(request.getfixturevalue(kind))
    expected = footprint(parse_text(EXPECTED), "direct")
    assert (found.activities, found.rows) == (expected.activities, expected.rows)


def test_columns_of_a_csv_log_can_have_other_names(tmp_path):
    path = tmp_path / "log.csv"
    path.write_text("who,what,when\n" + "".join(f"{','.join(row)}\n" for row in rows()), encoding="utf-8")
    found = discover_model(path, case="who", activity="what", timestamp="when")
    assert footprint(found, "direct") == footprint(parse_text(EXPECTED), "direct")
    with pytest.raises(DatasetError, match=r"no column case:concept:name.*who, what, when"):
        discover_model(path)


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["name"]) for case in read_vectors("powl_footprint_direct")]
)
def test_our_direct_footprints_are_pm4pys(case):
    model = parse_json(case["model_json"])
    ours, theirs = footprint(model, "direct"), pm4py_footprint(model)
    assert (ours.activities, ours.rows) == (theirs.activities, theirs.rows)


@pytest.mark.parametrize(
    "text",
    [
        "PARTIAL_ORDER(a, b, c, d, ORDER(0->2, 1->2, 1->3))",
        "PARTIAL_ORDER(a, XOR(b, SILENT()), c, ORDER(0->1))",
        "SEQUENCE(a, XOR(b, c), LOOP(d, SILENT()))",
        "PARALLEL(a, a, b)",
    ],
)
def test_a_model_goes_to_pm4py_and_comes_back(text):
    model = parse_text(text)
    again = from_pm4py(to_pm4py(model))
    assert footprint(again, "direct") == footprint(model, "direct")
    assert footprint(again) == footprint(model)
    assert sum(isinstance(node, Silent) for node in walk(again)) == text.count("SILENT")


def test_an_activity_that_pm4py_counts_becomes_an_operator():
    objects = importlib.import_module("pm4py.objects.powl.obj")
    a = Activity("a")
    assert from_pm4py(objects.FrequentTransition("a", 1, 1)) == a
    assert from_pm4py(objects.FrequentTransition("a", 0, 1)) == Operator("XOR", (a, Silent()))
    assert from_pm4py(objects.FrequentTransition("a", 1, "-")) == Operator("LOOP", (a, Silent()))


def test_what_is_no_operator_of_ours_is_refused():
    with pytest.raises(PowlError, match="none of the five operators"):
        from_pm4py(object())


@pytest.mark.parametrize(("name", "text"), [("log.xes", "no xml"), ("log.csv", "")])
def test_what_is_no_log_is_refused(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    with pytest.raises(DatasetError, match="an event log in XES or CSV"):
        discover_model(tmp_path / name)
    gc.collect()  # pm4py leaves the file to the collector, which shall not complain in another test

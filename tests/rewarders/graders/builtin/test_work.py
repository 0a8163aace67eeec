"""Scorers of work: tool calls, cost, latency and tokens of an attempt, and the rows that a query gives."""

import json
import sqlite3

import pytest

from tests.support.vectors import rows_of
from tfgrpo.rewarders.graders.builtin import sql_result
from tfgrpo.rewarders.graders.builtin.sql_result import SqlResult
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.runner import ScoreRunner
from tfgrpo.rewarders.scorer import Abstained, Attempt, GraderInput, RewardContext
from tfgrpo.stores.errors import PipelineError, RewardError

FIND = {"name": "find", "arguments": {"q": "tea", "most": 3}}
OPEN = {"name": "open", "arguments": {"page": 2}}
BUY = {"name": "buy", "arguments": {}}


async def scored(name, options, facts, *, answer="", metadata=None, tokens=7):
    attempts = (Attempt("r0", 0, "done", tokens, facts),)
    context = RewardContext("f#q", "q", "p", answer, attempts, metadata=metadata or {})
    with ScoreRunner() as runner:
        ((verdict,),) = await runner.score(build_scorer(name, options), [context])
    return verdict


async def test_the_evidence_names_what_is_missing_and_what_is_too_much():
    verdict = await scored("tool_calls", {}, {"tool_calls": [FIND, BUY]}, answer=json.dumps([FIND, OPEN]))
    assert verdict.evidence == ('1 of 2 calls of the reference; missing: open({"page":2}); not in the reference: buy({})')


async def test_what_is_not_known_leaves_the_attempt_ungraded_and_an_unusable_reference_is_counted_beforehand():
    for facts, answer, reason in (
        ({}, json.dumps([FIND]), "the tool calls of the attempt are not known"),
        (
            {"tool_calls": [{"name": "find", "arguments": None}]},
            json.dumps([FIND]),
            "arguments of the calls of find are not known",
        ),
        ({"tool_calls": []}, "", "is not a list of objects with name and arguments"),
        ({"tool_calls": []}, '["find"]', "is no object with name and arguments"),
    ):
        verdict = await scored("tool_calls", {}, facts, answer=answer)
        assert (isinstance(verdict, Abstained), verdict.broke, reason in verdict.reason) == (True, False, True)
    check = build_scorer("tool_calls").unusable
    assert "is not a list" in check({"answer": "42"})
    assert check({"answer": "42", "metadata": {"tool_calls": [FIND]}}) is None
    assert check({"answer": json.dumps([FIND])}) is None


async def test_an_unknown_figure_is_ungraded_and_never_zero():
    for name, key in (("cost", "cost_usd"), ("latency", "latency_s"), ("tokens", "completion_tokens")):
        for facts in ({}, {key: None}, {key: float("nan")}, {key: -1.0}, {key: "0.1"}):
            verdict = await scored(name, {"worst": 1.0}, facts, tokens=None)
            assert verdict == Abstained(name, f"the {key} of the attempt is not known"), facts


async def test_cost_is_a_part_of_a_composite_whose_policy_decides_what_unknown_means():
    parts = [{"name": "gt", "weight": 3.0}, {"name": "cost", "weight": 1.0, "options": {"worst": 0.1}}]
    for policy, known, unknown in (("fail", 0.875, None), ("skip", 0.875, 1.0)):
        options = {"parts": parts, "on_abstain": policy}
        assert (await scored("composite", options, {"cost_usd": 0.05}, answer="done")).score == known
        assert getattr(await scored("composite", options, {}, answer="done"), "score", None) == unknown


def test_the_ends_of_a_figure_are_checked_before_anything_is_spent():
    for options in ({}, {"worst": 0.0}, {"worst": 1, "best": 1}, {"worst": float("inf")}, {"worst": "1"}):
        with pytest.raises(PipelineError):
            build_scorer("cost", options)


SCHEMA = "CREATE TABLE pets (name TEXT, kind TEXT, weight REAL);"
ROWS = "INSERT INTO pets VALUES ('Rex', 'dog', 30.1), ('Tom', 'cat', 4.2), ('Kim', 'cat', 3.9), ('Tom', 'dog', 9.0);"
MANY = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
ENDLESS = MANY.replace("SELECT x FROM", "SELECT count(*) FROM")


def graded(query, reference, **options):
    record = {"answer": reference, "metadata": {"schema": SCHEMA, "rows": ROWS}}
    return SqlResult(**options).score_one(GraderInput.of("s:0", record, query))


def test_rows_are_compared_and_their_order_only_if_the_reference_has_one():
    table = rows_of("sql_result", "rows_are_compared_and_their_order_only_if_the_reference_has_one")
    for query, reference, score in table:
        assert graded(query, reference).score == score, query


def test_a_query_reads_and_does_nothing_else(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect(tmp_path / "pets.db") as database:
        database.executescript(SCHEMA + ROWS)
    database.close()
    before = (tmp_path / "pets.db").read_bytes()
    record = {"answer": "SELECT 1", "metadata": {"database": "pets.db"}}
    for query in (
        "DROP TABLE pets", "DELETE FROM pets", "INSERT INTO pets VALUES ('a', 'b', 1)", "ATTACH DATABASE 'x.db' AS x",
        "PRAGMA journal_mode = WAL", "VACUUM INTO 'x.db'", "CREATE TABLE t(a)", "SELECT load_extension('x')",
    ):  # fmt: skip
        verdict = SqlResult().score_one(GraderInput.of("s:0", record, query))
        assert (verdict.score, "auth" in verdict.evidence) == (0.0, True), query
    assert (tmp_path / "pets.db").read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["pets.db"]


def test_a_database_is_a_file_below_the_folder(tmp_path, monkeypatch):
    (tmp_path / "dbs").mkdir()
    with sqlite3.connect(tmp_path / "dbs" / "a?b#.db") as database:
        database.executescript(SCHEMA + ROWS)
    database.close()
    (tmp_path / "outside.db").write_bytes((tmp_path / "dbs" / "a?b#.db").read_bytes())
    scorer = SqlResult(folder=str(tmp_path / "dbs"))

    def score(name):
        record = {"answer": "SELECT 4", "metadata": {"database": name}}
        return scorer.score_one(GraderInput.of("s:0", record, "SELECT count(*) FROM pets")).score

    assert score("a?b#.db") == 1.0
    for name in ("../outside.db", "missing.db", str(tmp_path / "outside.db")):
        with pytest.raises(RewardError, match="is no file of"):
            score(name)
    with pytest.raises(PipelineError, match="a folder that exists"):
        build_scorer("sql_result", {"folder": str(tmp_path / "nowhere")})


def test_a_query_without_end_is_wrong_and_a_reference_without_end_unusable(monkeypatch):
    monkeypatch.setattr(sql_result, "MOST_STEPS", 1_000_000)
    assert graded(ENDLESS, "SELECT 1").evidence == "no end within 1,000,000 instructions"
    with pytest.raises(RewardError, match="the reference query cannot be run"):
        graded("SELECT 1", ENDLESS)
    assert graded(MANY, "SELECT 1 UNION ALL SELECT 3").evidence == "expected no further row, got (2,)"
    assert graded("SELECT hex(zeroblob(1000000000))", "SELECT 1").score == 0.0


def test_records_that_no_query_can_be_compared_with_are_counted_beforehand():
    for record, reason in (
        ({"answer": "SELECT 1"}, "the record has no database"),
        ({"answer": "the answer is 4", "metadata": {"schema": SCHEMA}}, "is no SQL query"),
        ({"answer": "SELECT 1", "metadata": {"database": "no.db"}}, "is no file of"),
    ):
        assert reason in SqlResult().unusable(record)
        with pytest.raises(RewardError):
            SqlResult().score_one(GraderInput.of("s:0", record, "SELECT 1"))
    assert SqlResult().unusable({"answer": "-- all\n(SELECT 1)", "metadata": {"schema": SCHEMA}}) is None

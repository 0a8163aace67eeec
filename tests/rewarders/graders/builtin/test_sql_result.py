"""``sql_result``: rows of known answers, and queries that may not do more than read."""

from __future__ import annotations

import sqlite3

import pytest

from tests.support.vectors import rows_of
from tfgrpo.rewarders.graders.builtin import sql_result
from tfgrpo.rewarders.graders.builtin.sql_result import SqlResult
from tfgrpo.rewarders.registry import build_scorer
from tfgrpo.rewarders.scorer import GraderInput
from tfgrpo.stores.errors import PipelineError, RewardError

SCHEMA = "CREATE TABLE pets (name TEXT, kind TEXT, weight REAL);"
ROWS = "INSERT INTO pets VALUES ('Rex', 'dog', 30.1), ('Tom', 'cat', 4.2), ('Kim', 'cat', 3.9), ('Tom', 'dog', 9.0);"
MANY = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT x FROM n"
ENDLESS = MANY.replace("SELECT x FROM", "SELECT count(*) FROM")


def graded(query, reference, **options):
    record = {"answer": reference, "metadata": {"schema": SCHEMA, "rows": ROWS}}
    return SqlResult(**options).score_one(GraderInput.of("s:0", record, query))


@pytest.mark.parametrize(
    ("query", "reference", "score"), rows_of("sql_result", "rows_are_compared_and_their_order_only_if_the_reference_has_one")
)
def test_rows_are_compared_and_their_order_only_if_the_reference_has_one(query, reference, score):
    assert graded(query, reference).score == score


def test_the_evidence_is_the_first_row_that_differs_or_the_error():
    assert graded("SELECT name FROM pets", "SELECT kind FROM pets LIMIT 1").evidence == "expected ('dog',), got ('Rex',)"
    assert graded("SELECT 1", "SELECT 1 UNION ALL SELECT 2").evidence == "expected (2,), got no further row"
    assert graded("SELECT x FROM pets", "SELECT 1").evidence == "OperationalError: no such column: x"


@pytest.mark.parametrize(
    "query",
    [
        "DROP TABLE pets", "DELETE FROM pets", "INSERT INTO pets VALUES ('a', 'b', 1)", "ATTACH DATABASE 'x.db' AS x",
        "PRAGMA journal_mode = WAL", "VACUUM INTO 'x.db'", "CREATE TABLE t(a)", "SELECT load_extension('x')",
    ],
)  # fmt: skip
def test_a_query_reads_and_does_nothing_else(query, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with sqlite3.connect(tmp_path / "pets.db") as database:
        database.executescript(SCHEMA + ROWS)
    database.close()
    before = (tmp_path / "pets.db").read_bytes()
    record = {"answer": "SELECT 1", "metadata": {"database": "pets.db"}}
    verdict = SqlResult().score_one(GraderInput.of("s:0", record, query))
    assert verdict.score == 0.0
    assert "auth" in verdict.evidence
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


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ({"answer": "SELECT 1"}, "the record has no database"),
        ({"answer": "the answer is 4", "metadata": {"schema": SCHEMA}}, "is no SQL query"),
        ({"answer": "SELECT 1", "metadata": {"database": "no.db"}}, "is no file of"),
    ],
)
def test_records_that_no_query_can_be_compared_with_are_counted_beforehand(record, reason):
    assert reason in SqlResult().unusable(record)
    sound = {"answer": "-- all\n(SELECT 1)", "metadata": {"schema": SCHEMA}}
    assert SqlResult().unusable(sound) is None
    with pytest.raises(RewardError):
        SqlResult().score_one(GraderInput.of("s:0", record, "SELECT 1"))

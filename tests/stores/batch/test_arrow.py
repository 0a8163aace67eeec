"""Groups as tables: everything comes back, in pieces, and a foreign file is refused."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.records.rollout_groups import full_group, group, rollout
from tfgrpo.stores.batch.arrow import read_parquet, write_parquet
from tfgrpo.stores.errors import DatasetError, RecordRejected, SettingsError, ShapeError, StoreError

GROUPS = [full_group(), group("q2", (None, 0.5)), group("empty", (), target_size=4), group("q3")]


def test_every_rollout_is_a_row_and_a_group_without_any_is_one_too(tmp_path):
    path = tmp_path / "groups.parquet"
    write_parquet(path, GROUPS)
    assert pq.read_table(path).column("reward").to_pylist() == [1.0, None, None, 0.5, None, 1.0, 0.0]
    assert list(read_parquet(path)) == GROUPS


def test_every_field_round_trips_through_a_file_of_any_length(tmp_path):
    path = tmp_path / "out" / "groups.parquet"
    many = [*GROUPS, *(group(f"n{index}", (1.0, 0.0, 0.5)) for index in range(1_500))]
    assert write_parquet(path, iter(many)) == 6 + 4_500
    assert pq.ParquetFile(path).num_row_groups == 2
    assert list(read_parquet(path)) == many
    assert path.stat().st_mode & 0o777 == 0o600
    assert [file.name for file in path.parent.iterdir()] == ["groups.parquet"]


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "groups.parquet"
    write_parquet(path, [group("old")])
    with pytest.raises(ShapeError):
        write_parquet(path, [group("new"), group("bad", rollouts=(rollout("other"),))])
    with pytest.raises(RecordRejected, match="'nan'"):
        write_parquet(path, [group("nan", state={"x": math.nan})])
    assert [made.id for made in read_parquet(path)] == ["old"]
    assert [file.name for file in tmp_path.iterdir()] == ["groups.parquet"]


def test_an_unwritable_path_is_a_store_error(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        write_parquet(tmp_path / "file" / "groups.parquet", [group()])


def test_foreign_files_are_refused(tmp_path):
    path = tmp_path / "x.parquet"
    with pytest.raises(DatasetError, match="no such file"):
        list(read_parquet(path))
    path.write_text("text")
    with pytest.raises(DatasetError, match="a Parquet file"):
        list(read_parquet(path))
    pq.write_table(pa.table({"prompt": ["a"]}), path)
    with pytest.raises(DatasetError, match=r"without .*completion.*accepted: rollout groups as tfgrpo writes them"):
        list(read_parquet(path))
    write_parquet(path, GROUPS)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({}), path)
    with pytest.raises(DatasetError, match="schema version None"):
        list(read_parquet(path))
    for name, value, reason in (
        ("state", "{", "columns of JSON text"),
        ("state", None, "columns of JSON text"),
        ("logprob_kind", "", "logprob.kind"),
    ):
        place = table.schema.get_field_index(name)
        column = pa.array([value] * table.num_rows, pa.string())
        pq.write_table(table.set_column(place, table.schema.field(place), column), path)
        with pytest.raises(DatasetError, match=reason):
            list(read_parquet(path))


def test_without_pyarrow_the_error_names_the_extra(monkeypatch, tmp_path):
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    with pytest.raises(SettingsError, match=r"tfgrpo\[parquet\]"):
        write_parquet(tmp_path / "groups.parquet", [group()])

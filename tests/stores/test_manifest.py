"""The manifest says what the run was, whole at any moment."""

import json
import stat

import pytest

from tfgrpo.stores.errors import CorruptFile, RecordRejected
from tfgrpo.stores.files.atomic import is_signed_file
from tfgrpo.stores.files.layout import TaskPaths
from tfgrpo.stores.runs import ManifestFile


@pytest.fixture
def path(tmp_path):
    return TaskPaths.of(tmp_path / "out", "task").run("r1").manifest


def test_a_run_has_one_manifest_at_its_path(path, tmp_path):
    ManifestFile(path).update(settings={"a": 1}, status="running", simulated=True)
    ManifestFile(path).update(status="finished")
    assert path == tmp_path / "out" / "task" / "runs" / "r1" / "manifest.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    content = json.loads(path.read_text())
    assert content == ManifestFile(path).read()
    assert (content["settings"], content["status"], content["simulated"]) == ({"a": 1}, "finished", True)


def test_the_four_parts_of_the_tfgrpo_block_are_there_from_the_start(path):
    manifest = ManifestFile(path)
    assert manifest.read() == {}
    manifest.update(run_id="r1")
    content = manifest.read()
    assert is_signed_file(path, content)
    assert content == {
        "schema_version": 1,
        "sha256": content["sha256"],
        "run_id": "r1",
        "status": "running",
        "warnings": [],
        "tfgrpo": {"epochs": [], "experiences_written": 0, "reward_scores": {}, "per_tool_metrics": []},
    }


def test_a_lasting_warning_is_in_both_lists(path):
    manifest = ManifestFile(path)
    for text, lasting in (("a", False), ("b", True), ("b", True), ("a", True)):
        manifest.warn(text, lasting=lasting)
    assert (manifest.read()["warnings"], manifest.read()["lasting_warnings"]) == (["a", "b"], ["b", "a"])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"status": "done"}, "running, finished, stopped, failed"),
        ({"tfgrpo": {"epochs": []}}, "lacks experiences_written, reward_scores, per_tool_metrics"),
        ({"x": float("nan")}, "not JSON compliant"),
        ({"x": object()}, "serializable"),
    ],
)
def test_an_invalid_manifest_is_refused_and_the_file_unchanged(path, fields, message):
    manifest = ManifestFile(path)
    manifest.update(run_id="r1")
    before = path.read_bytes()
    with pytest.raises(RecordRejected, match=message):
        manifest.update(**fields)
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == ["manifest.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"schema_version": 2}', '{"schema_version": "1"}'])
def test_a_file_that_is_no_manifest_is_refused(path, text):
    path.parent.mkdir(parents=True)
    path.write_text(text)
    with pytest.raises(CorruptFile, match="is not a manifest"):
        ManifestFile(path).read()

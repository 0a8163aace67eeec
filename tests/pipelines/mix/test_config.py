"""A file of the mix form loads as it always did, and every mistake in it is told at once with what would do."""

from pathlib import Path
from typing import Any

import pytest

from tests.support.pipelines.data_server import graded, in_process, item
from tests.support.pipelines.mixes import document, write_mix, write_rows
from tfgrpo.pipelines.mix.config import is_mix, load_mix_config
from tfgrpo.rewarders.composite import Composite
from tfgrpo.rewarders.graders.remote import RemoteGrader
from tfgrpo.stores.errors import PipelineError

GRADER = """
from sibling import BONUS

class Constant:
    def __init__(self, reward=0.5):
        self.reward = reward
    def grade_batch(self, inputs):
        return [{"sample_id": item.sample_id, "reward": self.reward + BONUS} for item in inputs]
"""


def refusal(path: Path) -> list[str]:
    with pytest.raises(PipelineError) as caught:
        load_mix_config(path)
    return [str(problem).removeprefix(f"{path.resolve()}: ") for problem in caught.value.problems]


def named(graders: Composite) -> tuple[dict[str, float], list[str]]:
    """Return the weights of the graders in the sum, and the graders that multiply."""
    return {each.scorer.rewarder_id: each.weight for each in graders.parts}, [gate.rewarder_id for gate in graders.gates]


def refused(folder: Path, **changes: Any) -> list[str]:
    return refusal(write_mix(folder, **changes))


def test_what_the_form_always_took_is_still_taken(tmp_path):
    """Numbers as text and fractions of steps, anchors, empty sections, duplicate entries, files nothing draws from."""
    write_mix(tmp_path)
    write_rows(tmp_path / "data" / "empty.jsonl", [])
    path = tmp_path / "rl_data_config.yaml"
    path.write_text(
        """
paths: {data_root: data}
datasets:
  a: &a
    path: a.jsonl
    graders:
    grader_weights: []
    multiplicative_graders: ""
  b:
    <<: *a
    graders: [math_exact, json_valid]
    grader_weights: ["0.5", true]
    multiplicative_graders: {}
  empty: {path: empty.jsonl, multiplicative_graders: false}
external_graders:
python_graders: {}
stages:
  - {name: 1, until_step: true, datasets: [{id: a, weight: 0}, {id: a, weight: "2"}, {id: a, weight: 1}]}
  - {name: yes, until_step: "7", datasets: [{id: a, weight: 1}]}
  - {name: last, until_step: 8.9, datasets: [{id: b, weight: .5}, {id: empty, weight: 0.0}]}
""",
        encoding="utf-8",
    )
    config = load_mix_config(path)
    assert [(stage.name, stage.until_step) for stage in config.stages] == [("1", 1), ("True", 7), ("last", 8)]
    assert config.stages[0].shares == {"a": 1.0}
    assert named(config.datasets["b"].graders) == ({"math_exact": 0.5, "json_valid": 1.0, "reasoning_format": 1.0}, [])
    assert config.datasets["b"].records.path == config.datasets["a"].records.path
    assert len(config.datasets["empty"].records) == 0
    assert config.seed is None


def test_a_grader_with_a_missing_library_is_refused_with_its_extra(tmp_path, monkeypatch):
    monkeypatch.setattr("tfgrpo.rewarders.options.find_spec", lambda name: None)
    changed = document()
    changed["datasets"]["a"]["graders"] = ["math_verify"]
    (told,) = refusal(write_mix(tmp_path, changed))
    assert told.startswith("datasets.a.graders.0: got 'math_verify' with no math-verify; accepted: ")
    assert 'pip install "tfgrpo[math]"' in told


def test_a_config_with_every_kind_of_error_reports_all_of_them_at_once(tmp_path):
    write_mix(tmp_path)
    write_rows(tmp_path / "data" / "bad.jsonl", [{"prompt": "x"}, "{", "", "[1] 2"])
    (tmp_path / "graders.py").write_text("class Broken:\n    pass\nother = 5\n", encoding="utf-8")
    path = tmp_path / "rl_data_config.yaml"
    path.write_text(
        """
seed: -1
speed: 3
paths: {data_root: data, root: x}
datasets:
  missing: {path: none.jsonl}
  bad: {path: bad.jsonl}
  pathless: {graders: [], sort: true}
  a:
    path: a.jsonl
    graders: [math_exact, mth_exact, reasoning_format, 5, category_match]
    grader_weights: [1, .nan, -1, x]
  letters: {path: a.jsonl, graders: math_exact, multiplicative_graders: json_valid}
  gated: {path: a.jsonl, multiplicative_graders: [remote, unheard_of]}
external_graders:
  remote: {type: grpc, url: "http://h/"}
  two: {type: remote_http, url: "ftp://h/", timeout_s: 60}
  three: {url: 5, timeout_s: 0, color: red, retries: many}
python_graders:
  none: {init_kwargs: {a: 1}}
  both: {path: "graders.py:Broken", builtin: math_exact}
  wrong: {path: "graders.py:other"}
  absent: {path: "gone.py:Thing"}
  kwargs: {builtin: completion_length_cap, init_kwargs: {limit: 3}}
  text: math_exact
  odd: {imprt: "graders:Broken"}
  module: {import: graders}
  file: {path: graders.py}
  unheard: {builtin: unheard_of}
stages:
  - {name: first, until_step: 10, datasets: [{id: a, weight: 1}, {id: z, weight: 1}]}
  - {until_step: 10, datasets: []}
  - {name: third, until_step: soon, datasets: [{id: a, weight: 0}]}
  - {name: fourth, until_step: 5, datasets: [{id: a, weight: .inf}, {weight: 1}, 3], extra: 1}
""",
        encoding="utf-8",
    )
    told = refusal(path)
    data = tmp_path / "data"
    expected = [
        ("speed", "got an unknown key"),
        ("seed", "got -1; accepted: a whole number of at least 0, or no seed"),
        ("external_graders.remote.type", "got 'grpc'; accepted: remote_http"),
        ("external_graders.two.url", "accepted: "),
        ("external_graders.three.color", "got an unknown key"),
        ("external_graders.three.type", "got nothing; accepted: remote_http"),
        ("external_graders.three.url", "got 5; accepted: text that is not empty"),
        ("external_graders.three.timeout_s", "got 0; accepted: a finite number above 0"),
        ("external_graders.three.retries", "got 'many'"),
        ("python_graders.none", "exactly one of import, path, builtin"),
        ("python_graders.both", "exactly one of import, path, builtin"),
        ("python_graders.wrong.path", "graders.py:other: got a int; accepted: a function of"),
        ("python_graders.absent.path", "got 'gone.py', which is no file"),
        ("python_graders.kwargs.builtin", "init_kwargs.limit: got 3"),
        ("python_graders.kwargs.builtin", "init_kwargs.max_completion_tokens: got nothing"),
        ("python_graders.text", "got 'math_exact'; accepted: a mapping"),
        ("python_graders.odd.imprt", "got an unknown key; accepted: import (did you mean that?)"),
        ("python_graders.module.import", "got 'graders'; accepted: module:attr"),
        ("python_graders.file.path", "got 'graders.py'; accepted: file.py:attr"),
        ("python_graders.unheard.builtin", "got 'unheard_of'; accepted: "),
        ("paths.root", "got an unknown key; accepted: data_root"),
        ("datasets.missing.path", f"got {str(data / 'none.jsonl')!r}: No such file or directory"),
        ("", f"{data / 'bad.jsonl'}:2: got no JSON"),
        ("", f"{data / 'bad.jsonl'}:4: got no JSON"),
        ("datasets.pathless.sort", "got an unknown key"),
        ("datasets.pathless.path", "got nothing; accepted: text that is not empty"),
        ("datasets.a.grader_weights", "got weights: 4, graders: 5; accepted: a weight for every grader"),
        ("datasets.a.grader_weights.1", "got nan; accepted: a number from 0 to 1e100"),
        ("datasets.a.grader_weights.2", "got -1; accepted: a number from 0 to 1e100"),
        ("datasets.a.grader_weights.3", "got 'x'; accepted: a number from 0 to 1e100"),
        ("datasets.a.graders.1", "got 'mth_exact'; accepted: math_exact (did you mean that?)"),
        ("datasets.a.graders.2", "the format grader is added to every dataset"),
        ("datasets.a.graders.3", "got 5; accepted: the name of a grader"),
        ("datasets.a.graders.4", "an entry of python_graders with builtin: category_match and init_kwargs"),
        ("datasets.letters.graders", "got 'math_exact'; accepted: a list"),
        ("datasets.letters.multiplicative_graders", "got 'json_valid'; accepted: a list"),
        ("datasets.gated.multiplicative_graders.1", "got 'unheard_of'"),
        ("stages.0.datasets.1.id", "got 'z'"),
        ("stages.1.name", "got nothing; accepted: the name of the stage"),
        ("stages.1.until_step", "got 10 after 10; accepted: a step above that of the stage before"),
        ("stages.1.datasets", "got no weight above 0; accepted: a weight above 0"),
        ("stages.2.until_step", "got 'soon'; accepted: a whole number"),
        ("stages.2.datasets", "got no weight above 0"),
        ("stages.3.extra", "got an unknown key"),
        ("stages.3.until_step", "got 5 after 10"),
        ("stages.3.datasets.0.weight", "got inf; accepted: a number from 0 to 1e100"),
        ("stages.3.datasets.1.id", "got nothing; accepted: text that is not empty"),
        ("stages.3.datasets.2", "got 3; accepted: a mapping"),
    ]
    for key, text in expected:
        assert [line for line in told if line.startswith(f"{key}:" if key else text) and text in line], (key, text)
    assert len(told) == len(expected)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "got nothing; accepted: a mapping"),
        ("- 1\n", "got a list of 1; accepted: a mapping"),
        ("a: [\n", ":2: got "),
        ("a: !!python/object:os.system {}\n", ":1: got could not determine a constructor"),
        ("a: \x00", "got "),
        ("a: *b\n", "got found undefined alias"),
        ("a: 1\na: 2\n", ":2: got a second 'a'; accepted: every key once"),
        ("a: {7: x}\n", ":1: got a key that is no text; accepted: text, in quotes where it looks like a number"),
    ],
)
def test_a_file_that_is_no_mapping_is_refused_by_line(tmp_path, text, told):
    path = tmp_path / "mix.yaml"
    path.write_text(text, encoding="utf-8")
    assert any(told in line for line in refusal(path))


def test_what_has_datasets_is_a_mix_and_no_pipeline(tmp_path):
    path = tmp_path / "rl_data_config.yaml"
    for text, expected in {"datasets: {7: x}\n": True, "datasets: {}\ndatasets: {}\n": True, "a: 1": False, "[": False}.items():
        path.write_text(text, encoding="utf-8")
        assert is_mix(path) is expected


def test_unreadable_files_are_refused(tmp_path):
    assert refusal(tmp_path / "none.yaml") == ["got No such file or directory; accepted: a file that can be read"]
    (tmp_path / "latin.yaml").write_bytes(b"a: \xff\n")
    assert "no UTF-8 at byte 3" in refusal(tmp_path / "latin.yaml")[0]
    changed = document()
    changed["datasets"]["a"]["path"] = "sub"
    given = f"got {str(tmp_path / 'data' / 'sub')!r}: Is a directory"
    assert refusal(write_mix(tmp_path, changed)) == [f"datasets.a.path: {given}; accepted: a JSONL file that can be read"]


def test_every_section_of_the_form_is_required_and_a_bad_root_is_reported_once(tmp_path):
    for missing in ("paths", "datasets", "stages"):
        changed = document()
        del changed[missing]
        assert any(line.startswith(f"{missing}: got n") for line in refusal(write_mix(tmp_path, changed)))
    assert refused(tmp_path, paths={}) == ["paths.data_root: got nothing; accepted: text that is not empty"]
    changed = document(paths={"data_root": 3})
    changed["datasets"]["a"]["path"] = str(tmp_path / "none.jsonl")  # an absolute path needs no root
    assert len(refusal(write_mix(tmp_path, changed))) == 2


def test_a_token_in_place_of_its_variable_is_refused_and_never_shown(tmp_path):
    told = "token_env: got no such name; accepted: the name of an environment variable, never the token itself"
    for token in ("sk-abc", 12345678, [12345678], 1.5):
        remote = {"type": "remote_http", "url": "http://127.0.0.1:9/g", "token_env": token}
        assert refused(tmp_path, external_graders={"far": remote}) == [f"external_graders.far.{told}"]


async def test_declared_graders_override_built_in_ones_and_python_overrides_external(tmp_path):
    (tmp_path / "graders.py").write_text(GRADER, encoding="utf-8")
    (tmp_path / "sibling.py").write_text("BONUS = 0.25\n", encoding="utf-8")
    changed = document(
        external_graders={
            "math_exact": {"type": "remote_http", "url": "http://127.0.0.1:9/g", "timeout_s": "5", "retries": 0},
            "json_valid": {"type": "remote_http", "url": "http://127.0.0.1:9/g"},
        },
        python_graders={"json_valid": {"path": "graders.py:Constant", "init_kwargs": {"reward": 0.5}, "import": None}},
    )
    changed["datasets"]["b"]["multiplicative_graders"] = ["json_valid", "json_valid"]
    path = write_mix(tmp_path, changed)
    remote = load_mix_config(path).datasets["a"].graders.parts[0]
    assert remote.scorer.made_from == RemoteGrader("http://127.0.0.1:9/g", timeout_s=5.0, retries=0)
    assert (remote.scorer.rewarder_id, remote.weight) == ("math_exact", 3.0)
    async with in_process(path) as (client, _):
        (grade,) = await graded(client, item("<think>a</think>\nb", "b:0"))
    assert grade["reward"] == pytest.approx(1.0 * 0.75 * 0.75)

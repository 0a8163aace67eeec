"""Groups that somebody else collected come in whole or not at all, and everything wrong with them is told at once."""

from __future__ import annotations

import json

import pytest

from tests.support.agents.exports import export, group
from tfgrpo.stores.batch.lines import lines_of_group, read_groups
from tfgrpo.stores.errors import DatasetError
from tfgrpo.tasks.exports.importing import import_groups, load_batch

LISTS = {
    "states": ["3 + 4?", [{"role": "user", "content": "1 + 1?"}]],
    "action_groups": [["7", "8"], ["2", "3"]],
    "reward_groups": [[1, 0], [0.5, 0.25]],
    "log_prob_old_groups": [[-0.5, -1.5], [-0.25, -2.0]],
}


@pytest.fixture
def file(tmp_path):
    def file(value, name="in.json"):
        text = value if isinstance(value, str) else json.dumps(value)
        (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path / name

    return file


def problems(path, form, tmp_path):
    with pytest.raises(DatasetError) as caught:
        import_groups(path, form, tmp_path / "out.jsonl")
    assert not (tmp_path / "out.jsonl").exists()
    return [str(problem) for problem in caught.value.problems]


def test_four_lists_become_groups_that_can_be_exported(file, tmp_path):
    assert import_groups(file(LISTS), "lists", tmp_path / "out.jsonl") == (2, 4)
    back = list(read_groups(tmp_path / "out.jsonl"))
    assert [known.rewards for known in back] == [(1.0, 0.0), (0.5, 0.25)]
    assert back[0].rollouts[1].logprob.total == -1.5
    rows, _ = export(back, "trl-dpo", tmp_path / "dpo.jsonl")
    assert [row["chosen"][0]["content"] for row in rows] == ["7", "2"]


def test_the_lists_are_a_batch_in_memory_too(file):
    lists = load_batch(file(LISTS), "lists").to_lists()
    assert lists.reward_groups == [[1.0, 0.0], [0.5, 0.25]]
    assert lists.log_prob_old_groups == LISTS["log_prob_old_groups"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"reward_groups": [[1, 0]]}, "rewards"),
        ({"reward_groups": [[1, 0], [1, "x"]]}, "rewards"),
        ({"action_groups": [["7", "8"]]}, "action_groups"),
        ({"states": "ab"}, "states"),
        ({"group_size": 3}, "group_size|action_groups"),
        ({"ids": ["a"]}, "ids"),
        ({"typo": 1}, "typo: got an unknown key"),
    ],
)
def test_inconsistent_lists_are_refused(change, says, file, tmp_path):
    told = "\n".join(problems(file({**LISTS, **change}), "lists", tmp_path))
    assert any(part in told for part in says.split("|")), told


def test_missing_lists_are_all_named(file, tmp_path):
    told = problems(file({"states": ["a"], "typo": 1, "other": 2}), "lists", tmp_path)
    assert len(told) == 4


def test_an_unknown_key_hides_no_other_problem(file, tmp_path):
    told = problems(file({**LISTS, "typo": 1, "states": "ab"}), "lists", tmp_path)
    assert ["typo: got" in told[0], any("states: got a text" in line for line in told[1:])] == [True, True]


@pytest.mark.parametrize(
    ("text", "says"), [("{", "no JSON"), ("[1]", "no JSON object"), ('{"reward_groups": [NaN]}', "states")]
)
def test_a_file_that_is_not_an_object_of_lists_is_refused(text, says, file, tmp_path):
    assert says in "\n".join(problems(file(text), "lists", tmp_path))


def test_nan_in_the_lists_is_refused(file, tmp_path):
    assert "nan" in "\n".join(
        problems(file({**LISTS, "reward_groups": [[1, float("nan")], [0, 1]]}), "lists", tmp_path)
    )


@pytest.mark.parametrize("form", ["lists", "jsonl"])
def test_a_missing_file_is_named(form, tmp_path):
    assert "no such file" in problems(tmp_path / "none", form, tmp_path)[0]


def canonical(*groups):
    return "".join(f"{line}\n" for known in groups for line in lines_of_group(known))


def test_canonical_lines_come_back_as_they_were(file, tmp_path):
    path = file(canonical(group(1.0, 0.0), group(0.5, None, name="h")), "in.jsonl")
    assert import_groups(path, "jsonl", tmp_path / "out.jsonl") == (2, 4)
    assert (tmp_path / "out.jsonl").read_text() == path.read_text()
    assert load_batch(path, "jsonl").groups == tuple(read_groups(path))


def test_every_invalid_group_is_reported_with_its_line(file, tmp_path):
    lines = canonical(*(group(1.0, 0.0, name=name) for name in "abcde")).splitlines()
    lines[1] = lines[1].replace('"reward":1.0', '"reward":"much"')
    lines[5] = lines[5].replace('"status":"ok"', '"status":"fine"')
    del lines[8]
    told = problems(file("\n".join([*lines, "no json"]) + "\n", "in.jsonl"), "jsonl", tmp_path)
    places = [problem.split(": ")[0].removeprefix(str(tmp_path / "in.jsonl")) for problem in told]
    assert places[0].startswith(":2")
    assert places[1].startswith(":6")
    assert places[2].startswith(":7")
    assert len(told) == 4


def test_two_groups_of_one_id_are_refused(file, tmp_path):
    told = problems(file(canonical(group(1.0, 0.0), group(1.0, 0.0)), "in.jsonl"), "jsonl", tmp_path)
    assert "in.jsonl:4: got two groups with the id 'g'" in told[0]
    with pytest.raises(DatasetError, match=r"in\.jsonl:4: got two groups with the id 'g'"):
        load_batch(tmp_path / "in.jsonl", "jsonl")


def test_a_file_without_groups_is_refused(file, tmp_path):
    assert "in.jsonl: got no group" in problems(file("", "in.jsonl"), "jsonl", tmp_path)[0]


def test_of_very_many_problems_the_first_are_reported(file, tmp_path):
    bad = canonical(*(group(1.0, 0.0, name=f"g{number}") for number in range(80))).replace(
        '"reward":1.0', '"reward":"x"'
    )
    told = problems(file(bad, "in.jsonl"), "jsonl", tmp_path)
    assert len(told) == 51
    assert "more problems like these" in told[-1]


def test_a_broken_line_inside_a_group_hides_no_other_problem(file, tmp_path):
    lines = canonical(group(1.0, 0.0), group(1.0, 0.0, name="h")).splitlines()
    lines.insert(1, '{"kind":"group", broken')
    told = problems(file("\n".join(lines) + "\n", "in.jsonl"), "jsonl", tmp_path)
    assert len(told) == 1
    assert ":2" in told[0]


def test_text_that_mentions_a_group_does_not_start_one(file, tmp_path):
    odd = group(1.0, 0.0, metadata={"note": '{"kind":"group"}', "answer": '"kind": "group"'})
    assert import_groups(file(canonical(odd), "in.jsonl"), "jsonl", tmp_path / "out.jsonl") == (1, 2)

"""Every change to the files of an ended run is named by ``tfgrpo verify``, without a traceback."""

import json
import os
import random
from itertools import combinations
from pathlib import Path

import pytest

from tests.support.records.line_files import seal, sign
from tests.support.runs import running as kit
from tfgrpo.flows import cli
from tfgrpo.flows.orchestration.request import SelectRequest
from tfgrpo.flows.run import damage
from tfgrpo.flows.run.lessons import ServedLessons
from tfgrpo.flows.selection import select
from tfgrpo.stores.files.lines import LineFile

pytestmark = pytest.mark.usefixtures("at_home")


@pytest.fixture
def verify(own_run, capsys):
    def verify(name=kit.TASK):
        """Return exit code and problems."""
        capsys.readouterr()
        code = cli.main(["verify", name, "--out", str(own_run.out), "--json"])
        said = capsys.readouterr()
        assert "Traceback" not in said.err
        return code, json.loads(said.out)["problems"]

    return verify


def kept_files(root):
    """The files of a task, locks aside, smallest first."""
    found = [path for path in root.rglob("*") if path.is_file() and path.name != ".lock"]
    return sorted(found, key=lambda path: path.stat().st_size)


def flip(at):
    def change(path):
        data = bytearray(path.read_bytes())
        data[at % len(data)] ^= 0x04
        path.write_bytes(data)

    return change


def cut(to):
    """Cut to a share of the bytes, also at a line end."""
    return lambda path: path.write_bytes(path.read_bytes()[: int(to * path.stat().st_size)])


def cut_lines(path):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))


def zero(path):
    path.write_bytes(b"\0" * path.stat().st_size)


def edit(path):
    """Change a figure, and give the lines their checksums again."""
    text = path.read_text()
    figure = next(digit for digit in "5721" if digit in text)
    place = text.rindex(figure)
    path.write_text(f"{text[:place]}{int(figure) + 1}{text[place + 1 :]}")


def reseal(path):
    """Change a figure in the first line of a file, and give the lines their checksums again."""
    first, *rest = [json.loads(line) for line in path.read_text().splitlines()]
    name = next(name for name, value in reversed(first.items()) if name != "sum" and type(value) in {int, float, str})
    name = next((name for name, value in reversed(first.items()) if type(value) in {int, float}), name)
    first[name] = f"{first[name]}x" if isinstance(first[name], str) else first[name] + 1
    write(path, (first, *rest))


def reseal_last(path):
    """Change the reason in the last line."""
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    write(path, (*rows[:-1], {**rows[-1], "why": "another"}))


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    seal(path, vouched=False)


def drop_first(path):
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[1:]))


CHANGES = {
    "removed": Path.unlink,
    "emptied": cut(0),
    "cut": cut(0.6),
    "the last line removed": cut_lines,
    "the first line removed": drop_first,
    "zeros": zero,
    "text appended": lambda path: path.write_bytes(path.read_bytes() + b"{"),
}


def changes(size, exhaustive):
    """Yield changes of one file."""
    yield from (CHANGES.items() if exhaustive else ((what, CHANGES[what]) for what in ("removed", "the last line removed")))
    chosen = range(0, size, max(1, size // 400)) if exhaustive else random.Random(size).sample(range(size), min(size, 1))
    yield from ((f"byte {at}", flip(at)) for at in chosen)


def sweep(own_run, verify, *, exhaustive=False):
    root, silent = own_run.task.root, []
    assert verify() == (0, [])

    def names(what, *files):
        code, problems = verify()
        if code != 1 or not problems:
            silent.append((what, *(str(path.relative_to(root)) for path in files)))

    files = kept_files(root)
    for path in files:
        whole = path.read_bytes()
        lines = path.suffix == ".jsonl"
        more = [("an edit with checksums", reseal)] if lines else [("an edit", edit)]
        for what, change in (*changes(len(whole), exhaustive), *more):
            change(path)
            if not path.exists() or path.read_bytes() != whole:
                names(what, path)
            path.write_bytes(whole)
    pairs = list(combinations(files, 2))
    for one, other in pairs if exhaustive else random.Random(1).sample(pairs, 3):
        contents = one.read_bytes(), other.read_bytes()
        other.write_bytes(contents[0])
        one.write_bytes(contents[1])
        names("swapped", one, other)
        for path, data in zip((one, other), contents, strict=True):
            path.write_bytes(data)
    assert silent == []
    assert verify() == (0, [])


def test_a_change_of_any_file_of_a_finished_task_is_named(own_run, verify):
    sweep(own_run, verify)


@pytest.mark.slow
@pytest.mark.timeout(7_200)
def test_every_change_of_any_file_of_a_finished_task_is_named(own_run, verify):
    sweep(own_run, verify, exhaustive=True)


def refused(own_run, *words):
    """A night on damaged files is refused before anything is written."""
    before = sorted(own_run.out.rglob("*"))
    summary = kit.run(own_run.out, run_id="next", **kit.SMALL)
    assert (summary.status, summary.exit_code) == ("refused", 2), summary.message
    for word in (*words, "tfgrpo experiences rollback RUN|none"):
        assert word in summary.message
    assert sorted(own_run.out.rglob("*")) == before


def tell(own_run, *arguments):
    return cli.main([*arguments, "--out", str(own_run.out), "--task-id", kit.TASK])


def some(changes, *quick):
    """All of these changes; those that are not quick are slow."""
    return [pytest.param(change, id=name, marks=[] if name in quick else pytest.mark.slow) for name, change in changes.items()]


CREDIT = {"edited": reseal, "cut": cut_lines, "emptied": cut(0), "removed": Path.unlink, "zeros": zero, "flipped": flip(99)}


@pytest.mark.parametrize("change", some(CREDIT, "cut", "zeros"))
def test_no_night_begins_on_damaged_credit_until_a_person_accepts_what_is_left(own_run, verify, capsys, change):
    count = len(kit.lines(own_run.task.credit))
    change(own_run.task.credit)
    flipped_or_zero = change in (zero, CREDIT["flipped"])
    refused(own_run, "credit.jsonl", "damaged" if flipped_or_zero else f"its first {count} lines")
    assert tell(own_run, "experiences", "retire", own_run.summary.details["lessons"][0]["id"], "--why", "x") in {1, 2}
    assert tell(own_run, "experiences", "rollback", "small") == 0
    decided = kit.lines(own_run.task.promotions)[-1]
    assert (decided["decision"], decided["credit_lines"]) == ("rollback", len(own_run.task.credit.read_bytes().splitlines()))
    assert verify() == (0, [])
    assert kit.run(own_run.out, run_id="next", **kit.SMALL).exit_code == 0
    assert verify() == (0, [])


@pytest.mark.parametrize("change", some({"removed": Path.unlink, "cut": cut(0.6), "flipped": flip(99)}, "removed", "flipped"))
def test_no_night_begins_without_the_records_of_what_is_in_force(own_run, verify, capsys, change):
    change(own_run.task.experiences)
    for command in (["experiences", "list"], ["experiences", "review"]):
        assert tell(own_run, *command) == 0
        assert "experiences.jsonl: l" in capsys.readouterr().err, command
    assert tell(own_run, "prune", "--dry-run") == 1
    refused(own_run, "experiences.jsonl: ", "in force left out, not among the task's records")
    assert tell(own_run, "experiences", "rollback", "none") == 0
    assert verify() == (0, [])
    assert kit.run(own_run.out, run_id="next", sample_size=24, batch_size=12).exit_code == 0
    assert verify() == (0, [])
    assert tell(own_run, "prune", "--dry-run") == 0
    assert "lacks" not in capsys.readouterr().err.rpartition("accepted: ")[2]


@pytest.mark.parametrize("name", ["experiences.jsonl", pytest.param("batches.jsonl", marks=pytest.mark.slow)])
def test_what_a_night_moved_away_is_a_warning_of_it_and_named_until_it_is_accepted(own_run, verify, name):
    assert tell(own_run, "experiences", "rollback", "none") == 0
    flip(99)(own_run.task.root / name)
    assert kit.run(own_run.out, run_id="next", sample_size=24, batch_size=12).exit_code == 0
    assert f"1 damaged line of {name} (1) moved to {name}.torn" in kit.manifest(own_run.out, "next")["lasting_warnings"]
    assert any(each.startswith(f"{name}: its first ") and each.endswith("run small ended") for each in verify()[1])
    assert tell(own_run, "experiences", "rollback", "none") == 0
    assert verify() == (0, [])


def test_a_row_that_is_added_in_the_name_of_an_ended_run_is_named(own_run, verify):
    rows = kit.lines(own_run.task.credit)
    added = {name: value for name, value in rows[-1].items() if name != "sum"} | {"line_id": "another"}
    LineFile(own_run.task.credit).append([added])
    said = f"credit.jsonl: line {len(rows) + 1} names run small, which had ended before it was written"
    assert verify() == (1, [said])


TAILS = {
    "torn": cut(0.999),
    "cut": cut_lines,
    "emptied": cut(0),
    "removed": Path.unlink,
    "zeros": zero,
    "flipped": flip(-9),
    "edited": reseal_last,
}


def test_a_run_for_whose_beginning_there_was_no_room_is_no_damage_for_ever(own_run, verify):
    """What a full disk leaves of it."""
    root = own_run.task.run("full").root
    root.mkdir()
    for name in (".lock", "journal.jsonl", "ledger.jsonl"):
        (root / name).touch()
    assert verify() == (0, [])
    (root / "journal.jsonl").write_text("{}\n")
    assert verify()[0] == 1


@pytest.mark.parametrize("change", some(TAILS, "torn", "edited"))
def test_where_the_newest_decision_is_lost_nothing_is_in_force(own_run, verify, capsys, change):
    assert tell(own_run, "experiences", "rollback", "none") == 0
    change(own_run.task.promotions)
    code, problems = verify()
    assert code == 1
    assert any("promotions.jsonl" in each for each in problems)
    said: list[str] = []
    served = ServedLessons(own_run.task, None, said.append, simulated=True)
    assert served.block() == ""
    assert any("promotions.jsonl" in each for each in said)
    capsys.readouterr()
    code = tell(own_run, "experiences", "list", "--json")
    shown = capsys.readouterr()
    assert (json.loads(shown.out)["experiences"] == []) if code == 0 else (code == 1), "damaged lines are refused"
    assert "promotions.jsonl" in shown.err
    where = {"task_id": kit.TASK, "out": str(own_run.out), "dry_run": True}
    selected = select(SelectRequest(prompt="What is 1 + 1?", settings=where), {})
    assert selected.selection.spec.pack.experience_ids == ()
    assert any("promotions.jsonl" in each for each in selected.warnings)
    for command in (["experiences", "review"], ["history"]):
        tell(own_run, *command)
        assert "promotions.jsonl" in capsys.readouterr().err, command
    refused(own_run, "promotions.jsonl")
    assert tell(own_run, "experiences", "rollback", "none") == 0
    assert kit.run(own_run.out, run_id="next", **kit.SMALL).exit_code == 0


@pytest.mark.parametrize("other", [os.mkfifo, pytest.param(lambda path: path.symlink_to("/dev/zero"), id="device")])
def test_a_pipe_or_device_in_the_place_of_a_file_makes_no_command_wait(own_run, verify, capsys, other):
    of_run = own_run.paths.root
    for path in [*own_run.task.root.glob("*.json*"), *of_run.glob("*.*"), of_run / ".lock"]:
        whole = path.read_bytes()
        path.unlink()
        other(path)
        for words in (["runs"], ["history"], ["show", "small"]):
            assert cli.main([*words, "--task-id", kit.TASK, "--out", str(own_run.out)]) in {0, 1, 2}, (path, words)
        code, problems = verify()
        assert path.name == ".lock" or (code == 1 and any(path.name in each for each in problems)), (path, problems)
        path.unlink()
        path.write_bytes(whole)
    capsys.readouterr()


@pytest.mark.parametrize(
    "change", some({"cut": cut(0.5), "empty": cut(0), "zeros": zero, "flipped": flip(30)}, "empty", "flipped")
)
def test_a_damaged_view_is_written_again_with_a_warning(own_run, verify, capsys, change):
    whole = json.loads(own_run.task.state.read_text())
    for command in (["experiences", "list"], ["experiences", "review"], ["history"], ["runs"], ["experiences", "export"]):
        change(own_run.task.state)
        assert tell(own_run, *command) == 0
    assert "state.json was damaged, and is written again" in capsys.readouterr().err
    again = json.loads(own_run.task.state.read_text())
    assert {**again, "updated_at": 0, "sha256": 0} == {**whole, "updated_at": 0, "sha256": 0}
    assert verify() == (0, [])
    change(own_run.task.state)
    assert kit.run(own_run.out, run_id="next", **kit.SMALL).exit_code == 0


def test_a_run_whose_rollouts_were_edited_is_neither_reported_nor_exported(own_run, capsys):
    path = own_run.paths.rollouts
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    rows[0]["outcome"] = {"name": "scored", "reward": 0.93}
    write(path, rows)
    for command in (["report", "small"], ["export", "small", "--to", "trl-grpo"]):
        assert cli.main([*command, "--out", str(own_run.out)]) == 1
        said = capsys.readouterr().err
        assert "rollouts.jsonl: was changed since its run ended" in said
        assert "tfgrpo verify small" in said
    assert not list(own_run.task.root.glob("exports/*"))


def test_one_run_is_checked_with_its_task_and_an_unknown_name_is_refused(own_run, verify, capsys):
    assert verify("small") == (0, [])
    assert cli.main(["verify", "small", "--out", str(own_run.out)]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert cli.main(["verify", "nobody", "--out", str(own_run.out)]) == 2
    assert "RUN|TASK: got 'nobody'; accepted: a run of tfgrpo-learning (small)" in capsys.readouterr().err
    own_run.paths.manifest.unlink()
    assert verify("small")[1] == ["runs/small/manifest.json: is missing"]


def test_a_run_that_goes_on_while_it_is_checked_verifies(own_run, monkeypatch):
    sign(own_run.paths.manifest, status="running", files={}, task_files={})
    growing = (own_run.paths.journal, own_run.paths.rollouts, own_run.paths.ledger)
    now, attempted = [path.read_bytes() for path in growing], damage._attempted
    for path in growing:
        cut_lines(path)

    def goes_on(run):
        for path, data in zip(growing, now, strict=True):
            path.write_bytes(data)
        return attempted(run)

    monkeypatch.setattr(damage, "_attempted", goes_on)
    assert damage.run_problems(own_run.paths) == []


def test_a_stopped_run_verifies_and_a_resumed_one_again(tmp_path, capsys):
    for calls, asked in ((30, {"run_id": "night", **kit.SMALL}), (60, {"resume": "night"}), (None, {"resume": "night"})):
        kit.run(tmp_path, max_calls=calls or 100_000, **asked)
        assert cli.main(["verify", kit.TASK, "--out", str(tmp_path)]) == 0, capsys.readouterr().out

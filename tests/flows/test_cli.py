"""One clear message, one exit code, one JSON object: what the command line promises whatever is typed."""

import inspect
import json
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import click
import pytest

import tfgrpo
from tfgrpo.flows import cli
from tfgrpo.flows.commands.options import grouped
from tfgrpo.flows.commands.table import COMMANDS, TFGRPO
from tfgrpo.flows.console.environment import installed_version
from tfgrpo.flows.console.parsing import Commands, NumberParameter, Words
from tfgrpo.flows.orchestration.request import RunSummary
from tfgrpo.pipelines.settings.layers import setting_fields
from tfgrpo.stores.errors import RunAborted

LEAVES = [
    (name, *action)
    for name, one in COMMANDS.items()
    for action in ([(each,) for each in one.table] if isinstance(one, Commands) else [()])
]


def sample(param):
    """A word that an option accepts."""
    if isinstance(param.type, Words):
        return param.type.words[0]
    return "6" if isinstance(param.type, NumberParameter) and param.type.most > 1 else "1"


@pytest.fixture(autouse=True)
def _home(at_home):
    """Every test types its commands in an empty directory."""


def refused(capsys, *arguments):
    """The problems of a command that is refused, as stdout tells them; stderr must tell them too, in clear."""
    assert cli.main([*arguments, "--json"]) == 2
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert answer["status"] == "refused"
    assert said.out.count("\n") == 1
    assert "Traceback" not in said.err
    for problem in answer["problems"]:
        assert sorted(problem) == ["accepted", "given", "source"]
        assert problem["source"] in said.err
    assert list(Path().iterdir()) == []
    return answer["problems"]


@pytest.mark.parametrize(
    ("arguments", "source"),
    [
        (["bogus"], "COMMAND"),
        (["experiences", "--api-key", "sk-secret", "list"], "--api-key"),
        (["run", "--epochs", "1"], "--epochs"),
        (["run", "--group-size", "2.5"], "--group-size"),
        (["run", "--eval-temp", "-1"], "--eval-temp"),
        (["run", "--epochs"], "--epochs"),
        (["run", "--resume", "a", "--replay", "b"], "--replay"),
        (["config", "--json=yes"], "--json"),
        (["experiences", "--task-id", "list"], "--task-id"),
        (["export", "x"], "--to"),
        (["run", "--set", "nothing"], "--set"),
        (["run", "--set", "tfgrpo.nothing=1"], "tfgrpo.nothing"),
        (["run", "--set", "tfgrpo.group_size=3", "--group-size", "4"], "--set tfgrpo.group_size"),
        (["run", "--pipeline", "nowhere"], "--pipeline"),
        (["run", "--dataset", "nowhere.jsonl"], "nowhere.jsonl"),
        (["run", "--resume", "nobody"], "--resume"),
        (["run", "--replay", "../nobody"], "--replay"),
        (["run", "--run-id", "../away"], "--run-id"),
        (["run", "--actor", "nowhere:agent"], "actor"),
        (["run", "--out", "/proc/nowhere"], "--out"),
        (["doctor", "--world", "flat"], "--world"),
        (["doctor", "--world", "no.such.module:WORLD", "--dry-run"], "--world"),
        (["report"], "RUN"),
        (["report", "x", "y"], "tfgrpo report"),
        (["packs", "verify", "nowhere"], "pack"),
        (["run", "--dry-run", "--pay-again"], "--pay-again"),
        (["verify", "nowhere"], "RUN|TASK"),
        (["packs", "render", "general", "--out", "x"], "--out"),
        (["serve-simulated", "--port", "x"], "--port"),
        (["run", "--epochs", "1", "--group-size", "x", "--concurrency", "0"], "--epochs --group-size --concurrency"),
        (
            ["serve-data", "no.yaml", "--port", "x", "--concurrency", "0", "--on-failure", "x"],
            "--port --concurrency --on-failure no.yaml",
        ),
        (["gateway", "--held-out", "2", "--token-env", "NONE"], "--held-out --token-env --base-url"),
        (["run", "--epoch", "3"], "--epoch"),
        (["--quiet", "config"], "--quiet"),
        (["experiences", "blame", "--why", "x", "y"], "--why"),
    ],
)
def test_bad_input_is_one_json_object_and_one_message_with_nothing_written(capsys, arguments, source):
    sources = " ".join(problem["source"] for problem in refused(capsys, *arguments))
    assert all(each in sources for each in source.split()), sources


@pytest.mark.parametrize("command", ["run", "experiences", "report"])
def test_an_unknown_option_is_reported_without_its_value(capsys, command):
    assert cli.main([command, "--api-kee=sk-very-secret", "--sed", "sk-secret-too"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "--api-kee" in said.err
    assert "secret" not in said.err


def test_the_version_is_printed_and_0_in_a_source_tree_that_was_never_installed(capsys, monkeypatch):
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == f"tfgrpo {installed_version()}\n"

    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", absent)
    assert cli.main(["--version"]) == 0
    assert capsys.readouterr().out == "tfgrpo 0\n"


def test_an_unknown_name_is_refused_with_the_command_that_lists_the_known_ones(capsys):
    listed = {"--zzzzzz": "one that `--help` lists", "--set=zzzzzz=1": "one that `tfgrpo config` lists"}
    for option, accepted in listed.items():
        (problem,) = refused(capsys, "run", option)
        assert problem["accepted"] == accepted


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (("experiences", "export", "--to", "skill"), "skill-md"),
        (("experiences", "exprot"), "export"),
        (("slect",), "select"),
        (("select", "--dry-run", "--prompt", "x", "--rewarder", "exact_match"), "exact"),
    ],
)
def test_a_word_that_is_close_to_an_accepted_one_is_answered_with_that(capsys, arguments, meant):
    assert cli.main([*arguments]) == 2
    assert f"accepted: {meant} (did you mean that?), or " in capsys.readouterr().err


def test_a_setting_may_be_given_twice_as_long_as_both_say_the_same(capsys):
    same = ["--set", "tfgrpo.group_size=3", "--group-size", "3", "--seed", "1", "--seed", "2", "--json"]
    assert cli.main(["config", *same]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [shown[key]["value"] for key in ("tfgrpo.group_size", "tfgrpo.seed")] == ["3", "2"]


@pytest.mark.parametrize("arguments", [["report", "latest"], ["experiences", "list"], ["export", "latest", "--to", "verl"]])
def test_a_folder_without_runs_is_refused_with_the_command_that_makes_the_first(capsys, arguments):
    (problem,) = refused(capsys, *arguments)
    assert (problem["source"], problem["given"]) == ("out", "no runs yet")
    assert "`tfgrpo run --dry-run` makes the first" in problem["accepted"]
    (problem,) = refused(capsys, *arguments, "--task-id", "mine")
    assert (problem["source"], problem["given"]) == ("--task-id", "'mine'")
    assert "no runs in out yet" in problem["accepted"]


def test_bad_lines_of_a_dataset_are_named_with_their_numbers(capsys, tmp_path):
    dataset = tmp_path / "items.jsonl"
    dataset.write_text('{"id": "a", "prompt": "?"}\nnot json\n{"id": "b"}\n')
    problems = refused(capsys, "run", "--dry-run", "--dataset", str(dataset))
    assert [problem["source"] for problem in problems] == [f"{dataset}:2", f"{dataset}:3"]


@pytest.mark.parametrize("asked", [{}, {"task_id": "mine"}, {"pipeline": "tfgrpo-learning"}])
def test_data_have_the_same_pipeline_pack_and_task_on_the_command_line_as_in_python(capsys, asked):
    Path("My sums.csv").write_text("id,prompt,answer\n" + "".join(f"{n},What is {n} + 1?,{n + 1}\n" for n in range(9)))
    options = [word for name, value in asked.items() for word in (f"--{name.replace('_', '-')}", value)]
    assert cli.main(["config", "--dry-run", "--dataset", "My sums.csv", *options, "--json"]) == 0
    shown = {key: each["value"] for key, each in json.loads(capsys.readouterr().out).items()}
    settings = tfgrpo.plan("My sums.csv", dry_run=True, **asked).settings
    own = {name: getattr(settings, name) for name in ("pipeline", "pack", "task_id")}
    assert own == {name: shown[name] for name in own}
    if "pipeline" not in asked:
        assert own == {"pipeline": "general", "pack": "general", "task_id": asked.get("task_id", "my-sums")}


def test_data_of_the_environment_are_tasks_of_ones_own_too(capsys, monkeypatch):
    Path("My sums.csv").write_text("id,prompt,answer\n" + "".join(f"{n},What is {n} + 1?,{n + 1}\n" for n in range(9)))
    monkeypatch.setenv("TFGRPO_DATASET", "My sums.csv")
    assert cli.main(["config", "--dry-run", "--json"]) == 0
    shown = {key: each["value"] for key, each in json.loads(capsys.readouterr().out).items()}
    settings = tfgrpo.plan(dry_run=True).settings
    assert (shown["pack"], shown["task_id"]) == (settings.pack, settings.task_id) == ("general", "my-sums")


def test_a_broken_pipeline_file_is_named_with_its_line(capsys, tmp_path):
    pipeline = tmp_path / "mine.yaml"
    pipeline.write_text("tfgrpo: [1\n")
    assert str(pipeline) in refused(capsys, "run", "--pipeline", str(pipeline))[0]["source"]


def test_bad_variables_are_named(capsys, monkeypatch):
    monkeypatch.setenv("TFGRPO_EPOCHS", "many")
    monkeypatch.setenv("TFGRPO_SAMPLESIZE", "3")
    problems = refused(capsys, "doctor")
    assert {problem["source"] for problem in problems} == {"TFGRPO_EPOCHS", "TFGRPO_SAMPLESIZE"}


@pytest.mark.parametrize("command", ["run", "doctor", "estimate"])
def test_no_command_takes_a_simulated_world_for_the_items_of_a_real_model(capsys, command, monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "http://127.0.0.1:9/v1")
    (problem,) = refused(capsys, command, "--model", "m")
    assert problem["source"] == "--dataset"


def test_an_unreachable_endpoint_is_a_problem_for_doctor(capsys):
    problems = refused(capsys, "doctor", "--model", "m", "--base-url", "http://127.0.0.1:9/v1", "--world", "arithmetic")
    assert "http://127.0.0.1:9/v1" in problems[0]["source"]


@pytest.mark.parametrize(
    ("error", "code", "status"),
    [
        (RunAborted("it broke"), 1, "failed"),
        (OSError(28, "No space left"), 1, "failed"),
        (KeyError("a\nb"), 1, "failed"),
        (KeyboardInterrupt(), 3, "stopped"),
    ],
)
def test_other_failures_are_one_message_and_one_object_too(capsys, monkeypatch, error, code, status):
    def fail(**_):
        raise error

    monkeypatch.setattr("tfgrpo.flows.commands.config.resolve_settings", fail)
    assert cli.main(["config", "--json"]) == code
    said = capsys.readouterr()
    assert json.loads(said.out)["status"] == status
    assert said.err.startswith("tfgrpo: ")
    assert said.err.count("\n") == 1


@pytest.mark.parametrize("command", ["run", "doctor"])
@pytest.mark.parametrize("home", ["/proc/nowhere/prefect", "taken", "taken/below"])
def test_a_home_that_prefect_could_not_write_is_refused_before_prefect_is_imported(
    capsys, monkeypatch, tmp_path, command, home
):
    (tmp_path / "taken").touch()
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(tmp_path / home))
    monkeypatch.setattr("tfgrpo.flows.commands.run._run", lambda *_: pytest.fail("Prefect was started"))
    (problem,) = refused(capsys, command, "--dry-run")
    assert problem["source"] == "PREFECT_HOME"
    assert str(tmp_path / home) in problem["given"]
    assert problem["accepted"] == "a directory that can be made and written"
    monkeypatch.setenv("PREFECT_API_URL", "http://127.0.0.1:9/api")
    assert cli.main(["doctor"]) == 0


def test_a_home_of_prefect_is_made_for_a_run_and_not_by_doctor(monkeypatch, tmp_path):
    home = tmp_path / "new" / "home"
    monkeypatch.delenv("PREFECT_API_URL", raising=False)
    monkeypatch.setenv("PREFECT_HOME", str(home))
    monkeypatch.setattr("tfgrpo.flows.commands.run._run", lambda *_: RunSummary("finished", "n", "", {}))
    assert cli.main(["doctor"]) == 0
    assert not home.parent.exists()
    assert cli.main(["run", "--dry-run"]) == 0
    assert home.is_dir()


def test_without_a_command_the_help_is_printed(capsys):
    assert cli.main([]) == 0
    shown = capsys.readouterr().out.split()
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize("words", LEAVES, ids=" ".join)
def test_a_function_takes_what_its_command_declares_in_any_order(words):
    group, command = click.Context(TFGRPO, info_name="tfgrpo"), COMMANDS[words[0]]
    if len(words) > 1:
        group, command = click.Context(command, group, info_name=words[0]), command.table[words[1]]
    own = [param for param in command.params if isinstance(param, click.Option) and not param.is_flag]
    values = [sample(param) for param in own if param.name != "assignments"]
    options = [word for param, value in zip(own, values, strict=False) for word in (param.opts[0], value)]
    arguments = ["1" for param in command.params if isinstance(param, click.Argument)]
    read = [
        command.make_context(words[-1], order, parent=group).params
        for order in ([*arguments, *options], [*options, *arguments], [*arguments[:1], *options, *arguments[1:], "--json"])
    ]
    assert read[0] == read[1] == read[2]
    settings = {param.name: None for param in command.setting_options} | {"assignments": ()}
    given = set(grouped({**settings, **read[0]} if command.setting_options else read[0], command.setting_options))
    taken = inspect.signature(command.function).parameters
    open_ended = any(each.kind is each.VAR_KEYWORD for each in taken.values())
    named = {name for name, each in taken.items() if each.kind is not each.VAR_KEYWORD} - {"console", "checks"}
    assert named <= given
    assert open_ended or named == given


def test_help_of_a_run_names_every_flag_with_its_variable(capsys):
    assert cli.main(["run", "--help"]) == 0
    page = " ".join(capsys.readouterr().out.split())
    for leaf in setting_fields():
        if leaf.flag is not None and not leaf.key.startswith("selection."):
            assert leaf.flag in page
            assert leaf.env is None or f"({leaf.env})" in page
    assert "``" not in page
    assert "None" not in page


@pytest.mark.parametrize("words", [[], *LEAVES, ["experiences"], ["packs"]], ids=" ".join)
def test_every_command_has_help_that_fits_a_terminal(capsys, words, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main([*words, "--help"]) == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_excess_words_are_not_repeated(capsys):
    assert refused(capsys, "config", "sk-secret", "more")[0]["given"] == "a word too many"

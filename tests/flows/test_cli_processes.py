"""The command as a process: what it imports, which modules it finds, and how it ends."""

import json
import os
import subprocess
import sys

import pytest

from tests.support.runs.running import ROOT
from tfgrpo.flows.cli import main
from tfgrpo.flows.commands.table import COMMANDS

pytestmark = pytest.mark.usefixtures("at_home")


AS_SCRIPT = (
    "import sys; sys.path[:] = [p for p in sys.path if p]; from tfgrpo.flows.cli import main; sys.exit(main(sys.argv[1:]))"
)
HELP = """
import sys
from tfgrpo.flows.cli import main
for words in ([word, "--help"] if word != "--help" else [word] for word in sys.argv[1:]):
    assert main(words) == 0
heavy = "aiohttp fastapi httpx jinja2 jsonschema numpy opentelemetry prefect sqlalchemy starlette uvicorn"
assert main(["config"]) == 0
of_a_run = "tfgrpo.flows.run.prepare tfgrpo.pipelines.plan.plan"
print([name for name in f"{heavy} {of_a_run}".split() if name in sys.modules], file=sys.stderr)
"""


def isolated(*arguments, cwd=ROOT):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        [sys.executable, "-W", "error", *arguments], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )


def test_a_reader_that_goes_away_ends_the_command_quietly():
    command = f"{sys.executable} -m tfgrpo.flows.cli config | head -1"
    done = subprocess.run(command, shell=True, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.startswith("setting")
    assert done.stderr == ""


def test_help_lists_every_command_and_neither_help_nor_settings_import_what_only_a_run_needs(at_home):
    done = isolated("-c", HELP, "--help", *COMMANDS, cwd=at_home)
    assert done.returncode == 0, done.stderr
    assert done.stderr == "[]\n"
    assert all(name in done.stdout for name in (*COMMANDS, "tfgrpo.group_size"))


def test_the_script_finds_modules_of_the_working_directory_and_none_hides_ours(at_home):
    for ours in ("stores", "pipelines"):
        (at_home / f"{ours}.py").write_text(f"raise SystemExit('the wrong {ours}')\n")
    (at_home / "mine_too.py").write_text("import tfgrpo.pipelines.plan.plan\n\nasync def agent(prompt):\n    return 'x'\n")
    done = isolated("-c", AS_SCRIPT, "doctor", "--actor", "mine_too:agent", cwd=at_home)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("code", [0, 3, "bye"])
def test_a_module_that_leaves_the_process_is_a_problem_with_the_setting_that_names_it(at_home, capsys, code):
    (at_home / "leaves.py").write_text(f"import sys\n\ndef agent(prompt):\n    return 'x'\n\nsys.exit({code!r})\n")
    assert main(["doctor", "--actor", "leaves.py:agent", "--json"]) == 2
    (problem,) = json.loads(capsys.readouterr().out)["problems"]
    assert problem["source"] == "actor.kind"
    assert f"importing it failed: SystemExit: {code}" in problem["given"]


@pytest.mark.untraced
def test_a_command_may_open_as_many_files_as_the_system_allows():
    code = (
        "import atexit, resource as r; hard = r.getrlimit(r.RLIMIT_NOFILE)[1]; r.setrlimit(r.RLIMIT_NOFILE, (256, hard));"
        "atexit.register(lambda: print(r.getrlimit(r.RLIMIT_NOFILE)[0]));"
        "from tfgrpo.flows.cli import entry_point; entry_point(['--version'])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(printed.splitlines()[-1]) > 256

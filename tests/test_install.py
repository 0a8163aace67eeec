"""A fresh environment gets a working tfgrpo from pyproject.toml alone, and the wheel carries all that a run needs."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.runs.running import prefect_server

ROOT = Path(__file__).resolve().parents[1]
CODE = ("flows", "tasks", "pipelines", "rewarders", "prompt_packs", "stores")
PIP = ("-m", "pip", "install", "--disable-pip-version-check", "--no-compile")
pytestmark = pytest.mark.xdist_group("prefect")


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    """The project's own files, as a clone would have them, without what this machine has built."""
    copy = tmp_path_factory.mktemp("source")
    for name in (*CODE, "tfgrpo", "src", "pyproject.toml", "setup.py", "README.md", "LICENSE"):
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, copy / name)
    return copy


@pytest.fixture(scope="module")
def built(source, tmp_path_factory):
    """A folder with the wheel and the source archive of the project."""
    folder = tmp_path_factory.mktemp("built")
    requires = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    installed = run([sys.executable, *PIP, "--target", str(folder / "tools"), *requires], source, 300)
    assert installed.returncode == 0, installed.stderr[-2000:]
    work = f"backend.build_wheel({str(folder)!r}); backend.build_sdist({str(folder)!r})"
    tools = f"import sys; sys.path.insert(0, {str(folder / 'tools')!r})"
    done = run([sys.executable, "-c", f"{tools}; import setuptools.build_meta as backend; {work}"], source, 300)
    assert done.returncode == 0, done.stderr[-2000:]
    return folder


@pytest.fixture(scope="module")
def fresh(built, tmp_path_factory):
    """Programs of an environment with the wheel, which finds what it needs among the packages of the tests."""
    home = tmp_path_factory.mktemp("fresh") / "venv"
    programs = installed(home, next(built.glob("*.whl")), "--no-deps")
    packages = run([programs / "python", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], home, 60)
    needed = "\n".join(place for place in sys.path if Path(place).name in {"site-packages", "dist-packages"})
    Path(packages.stdout.strip(), "needed.pth").write_text(needed)
    yield programs
    shutil.rmtree(home)


def installed(home: Path, *what: str | Path, **env: str) -> Path:
    """Install it into a new environment and return the folder of its programs."""
    venv.create(home)
    programs = home / ("Scripts" if os.name == "nt" else "bin")
    of_that = ("-m", "pip", "--python", programs / "python", *PIP[2:])
    done = run([sys.executable, *of_that, *what], home, 500, **env)
    if done.returncode != 0:
        lines = [line for line in done.stderr.splitlines() if not line.startswith("WARNING: Location")]
        pytest.fail("pip cannot install the project; is a package index reachable?\n" + "\n".join(lines[-15:]), pytrace=False)
    return programs


def run(command: list[str | Path], cwd: Path, seconds: float, **env: str) -> subprocess.CompletedProcess[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "COV"))}
    return subprocess.run(command, cwd=cwd, env={**kept, **env}, capture_output=True, text=True, timeout=seconds, check=False)


def test_an_install_is_consistent_and_its_packs_verify(fresh, tmp_path):
    checked = run([sys.executable, "-m", "pip", "--python", fresh / "python", "check"], tmp_path, 60)
    assert checked.returncode == 0, checked.stdout
    verified = run([fresh / "tfgrpo", "packs", "verify"], tmp_path, 60)
    assert verified.returncode == 0, verified.stdout + verified.stderr


@pytest.mark.slow
def test_an_install_without_constraints_is_consistent_and_runs(built, tmp_path):
    programs = installed(tmp_path / "venv", next(built.glob("*.whl")))
    checked = run([sys.executable, "-m", "pip", "--python", programs / "python", "check"], tmp_path, 60)
    assert checked.returncode == 0, checked.stdout
    done = run([programs / "tfgrpo", "run", "--dry-run"], tmp_path, 240, PREFECT_HOME=str(tmp_path / "prefect"))
    assert done.returncode == 0, done.stderr[-3000:]


def test_wheel_and_source_archive_hold_one_import_name_and_the_wheel_every_file_of_the_packages(built):
    with zipfile.ZipFile(next(built.glob("*.whl"))) as archive:
        held = set(archive.namelist())
    with tarfile.open(next(built.glob("*.tar.gz"))) as archive:
        names = [name.split("/", 1)[1] for name in archive.getnames() if "/" in name]
    files = {
        f"tfgrpo/{path.relative_to(ROOT).as_posix()}"
        for package in CODE
        for path in (ROOT / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files - held == set()
    assert {Path(name).suffix for name in files} >= {".py", ".md", ".json", ".yaml", ".jsonl", ".j2"}
    assert {root for name in held if not (root := name.split("/")[0]).endswith(".dist-info")} == {"tfgrpo"}
    assert {"tfgrpo/__init__.py", "tfgrpo/__main__.py", "tfgrpo/py.typed"} <= held
    assert {name.split("/")[0] for name in names if name.endswith(".py")} - {"setup.py"} == {"tfgrpo"}
    assert {"tfgrpo/__init__.py", "tfgrpo/py.typed", "tfgrpo/flows/cli.py", "pyproject.toml"} <= set(names)


USERS_AGENT = "def solve(prompt, chat):\n    return chat(prompt)\n"
USERS_REWARDER = "def right(output, answer):\n    return float(answer in output)\n"


@pytest.fixture
def users_folder(tmp_path):
    """A project of the user's whose modules are called like our floors."""
    (tmp_path / "flows").mkdir()
    (tmp_path / "rewarders").mkdir()
    (tmp_path / "flows" / "__init__.py").write_text("raise RuntimeError('not to be imported')\n")
    (tmp_path / "tasks.py").write_text(USERS_AGENT)
    (tmp_path / "rewarders" / "__init__.py").write_text(USERS_REWARDER)
    (tmp_path / "rewarders" / "mine.py").write_text(USERS_REWARDER)
    (tmp_path / "own.yaml").write_text(
        "actor: {kind: 'tasks:solve'}\ntfgrpo: {enabled: true, sample_size: 4, batch_size: 2, epochs: 2}\n"
        "rewarders: [{name: 'rewarders:right'}, {name: 'rewarders/mine.py:right'}, {name: gt}]\n"
    )
    return tmp_path


def test_an_install_runs_the_main_job_beside_modules_that_are_called_like_ours(fresh, users_folder):
    asked = ["--pipeline", "own.yaml", "--actor", "tasks.py:solve"]
    api = {"PREFECT_API_URL": prefect_server()}
    done = run([fresh / "tfgrpo", "run", "--dry-run", "--json", *asked], users_folder, 240, **api)
    assert done.returncode == 0, done.stderr[-3000:]
    answer = json.loads(done.stdout)
    assert (answer["status"], answer["simulated"]) == ("finished", True)
    assert (users_folder / answer["report"]).is_file()


@pytest.mark.slow
def test_python_works_beside_modules_of_the_users_that_are_called_like_ours(fresh, users_folder):
    program = (
        "import tfgrpo, tasks, rewarders\n"
        "result = tfgrpo.learn(agent=tasks.solve, rewarders=['gt', rewarders.right], sample_size=4, epochs=2, dry_run=True)\n"
        "print(result.status, len(result.rows()) > 0, tfgrpo.load_run('latest') == result)\n"
        "print(tfgrpo.learn(agent='tasks:solve', sample_size=4, epochs=2, dry_run=True).status)\n"
    )
    (users_folder / "script.py").write_text(program)
    done = run([fresh / "python", "script.py"], users_folder, 240)
    assert (done.stdout.split(), done.stderr) == (["finished", "True", "True", "finished"], "")


TYPED = """
import tfgrpo

async def agent(prompt: str, chat: tfgrpo.Chat) -> str:
    return await chat([{"role": "user", "content": prompt}])

async def plain(text: str | object, /) -> str:
    return "7"

chat: tfgrpo.Chat = plain
result: tfgrpo.Result = tfgrpo.learn([{"id": "1", "prompt": "?", "answer": "7"}], agent=agent, max_calls=5)
print(result.decision, [lesson.text for lesson in result.lessons])
"""


MISTAKES = """
import tfgrpo
result = tfgrpo.learn("items.jsonl", agent=lambda prompt: prompt, epochs=3, model="m", rewarders=["gt"])
tfgrpo.learn("items.jsonl", epoch=3)
tfgrpo.learn("items.jsonl", epochs="three")
result.reward
result.interval.low
tfgrpo.select("?", k="8")
tfgrpo.train()
async def agent(chat: tfgrpo.Chat) -> str: return await chat(7, [])
"""
"""A wrong keyword, a wrong value, two wrong attributes, a wrong type, a wrong name and a wrong call, from line 4 on."""


@pytest.fixture(scope="module")
def editable(source, built, tmp_path_factory):
    """The interpreter of an environment with this checkout alone, as README installs it, by the tools that are here already."""
    what = ("--no-deps", "--no-build-isolation", "--editable", source)
    programs = installed(tmp_path_factory.mktemp("editable") / "venv", *what, PYTHONPATH=str(built / "tools"))
    return programs / "python"


def test_type_checkers_find_an_editable_install_and_its_types(editable, tmp_path):
    (tmp_path / "right.py").write_text(TYPED)
    (tmp_path / "wrong.py").write_text(MISTAKES)
    strict = ("--strict", "--cache-dir", os.devnull, "--python-executable", editable)
    command = [sys.executable, "-m", "mypy", *strict, "right.py", "wrong.py"]
    checked = run(command, tmp_path, 300)
    assert (checked.returncode, checked.stderr) == (1, ""), checked.stdout
    found = {tuple(line.split(":")[:2]) for line in checked.stdout.splitlines() if ": error: " in line}
    assert found == {("wrong.py", str(number)) for number in range(4, 11)}, checked.stdout


def test_an_editable_install_is_one_import_name_without_a_hook(editable, source, tmp_path):
    names = ["tfgrpo", *CODE, "tests", "docs", "benchmarks"]
    code = f"import importlib.util as u, sys; print([n for n in {names} if u.find_spec(n)], *sys.meta_path)"
    said = run([editable, "-c", code], tmp_path, 60).stdout
    assert said.startswith("['tfgrpo'] ")
    assert "editable" not in said.lower()
    where = run([editable, "-c", "import tfgrpo; print(tfgrpo.__file__)"], tmp_path, 60).stdout.strip()
    assert Path(where).resolve() == source / "tfgrpo" / "__init__.py", "edits of the checkout count at once"


def test_constraints_pin_every_dependency_and_name_no_index():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+", line)] == []
    pinned = {plain(line.split("==")[0]) for line in lines}
    needed = {plain(name) for name in requirement_names()}
    assert needed - pinned == set()


def requirement_names() -> list[str]:
    """Distributions that the core and the test extra ask for by name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    return [re.split(r"[\s\[<>=!~;]", line, maxsplit=1)[0] for line in wanted]


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()

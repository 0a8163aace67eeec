"""One loader for ``module:attr`` and ``path/to/file.py:attr``: the user's modules first."""

import subprocess
import sys
import textwrap
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tfgrpo.rewarders.importing import handed_over, is_handed_over, is_name, load_callable
from tfgrpo.stores.json_values import sha256_hex


@pytest.fixture(autouse=True)
def _in_a_folder_of_the_user(tmp_path, monkeypatch):
    path, modules = list(sys.path), set(sys.modules)
    monkeypatch.chdir(tmp_path)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name.startswith("tfgrpo_file_"):
            del sys.modules[name]


def write(folder, name, text):
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(textwrap.dedent(text))
    return file


def test_an_edited_file_is_loaded_again(tmp_path):
    write(tmp_path, "mine.py", "def solve(prompt): return 1\n")
    first = load_callable("mine.py:solve")
    write(tmp_path, "mine.py", "def solve(prompt): return 23\n")
    assert (first("?"), load_callable("mine.py:solve")("?")) == (1, 23)


def test_a_file_whose_loading_was_interrupted_is_loaded_again(tmp_path):
    text = "import pathlib\nif not pathlib.Path('ready').exists(): raise KeyboardInterrupt\ndef solve(prompt): return 1\n"
    write(tmp_path, "mine.py", text)
    with pytest.raises(KeyboardInterrupt):
        load_callable("mine.py:solve")
    (tmp_path / "ready").touch()
    assert load_callable("mine.py:solve")("?") == 1


def test_threads_that_load_a_file_at_once_wait_until_it_has_run(tmp_path):
    write(tmp_path, "slow.py", "import time\ntime.sleep(0.1)\ndef solve(prompt): return 1\n")
    with ThreadPoolExecutor(4) as threads:
        assert [solve("?") for solve in threads.map(load_callable, ["slow.py:solve"] * 4)] == [1] * 4


def test_what_cannot_be_loaded_says_why(tmp_path):
    write(tmp_path, "mine.py", "NUMBER = 7\n")
    write(tmp_path, "lazy.py", "def __getattr__(name):\n    import nowhere\n")
    for name, why in (
        ("nothing.py:solve", "'nothing.py', which is no file"),
        ("lazy.py:solve", "ModuleNotFoundError: No module named 'nowhere'"),
        ("mine.py", "not of the form module:attr or path/to/file.py:attr"),
        ("mine.py:NUMBER", "it is of type int, which cannot be called"),
    ):
        with pytest.raises(ValueError, match=why):
            load_callable(name)


def test_names_have_two_forms():
    for name in ("a:b", "a.b:c.d", "a.py:b", "x y/a-b.py:b", "/tmp/a.py:b.c"):
        assert (is_name(name), is_name(name.replace(":", "-"))) == (True, False)


def test_a_module_of_the_users_goes_before_one_of_ours(tmp_path):
    write(tmp_path, "rewarders.py", "def score(output, answer): return 1.0\n")
    program = "from tfgrpo.rewarders.importing import load_callable\nprint(load_callable('rewarders:score').__module__)"
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["rewarders"]


def test_what_can_be_imported_keeps_its_name_when_handed_over():
    with handed_over() as name_of:
        assert name_of(sha256_hex) == "tfgrpo.stores.json_values:sha256_hex"
        assert not is_handed_over(name_of(sha256_hex))


def test_what_cannot_be_imported_is_found_by_its_name_until_the_block_ends():
    def mine(prompt):
        return prompt

    with handed_over() as name_of:
        name = name_of(mine)
        assert name.endswith(":test_what_cannot_be_imported_is_found_by_its_name_until_the_block_ends.<locals>.mine")
        assert is_name(name)
        assert is_handed_over(name)
        assert load_callable(name) is mine
        assert load_callable(name_of(partial(mine, "x"))) is not mine
    with pytest.raises(ValueError, match="a function of a script or notebook"):
        load_callable(name)


def test_two_objects_in_use_at_once_never_share_a_name_and_one_object_has_one():
    def agent_of(number):
        return lambda prompt: f"{prompt}{number}"

    one, other = agent_of(1), agent_of(2)
    with handed_over() as name_of, handed_over() as name_of_another:
        assert name_of(one) == name_of_another(one)
        assert [load_callable(name)("") for name in (name_of(one), name_of(other))] == ["1", "2"]
        assert name_of(other) == f"{name_of(one)}#2"
        assert load_callable(name_of(one)) is one


def test_names_are_kept_apart_between_threads():
    def run(number):
        with handed_over() as name_of:
            return all(load_callable(name_of(value)) is value for value in [partial(int, number) for _ in range(100)])

    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(run, range(4))] == [True] * 4

"""Every dependency has its sentence and its true licence, is used or says why not, and nothing undeclared is imported."""

import itertools
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import metadata, packages_distributions

import pytest

from tests.support.runs.pages import ROOT, page, table

CODE = ("flows", "tasks", "pipelines", "rewarders", "prompt_packs", "stores")
PROJECT = tomllib.loads(page("pyproject.toml"))["project"]
TRANSITIVE = {"pydantic-core", "opentelemetry-api"}
"""Named by the import, but part of a declared package that pins its version."""
FAMILIES = {"Apache Software License": "Apache-2.0", "BSD 2-Clause": "BSD-2-Clause", "BSD License": "BSD", "MIT License": "MIT"}


def plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def named(requirements: list[str]) -> list[str]:
    return [re.split(r"[\s\[<>=!~;]", line, maxsplit=1)[0] for line in requirements]


CORE = named(PROJECT["dependencies"])
TESTS = named(PROJECT["optional-dependencies"]["test"])
ROWS = {row[0]: row[1:] for row in [*table(page("docs/dependencies.md"), "package | licence | why it, and what it replaces"),
                                    *table(page("docs/dependencies.md"), "package | licence | why")]}  # fmt: skip


def said_by_the_package(name: str) -> str:
    """Licence of an installed distribution in its own words: expression, classifier or short text."""
    about = metadata(name)
    if about.get("License-Expression"):
        return str(about["License-Expression"])
    words = " ".join([*(about.get_all("Classifier") or []), (about.get("License") or "")[:200]])
    found = [family for text, family in FAMILIES.items() if text in words]
    return found[0] if found else words


_IMPORT = re.compile(r"^ *(?:from (\w+)[\w.]* import |import (\w+)[\w.]*(?: as \w+)?(?: *#.*)?$)", re.MULTILINE)


@cache
def imported() -> set[str]:
    """Top-level names imported anywhere in the packages that are neither ours nor the standard library's."""
    names: set[str] = set()
    for package in CODE:
        for path in (ROOT / package).rglob("*.py"):
            code = path.read_text(encoding="utf-8")  # without parsing all of it, which takes five seconds
            names |= {*itertools.chain(*_IMPORT.findall(code))}
    return names - set(sys.stdlib_module_names) - {"tfgrpo", ""}


def test_every_dependency_has_a_row_and_every_row_is_a_dependency():
    assert set(ROWS) == {*CORE, *TESTS}
    assert all(len(row[1]) > 10 for row in ROWS.values())


def test_every_extra_is_explained():
    text = page("docs/dependencies.md")
    for extra, requirements in PROJECT["optional-dependencies"].items():
        assert f"`{extra}`" in text
        assert [name for name in named(requirements) if name not in text] == []


@pytest.mark.parametrize("name", [*CORE, *TESTS])
def test_the_licence_is_the_one_the_package_states(name):
    stated, shown = said_by_the_package(name), ROWS[name][0]
    base = shown.split(" and others")[0]
    # Old metadata says "BSD License" or carries the whole text; then the family has to do.
    accepted = {base, base.split("-")[0]} if base.startswith("BSD") else {base}
    assert any(word in stated for word in accepted) or "Copyright" in stated, f"{name}: {stated}"


@pytest.mark.parametrize("name", CORE)
def test_licences_of_the_core_are_permissive(name):
    assert not re.search(r"GPL|MPL|SSPL|BUSL|EUPL", said_by_the_package(name).split("Copyright")[0])


def test_nothing_is_imported_that_is_not_declared():
    owners = packages_distributions()
    declared = {plain(name) for name in CORE}
    optional = {
        plain(name)
        for extra in ("dask", "grpc", "hf", "ifeval", "math", "mcp", "pandas", "parquet", "prices", "ray", "re2", "similarity")
        for name in named(PROJECT["optional-dependencies"][extra])
    }
    for name in imported():
        homes = {plain(home) for home in owners.get(name, [])}
        if homes:
            assert homes & (declared | optional | TRANSITIVE), name
        else:
            assert any(name.replace("_", "-") in extra for extra in optional), name


def test_every_declared_package_is_used_or_says_why_not():
    owners = packages_distributions()
    used = {plain(home) for name in imported() for home in owners.get(name, [])}
    idle = {name for name in CORE if plain(name) not in used}
    assert {name for name in idle if "Bound only" not in ROWS[name][1]} <= {"httpx-aiohttp"} | {
        name for name in idle if name.startswith("opentelemetry")
    }

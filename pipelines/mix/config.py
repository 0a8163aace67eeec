"""Read a staged data mix from a file of the ``rl_data_config.yaml`` form, with its datasets and graders; draw from it.

All problems of the file, its data and its graders are reported at once. In addition to the keys of the form there is
``seed``, which makes the draws repeatable. Numbers are read as the form has always read them: text that is a number, in the
digits 0 to 9, is one too, and a fraction of a step is cut off. Of one name, a python grader comes before an external one, and
that before a built-in one; the format grader is added to every dataset and cannot be named.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
import threading
from array import array
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails

from tfgrpo.pipelines.datasets.items import RecordCounts
from tfgrpo.pipelines.settings.pipeline_file import UniqueKeysLoader, read_yaml
from tfgrpo.rewarders.composite import AnyScorer, Composite, unisolated
from tfgrpo.rewarders.graders.remote import Address, Retries, TokenVariable
from tfgrpo.rewarders.options import Flag, Whole, accepts, refusal
from tfgrpo.rewarders.registry import ALIASES, build_scorer, known_scorers
from tfgrpo.rewarders.runner import refuse_no_scorer
from tfgrpo.rewarders.scorer import Scorer, Weighted
from tfgrpo.stores.errors import CappedProblems, DatasetError, PipelineError, Problem, shown_value
from tfgrpo.stores.json_values import mapping_of
from tfgrpo.stores.text import did_you_mean, suggested

# Texts in lines that are JSON for Python and for few other readers.
_RARE: Final = ("NaN", "Infinity", "\\ud", "\\uD")


@dataclass(frozen=True, slots=True)
class Records:
    """The records of one file by number from 0, without blank lines. What happens to the file later has no effect."""

    path: Path
    texts: Sequence[bytes]
    """Parsed on access: they take a third of the memory, and no grader can change what another one sees."""
    lines: Sequence[int]
    malformed: dict[int, str]
    """Records that can be graded but not served, with the reason; they are never drawn."""

    def __len__(self) -> int:
        return len(self.texts)

    def __getitem__(self, index: int) -> Any:
        return json.loads(self.texts[index])

    @property
    def servable(self) -> range | tuple[int, ...]:
        """Numbers of the records that can be drawn."""
        numbers = range(len(self))
        return tuple(number for number in numbers if number not in self.malformed) if self.malformed else numbers

    def where(self, index: int) -> str:
        """Return ``path:line`` of a record."""
        return f"{self.path}:{self.lines[index]}"


def read_records(path: Path, visit: Callable[[str, object], None] = lambda _where, _record: None) -> Records:
    """Read a file. Raise ``DatasetError`` if it is unreadable, and for every line that is not JSON.

    ``visit`` gets ``path:line`` and value of each line.
    """
    problems = CappedProblems()
    texts, lines, malformed = list[bytes](), array("I"), dict[int, str]()
    try:
        raw = path.read_bytes().removeprefix(BOM_UTF8)
    except OSError as error:
        received = error.strerror or type(error).__name__
        raise DatasetError.one(str(path), received, "a JSONL file that can be read") from None
    for number, line in enumerate(raw.split(b"\n"), start=1):
        try:
            text = line.decode().strip()
            record: Any = json.loads(text) if text else None
        except (ValueError, RecursionError) as error:
            received = "JSON nested without end" if isinstance(error, RecursionError) else str(error)
            if isinstance(error, UnicodeDecodeError):
                received = f"no UTF-8 at byte {error.start}"
            elif isinstance(error, json.JSONDecodeError):
                received = f"no JSON: {error.msg} at column {error.colno}"
            problems.add(Problem(f"{path}:{number}", received, "one JSON object on the line"))
            continue
        if text:
            if reason := _unservable(text, record):
                malformed[len(texts)] = reason
            visit(f"{path}:{number}", record)
            texts.append(text.encode())
            lines.append(number)
    if len(texts) == 1 and texts[0].startswith(b"["):
        problems.add(Problem(f"{path}:{lines[0]}", "a JSON array", "one JSON object on the line"))
    problems.raise_problems(DatasetError, str(path))
    return Records(path, texts, lines, malformed)


def _unservable(text: str, record: object) -> str:
    """Return why a record cannot be shown to an actor, or is no JSON for other readers than Python; empty if it can."""
    if not isinstance(record, dict):
        return "no JSON object"
    for name, kind, needed in (("prompt", str, True), ("system_prompt", str, False), ("metadata", dict, False)):
        value = record.get(name)
        if not isinstance(value, kind) and (needed or value is not None):
            return f"no {name!r}" if value is None else f"{type(value).__name__} in {name!r}"
    if any(rare in text for rare in _RARE):
        served = [record.get(name) for name in ("prompt", "system_prompt", "metadata")]
        try:
            json.dumps(served, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError:
            return "half a surrogate pair, which is no character"
        except ValueError:
            return "NaN or infinity, which is no JSON number"
    return ""


_ACCEPTED: Final = {"model_type": "a mapping", "dict_type": "a mapping", "tuple_type": "a list"}
_AUTOMATIC: Final = "reasoning_format"
_SET: Final = "graders"
# Added to a grader's own time limit, so that it can report the timeout itself.
_GRACE_S: Final = 1.0


Data: TypeAlias = tuple[Records, tuple[str, ...]]


class Reading:
    """The context in which the forms of one file are validated. Its methods raise the errors of pydantic validators."""

    def __init__(self, file: Path, content: Mapping[str, Any], *, try_graders: bool) -> None:
        self.problems: list[Problem] = []
        """Problems with their own place, such as a line of a dataset."""
        self.last_step: int | None = None
        """Boundary of the stage before."""
        self.dataset_ids = _names(content.get("datasets"))
        self._declared = _names(content.get("external_graders")) | _names(content.get("python_graders"))
        self._file, self._try_graders = file, try_graders
        self._format = build_scorer(_AUTOMATIC)
        root = mapping_of(content.get("paths")).get("data_root")
        self._root = file.parent / root if isinstance(root, str) and root.strip() else None
        self._scorers: dict[str, AnyScorer] = {}

    def add(self, name: str, scorer: AnyScorer, timeout_s: float | None = None) -> None:
        """Add a scorer, in the place of another of its name. ``timeout_s``: its own time limit."""
        if isinstance(scorer, Scorer) and timeout_s is not None:
            scorer = replace(scorer, limit_s=timeout_s + _GRACE_S)
        self._scorers[name] = replace(scorer, rewarder_id=name)

    def load(self, name: str, entry: object) -> None:
        """Add the scorer of an entry of ``python_graders``, or its problems.

        A file is relative to the folder of the mix; it may import its siblings, and is run once for each entry that names it.
        """
        source = f"{self._file}: python_graders.{name}"
        try:
            form = _Python.model_validate(entry)
            named = {"import": form.module, "path": form.path, "builtin": form.builtin}
            chosen = [(key, text) for key, text in named.items() if text]
            if len(chosen) != 1:
                received = " and ".join(key for key, _ in chosen) or "none of them"
                raise PipelineError.one(source, received, f"exactly one of {', '.join(named)}")
            ((key, text),) = chosen
            where, options, folder = f"{source}.{key}", form.init_kwargs or {}, self._file.parent
            if key == "builtin" and text not in known_scorers():
                raise PipelineError.one(where, repr(text), ", ".join(known_scorers()))
            if key != "builtin" and not all(text.rpartition(":")):
                raise PipelineError.one(where, repr(text), "module:attr" if key == "import" else "file.py:attr")
            own = folder if key == "path" else None
            built = build_scorer(text, options, source=where, key=": init_kwargs", folder=own, entry=name)
            if self._try_graders and form.isolate and isinstance(built, Scorer):
                refuse_no_scorer(built, f"{where}: {text}")
            self.add(name, built if form.isolate else unisolated(built))
        except ValidationError as error:
            self.problems += _problems(error, source, ".")
        except PipelineError as error:
            self.problems += error.problems

    def use(self, name: str) -> str:
        """Build a scorer that a dataset names, if it is a built-in one."""
        if name in self._declared or name in self._scorers:
            return name
        if name == _AUTOMATIC:
            raise refusal("no mention of it: the format grader is added to every dataset")
        if name not in known_scorers():
            scorers = sorted(({*known_scorers()} - {_AUTOMATIC}) | self._declared)
            accepted = suggested(name, scorers, f"one of {', '.join(scorers)}", ALIASES)
            raise refusal(f"{accepted}, or a grader declared under python_graders or external_graders")
        try:
            self.add(name, build_scorer(name))
        except PipelineError as error:
            received, accepted = error.problems[0].given, error.problems[0].accepted
            # Of an option without default; else a library is not installed.
            if received == "nothing":
                received = "no options"
                accepted = f"it with its options: an entry of python_graders with builtin: {name} and init_kwargs"
            raise refusal(accepted, f"{name!r} with {received}") from None
        return name

    def grader_set(self, weights: Iterable[tuple[str, float]], gates: Iterable[str]) -> Composite:
        """Return the graders of a dataset, the format grader last."""
        parts = (*(Weighted(self._scorers[name], weight) for name, weight in weights), Weighted(self._format))
        return Composite(parts, tuple(self._scorers[name] for name in gates), rewarder_id=_SET, whole=True)

    def index(self, written: str, graders: Iterable[str]) -> Data | None:
        """Index the file at a path; None for a relative one without a root, and for one with bad lines."""
        if self._root is None and not Path(written).is_absolute():
            return None
        path = Path(written) if self._root is None else self._root / written
        # Counted while the lines are checked: reading the records again would parse each twice.
        counts = RecordCounts(self._scorers[name] for name in graders if name in self._scorers)
        try:
            records = read_records(path, counts.add) if counts and self._try_graders else read_records(path)
        except DatasetError as error:
            own = [problem for problem in error.problems if problem.source == str(path)]
            self.problems += [problem for problem in error.problems if problem not in own]
            if own:
                raise refusal(own[0].accepted, f"{str(path)!r}: {own[0].given}") from None
            return None
        return records, counts.warnings


def _names(section: object) -> frozenset[str]:
    return frozenset(name for name in mapping_of(section) if isinstance(name, str))


Info: TypeAlias = ValidationInfo[Reading]


class Form(BaseModel):
    """Base of the sections. A missing key is read as None; an unknown one is refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, value: Any, build: ModelWrapValidatorHandler[Self]) -> Self:
        needed = dict.fromkeys(name for name, each in cls.model_fields.items() if each.is_required())
        try:
            return build({**needed, **value} if isinstance(value, dict) else value)
        except ValidationError as error:
            keys, lines = [each.alias or name for name, each in cls.model_fields.items()], list[InitErrorDetails]()
            for each in error.errors(include_url=False):
                # Of an error of a form within this one, the message is what is accepted already.
                refused = refusal(_ACCEPTED.get(each["type"], each["msg"]), each.get("ctx", {}).get("given"))
                if each["type"] == "extra_forbidden":
                    refused = refusal(did_you_mean(str(each["loc"][-1]), keys), "an unknown key")
                lines.append(InitErrorDetails(type=refused, loc=each["loc"], input=each["input"]))
            raise ValidationError.from_exception_data(cls.__name__, lines) from None


def _text(value: object) -> str:
    if isinstance(value, str) and value.strip():
        return value
    raise refusal("text that is not empty")


def _cut(value: object) -> object:
    return math.trunc(value) if isinstance(value, float) and math.isfinite(value) else value


def _name_of_stage(value: object) -> str:
    if value is None or isinstance(value, dict | list):
        raise refusal("the name of the stage")
    return str(value)


def _grader(value: object, info: Info) -> str:
    if not isinstance(value, str):
        raise refusal("the name of a grader")
    return info.context.use(value)


Key = Annotated[str, Field(min_length=1)]
_Text = Annotated[str, BeforeValidator(_text)]
Weight = Annotated[float, Field(ge=0, le=1e100), accepts("a number from 0 to 1e100")]  # the sum stays finite
GraderName = Annotated[str, BeforeValidator(_grader)]
NoneIsEmpty = BeforeValidator(lambda value: () if value is None else value)


class _Paths(Form):
    data_root: _Text


class _External(Form):
    type: Annotated[Literal["remote_http"], accepts("remote_http")]
    url: Annotated[Address, BeforeValidator(_text)]
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False), accepts("a finite number above 0")] = 60.0
    retries: Retries | None = None
    token_env: TokenVariable | None = None


class _Python(Form):
    """A grader of the user's, or a built-in one with options: exactly one of ``import``, ``path`` and ``builtin``."""

    module: Annotated[str | None, Field(alias="import"), accepts("module:attr")] = None
    path: Annotated[str | None, accepts("file.py:attr")] = None
    builtin: Annotated[str | None, accepts("the name of a scorer")] = None
    init_kwargs: dict[str, Any] | None = None
    isolate: Flag = True


class _Dataset(Form):
    """A dataset; its path is read last, when its graders are known."""

    graders: Annotated[tuple[GraderName, ...], NoneIsEmpty] = ()
    grader_weights: Annotated[tuple[Weight, ...], NoneIsEmpty] = ()
    multiplicative_graders: Annotated[tuple[GraderName, ...], BeforeValidator(lambda value: value or ())] = ()
    path: Data | None
    """None until it is read."""

    @field_validator("path", mode="plain")
    @classmethod
    def _indexed(cls, path: object, info: Info) -> Data | None:
        graders = (*info.data.get("graders", ()), *info.data.get("multiplicative_graders", ()))
        return info.context.index(_text(path), graders)


class MixEntry(Form):
    """One dataset of a stage."""

    id: _Text
    weight: Weight
    """As written: relative to the other weights of the stage."""

    @field_validator("id")
    @classmethod
    def _known(cls, name: str, info: Info) -> str:
        ids = info.context.dataset_ids
        if name not in ids:
            raise refusal(did_you_mean(name, ids) if ids else "a dataset")
        return name


class MixStage(Form):
    """The datasets that are drawn from until a step."""

    name: Annotated[str, BeforeValidator(_name_of_stage)]
    until_step: Annotated[int, BeforeValidator(_cut), accepts("a whole number")]
    """First step after the stage."""
    datasets: Annotated[tuple[MixEntry, ...], NoneIsEmpty]

    @property
    def shares(self) -> Mapping[str, float]:
        """Share of each dataset in the draws, in sum 1. A dataset named twice has the sum of its weights."""
        whole = math.fsum(entry.weight for entry in self.datasets)
        shares: dict[str, float] = {}
        for entry in self.datasets:
            shares[entry.id] = shares.get(entry.id, 0.0) + entry.weight / whole
        return shares

    @field_validator("until_step")
    @classmethod
    def _above_last(cls, step: int, info: Info) -> int:
        before, info.context.last_step = info.context.last_step, step
        if before is not None and step <= before:
            raise refusal("a step above that of the stage before", f"{step} after {before}")
        return step

    @field_validator("datasets")
    @classmethod
    def _some_weight(cls, entries: tuple[MixEntry, ...]) -> tuple[MixEntry, ...]:
        if not any(entry.weight for entry in entries):
            raise refusal("a weight above 0", "no weight above 0")
        return entries


class MixForm(Form):
    """A whole file. Graders come first, because datasets name them, as stages name datasets."""

    seed: Annotated[Annotated[Whole, Field(ge=0)] | None, accepts("a whole number of at least 0, or no seed")] = None
    external_graders: dict[Key, _External] | None = None
    python_graders: dict[Key, Any] | None = None
    paths: _Paths
    datasets: dict[Key, _Dataset]
    stages: Annotated[tuple[MixStage, ...], NoneIsEmpty]

    @field_validator("external_graders")
    @classmethod
    def _remote(cls, graders: dict[str, _External] | None, info: Info) -> None:
        for name, each in (graders or {}).items():
            options = each.model_dump(exclude={"type"}, exclude_none=True)
            info.context.add(name, build_scorer("remote", options), each.timeout_s)

    @field_validator("python_graders")
    @classmethod
    def _python(cls, graders: dict[str, Any] | None, info: Info) -> None:
        for name, each in (graders or {}).items():
            info.context.load(name, each)

    @field_validator("stages")
    @classmethod
    def _at_least_one(cls, stages: tuple[MixStage, ...]) -> tuple[MixStage, ...]:
        if not stages:
            raise refusal("at least one stage", "no stage")
        return stages


@dataclass(frozen=True, slots=True)
class MixDataset:
    """One dataset: its records and their graders."""

    id: str
    graders: Composite
    records: Records
    reference_warnings: tuple[str, ...] = ()

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about its data, as sentences."""
        lines = list(self.reference_warnings)
        if malformed := self.records.malformed:
            first, reason = next(iter(malformed.items()))
            some = f"{len(malformed)} of {len(self.records)} records can be graded but not served"
            lines.insert(0, f"{some}; the first: {self.records.where(first)}: {reason}")
        return tuple(f"dataset {self.id!r}: {line}" for line in lines)


@dataclass(frozen=True, slots=True)
class MixConfig:
    """A checked mix with its datasets indexed and its graders built."""

    path: Path
    seed: int | None
    stages: tuple[MixStage, ...]
    datasets: Mapping[str, MixDataset]
    """Every dataset of the file, whether a stage draws from it or not."""
    digest: str

    @property
    def total_iterations(self) -> int:
        """The last boundary; the last stage continues after it."""
        return self.stages[-1].until_step

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings about the data and the stages, as sentences."""
        never = [repr(stage.name) for stage in self.stages[:-1] if stage.until_step <= 0]
        idle = [f"never in force, because until_step is not above 0: {', '.join(never)}"] if never else []
        return (*idle, *(warning for dataset in self.datasets.values() for warning in dataset.warnings))

    def undrawable(self) -> Iterator[Problem]:
        """Yield a problem for every dataset that a stage draws from and that has no record to draw."""
        for name, dataset in self.datasets.items():
            stage = next((stage.name for stage in self.stages if stage.shares.get(name, 0.0) > 0.0), None)
            if stage is not None and not dataset.records.servable:
                received = f"no record that can be served, although the stage {stage!r} draws from it"
                accepted = "at least one record with a prompt, or a weight of 0 in every stage"
                yield Problem(f"{self.path}: datasets.{name}.path", received, accepted)

    def stage_at(self, iteration: int) -> MixStage:
        """Return the first stage whose boundary is above ``iteration``, else the last one."""
        return next((stage for stage in self.stages if iteration < stage.until_step), self.stages[-1])

    def locate(self, sample_id: str) -> tuple[str, int]:
        """Return the dataset of a sample id and the number of its record in the file, from 0 without blank lines.

        The number follows the last colon, because a dataset id may contain one. Raise ``DatasetError`` for an unknown id.
        """
        dataset_id, colon, index = sample_id.rpartition(":")
        dataset = self.datasets.get(dataset_id)
        with suppress(ValueError):
            if colon and dataset is not None and 0 <= (number := int(index)) < len(dataset.records):
                return dataset_id, number
        accepted = "the id of a sample that was drawn, <dataset>:<number of the record>"
        raise DatasetError.one("sample_id", repr(sample_id[:200]), accepted)


class MixSampler:
    """Draws from a mix, with replacement: a dataset by the weights of the stage, then one of its servable records.

    Threads share one random stream, so their samples depend on their order.
    """

    def __init__(
        self, config: MixConfig, rng: random.Random | None = None, *, only: Mapping[str, Sequence[int]] | None = None
    ) -> None:
        """Without ``rng``, draw by the config's seed, if any. ``only``: the numbers to draw from, by dataset."""
        self._config, self._rng, self._turn = config, rng or random.Random(config.seed), threading.Lock()
        whole = {name: dataset.records.servable for name, dataset in config.datasets.items()}
        self._numbers: Mapping[str, Sequence[int]] = whole if only is None else only

    def draw(self, iteration: int, n: int) -> list[tuple[str, int]]:
        """Return ``n`` independent draws as (dataset id, number), none if ``n`` is not above 0.

        Raise ``DatasetError`` if a drawn dataset has no records.
        """
        entries = self._config.stage_at(iteration).datasets
        names, whole = [entry.id for entry in entries], sum(entry.weight for entry in entries)
        weights = [entry.weight / whole for entry in entries]
        drawn: list[tuple[str, int]] = []
        with self._turn:
            for _ in range(n):
                name = self._rng.choices(names, weights, k=1)[0]
                numbers = self._numbers.get(name, ())
                if not numbers:
                    source = str(self._config.datasets[name].records.path)
                    raise DatasetError.one(source, f"no record of {name!r} to draw", "a record")
                # As such samplers have always drawn.
                drawn.append((name, numbers[self._rng.randint(0, len(numbers) - 1)]))
        return drawn


def load_mix_config(path: str | Path, *, try_graders: bool = True) -> MixConfig:
    """Read a mix with all that it names. Raise one ``PipelineError`` with all problems.

    ``~`` in ``path`` is expanded; ``paths.data_root`` and graders' files are relative to the file's folder, datasets to that
    root. The user's graders are called once with a made-up item, and the references they cannot use are counted, but for
    ``try_graders=False``, after an earlier check.
    """
    file = Path(path).expanduser().resolve()
    raw, content = read_yaml(file, UniqueKeysLoader, label=str(file), line=":", accepted="YAML")
    sections, unpaired = mapping_of(content), list[Problem]()
    reading = Reading(file, sections, try_graders=try_graders)
    for name, entry in mapping_of(sections.get("datasets")).items():
        lists = (mapping_of(entry).get(key) for key in ("graders", "grader_weights"))
        named, weights = (len(each) if isinstance(each, list) else 0 for each in lists)
        if named != weights:
            received = f"weights: {weights}, graders: {named}"
            unpaired.append(Problem(f"{file}: datasets.{name}.grader_weights", received, "a weight for every grader"))
    invalid: list[Problem] = []
    try:
        form = MixForm.model_validate(content, context=reading)
    except ValidationError as error:
        invalid += _problems(error, str(file))
    if problems := [*unpaired, *reading.problems, *invalid]:
        raise PipelineError(tuple(dict.fromkeys(problems)))
    datasets = {}
    for name, each in form.datasets.items():
        graders = reading.grader_set(zip(each.graders, each.grader_weights, strict=True), each.multiplicative_graders)
        if each.path is not None:
            datasets[name] = MixDataset(name, graders, *each.path)
    return MixConfig(file, form.seed, form.stages, datasets, hashlib.sha256(raw).hexdigest())


def is_mix(path: Path) -> bool:
    """Return whether a file has the form of a mix rather than of a pipeline: it has ``datasets``."""
    with suppress(PipelineError):
        # Keys are checked when it is loaded: a mix with a bad one is no pipeline.
        _, content = read_yaml(path.expanduser(), yaml.SafeLoader, label=str(path), line=":", accepted="YAML")
        return isinstance(content, dict) and "datasets" in content
    return False


def _problems(error: ValidationError, source: str, joint: str = ": ") -> Iterator[Problem]:
    for each in error.errors(include_url=False):
        key = ".".join(map(str, each["loc"]))
        received = each["ctx"].get("given") or ("nothing" if each["input"] is None else shown_value(each["input"]))
        yield Problem(f"{source}{joint}{key}" if key else source, received, each["msg"])

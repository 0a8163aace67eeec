"""The strict, frozen shape of one experience, a line of ``experiences.jsonl``, and its signature.

The signature binds a record to the pack it was learned for: a digest of pack stamp, manifest timestamp and content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Self, TypeAlias, TypeVar

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict, Field, ValidationError, model_validator

from tfgrpo.stores.canonical import canonical_json, sha256_hex
from tfgrpo.stores.errors import CorruptFile
from tfgrpo.stores.text import MAX_CHARS, MAX_WORDS, check_identifier, count_words

Operation: TypeAlias = Literal["add", "modify", "merge"]
Polarity: TypeAlias = Literal["do", "avoid"]
Identifier: TypeAlias = Annotated[str, AfterValidator(check_identifier)]
_OF_THE_WRITING = {"created_at", "stamp_signature"}
MAX_CAUSE_WORDS: Final = 60


_T = TypeVar("_T")
STRICT: Final = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
"""No coercion, unknown keys refused, no NaN or infinity."""


def read_lines_as(
    read: Callable[[str | bytes], _T], path: Path, lines: Iterable[str | bytes], what: str
) -> Iterator[_T]:
    """Yield what ``read`` makes of every line. Raises ``CorruptFile`` with the number of a line that is not ``what``."""
    for number, line in enumerate(lines, start=1):
        try:
            yield read(line)
        except ValidationError as error:
            raise CorruptFile(f"{path}: line {number} is not {what}: {error.errors()[0]['msg']}") from error


class Strict(BaseModel):
    """Frozen, no coercion, unknown keys refused, no NaN or infinity."""

    model_config = ConfigDict(frozen=True, **STRICT)


class Reward(Strict):
    """Reward of the evidence for a lesson."""

    gt_score: float
    """Weighted total reward of the best rollout behind the lesson: in its groups, and in those of its targets."""
    relative_rank: float = Field(ge=0.0, le=1.0)
    """Rank of that rollout in its group: 1 is best, ties share the mean rank."""


class ToolStat(Strict):
    """Use of one tool in the rollouts behind the lesson, summed."""

    tool: str = Field(min_length=1)
    tokens: int = Field(ge=0)
    latency_ms: float = Field(ge=0.0)
    cost_usd: float | None = Field(default=None, ge=0.0)
    """None when the price is unknown; never zero for unknown."""


class ExperienceRecord(Strict):
    """One stamped lesson.

    ``add`` supersedes no record, ``modify`` exactly one, whose wording it changes, ``merge`` at least two.
    """

    schema_version: Literal[1] = 1
    experience_id: str
    run_id: Identifier
    task_id: Identifier
    domain: str = Field(min_length=1)
    pack_id: Identifier
    tags: tuple[str, ...] = ()
    epoch: int = Field(ge=1)
    batch: int = Field(ge=0)
    group_id: str
    operation: Operation
    supersedes: tuple[str, ...] = ()
    summary32: str
    cause: str | None = None
    """Why it holds, as the reflection put it, in at most 60 words. Never in a prompt of an actor."""
    polarity: Polarity
    reward: Reward
    tool_stats: tuple[ToolStat, ...] = ()
    evidence: tuple[str, ...] = ()
    """Ids of the rollouts that showed it."""
    stamp_signature: str = Field(pattern=r"^([0-9a-f]{64})?$")
    """Hex SHA-256, see ``sign_record``. Empty means unstamped: such a record is refused by the store."""
    created_at: AwareDatetime

    @model_validator(mode="after")
    def _text_and_targets_fit_the_operation(self) -> Self:
        if count_words(self.summary32) > MAX_WORDS:
            raise ValueError(f"summary32 has {count_words(self.summary32)} words; at most {MAX_WORDS}")
        if len(self.summary32) > MAX_CHARS:
            raise ValueError(f"summary32 has {len(self.summary32)} characters; at most {MAX_CHARS}")
        if not self.summary32.strip():
            raise ValueError("summary32 has no words")
        if self.cause is not None and count_words(self.cause) > MAX_CAUSE_WORDS:
            raise ValueError(f"cause has {count_words(self.cause)} words; at most {MAX_CAUSE_WORDS}")
        targets = len(self.supersedes)
        fits = {"add": targets == 0, "modify": targets == 1, "merge": targets >= 2}
        if not fits[self.operation]:
            raise ValueError(f"{self.operation} cannot supersede {targets} records")
        return self


def support_of(record: ExperienceRecord) -> int:
    """Return how many groups showed a lesson. The id of a rollout is that of its group, a slash and a number."""
    return len({rollout.rpartition("/")[0] or rollout for rollout in record.evidence})


def same_content(one: ExperienceRecord, other: ExperienceRecord) -> bool:
    """Return whether two records are equal but for when they were written."""
    return one.model_dump(exclude=_OF_THE_WRITING) == other.model_dump(exclude=_OF_THE_WRITING)


@dataclass(frozen=True, slots=True)
class PackStamp:
    """Stamp of a pack in its manifest."""

    pack_id: str
    stamp: str
    """Hex SHA-256 of the sources, with id and domain."""
    stamped_at: str
    """The manifest's timestamp, as written."""


def sign_record(record_fields: Mapping[str, Any], pack: PackStamp) -> str:
    """Return the hex SHA-256 of the pack's stamp, the manifest's timestamp and the record without its signature."""
    content = {key: value for key, value in record_fields.items() if key != "stamp_signature"}
    return sha256_hex(canonical_json({"stamp": pack.stamp, "stamped_at": pack.stamped_at, "record": content}))


def stamp_record(record: ExperienceRecord, pack: PackStamp) -> ExperienceRecord:
    """Return the record with its signature under this pack."""
    return record.model_copy(update={"stamp_signature": sign_record(record.model_dump(mode="json"), pack)})


def is_signed_record(record_fields: Mapping[str, Any], pack: PackStamp) -> bool:
    """Return whether fields have their signature under this version of the pack; what is no JSON cannot have any."""
    try:
        return bool(record_fields.get("stamp_signature") == sign_record(record_fields, pack))
    except (TypeError, ValueError):  # NaN, half a surrogate pair: edited by hand
        return False


def signature_holds(record: ExperienceRecord, pack: PackStamp) -> bool:
    """Return whether the record was signed under exactly this version of this pack, and is unchanged."""
    return record.pack_id == pack.pack_id and is_signed_record(record.model_dump(mode="json"), pack)

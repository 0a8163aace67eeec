"""Scorer of JSON by a JSON schema, in a worker process: its ``pattern`` may backtrack without end. Nothing is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any, Final

from jsonschema import Draft202012Validator, SchemaError
from jsonschema.protocols import Validator
from jsonschema.validators import validator_for
from pydantic import BeforeValidator
from pydantic.dataclasses import dataclass
from referencing import Registry
from referencing.exceptions import Unresolvable
from referencing.jsonschema import specification_with

from tfgrpo.rewarders.options import Options, refusal
from tfgrpo.rewarders.scorer import GraderInput, ItemScorer, final_answer, metadata
from tfgrpo.rewarders.text.answers import json_in, without_reasoning
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.json_values import canonical_json, load_json
from tfgrpo.stores.outcomes import RewardScore

_REFERENCES: Final = ("$ref", "$dynamicRef", "$recursiveRef")
_LONGEST: Final = 200


def _checked(schema: object) -> object:
    if schema is not None:
        try:
            _validator_of(schema)
        except ValueError as error:
            accepted = "a JSON schema, or JSON text of one, without references to other addresses"
            raise refusal(accepted, f"no usable schema: {error}") from None
    return schema


@dataclass(frozen=True, slots=True)
class JsonConforms(Options, ItemScorer):
    """1.0 when the JSON of the answer conforms to ``metadata.schema`` and to the option ``schema``, else 0.0.

    A schema is an object, or JSON text of one, of any draft that ``$schema`` names, else of 2020-12. The JSON is the whole
    answer, that of its code fence, or the only object or array of its prose; two different ones are none.
    """

    schema: Annotated[Any, BeforeValidator(_checked)] = None
    """Schema for every item, in addition to that of the record."""

    def score_one(self, item: GraderInput) -> RewardScore:
        violation = self._violation(item)
        return RewardScore("json_conforms", float(violation is None), violation or "conforms to the schema")

    def _violation(self, item: GraderInput) -> str | None:
        validators = self.wanted(item)
        text = final_answer(item) or without_reasoning(item.completion)
        if text is None:
            return "no answer after the reasoning"
        try:
            value = json_in(text)
        except (ValueError, RewardError) as error:
            return str(error)
        for validator in validators:
            try:
                violation = next(iter(validator.iter_errors(value)), None)
            except RecursionError:
                raise RewardError("the schema or the answer is nested too deep") from None
            if violation is not None:
                return f"{violation.json_path}: {violation.message:.{_LONGEST}}"
        return None

    def wanted(self, item: GraderInput) -> list[Validator]:
        own = metadata(item, "schema")
        if own is None and self.schema is None:
            raise RewardError("the item has no metadata.schema")
        try:
            return [_validator_of(schema) for schema in (self.schema, own) if schema is not None]
        except ValueError as error:
            raise RewardError(f"metadata.schema is no schema: {error}") from None


def _validator_of(schema: object) -> Validator:
    # Through its text, also because a record may have tuples for lists.
    try:
        return _validator(schema if isinstance(schema, str) else canonical_json(schema))
    except (RecursionError, TypeError):
        raise ValueError(f"a {type(schema).__name__} that is nested too deep, or no JSON") from None


@lru_cache(maxsize=256)
def _validator(text: str) -> Validator:
    schema = load_json(text)
    if not isinstance(schema, dict):
        raise ValueError(f"{text:.{_LONGEST}}, which is no object")
    named = schema.get("$schema", "")
    kind = validator_for(schema, default=Draft202012Validator) if isinstance(named, str) else Draft202012Validator
    if named and isinstance(named, str) and kind is Draft202012Validator and "2020-12" not in named:
        raise ValueError(f"the draft {named!r:.{_LONGEST}}, which is not known")
    try:
        kind.check_schema(schema)
    except SchemaError as error:
        raise ValueError(f"{error.json_path}: {error.message:.{_LONGEST}}") from None
    registry: Registry[Any] = Registry()  # the library's own one would fetch what is not in it
    root = specification_with(kind.META_SCHEMA["$schema"]).create_resource(schema)
    waiting = [(root, registry.resolver_with_root(root))]
    while waiting:
        resource, resolver = waiting.pop()
        contents = resource.contents if isinstance(resource.contents, Mapping) else {}
        for reference in (contents[key] for key in _REFERENCES if isinstance(contents.get(key), str)):
            try:
                resolver.lookup(reference)
            except Unresolvable:
                raise ValueError(f"the reference {reference!r:.{_LONGEST}} to what is not in it; nothing is fetched") from None
        waiting += [(each, resolver.in_subresource(each)) for each in resource.subresources()]
    validator: Validator = kind(schema, registry=registry)
    try:
        validator.is_valid(None)
    except RecursionError:
        raise ValueError("a reference that leads to itself") from None
    return validator

"""Scorer of verifiable instructions, as IFEval checks them (Zhou et al., 2023): words, lengths, formats, letter case, language.

Where the reference implementation would guess (the language of a short text, what a trained tokenizer counts), an instruction
is not decided, and the item may have no score.
"""

from __future__ import annotations

import inspect
import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.options import Flag, Options, accepts, require
from tfgrpo.rewarders.scorer import GraderInput, ItemScorer, column
from tfgrpo.rewarders.text.answers import without_reasoning
from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.outcomes import RewardScore

Check: TypeAlias = Callable[..., bool]

# Least probability of the language of a text; another one has less than 0.1
_SURE: Final = 0.9
# Letters of a text in ASCII below which the detector names any language for sure: ``hello`` is Dutch
_FEWEST_LETTERS: Final = 10
_RESPONSES: Final = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
_NOT_LAST: Final = r"""(?!\s*["')\]}]+\s*\Z)"""
# What may end a sentence before another one: ``"It rains." (Always.) 3.5`` has two
_BREAK: Final = re.compile(r"""[.?!](?=[])};"'*:@({[!?]|\s+\S)""" + _NOT_LAST)
# One that the trained model takes for an end whatever else it knows; behind a number it knows 26 words that go on
_SURE_BREAK: Final = re.compile(
    r"""(?:(?:(?<!\.)\b([a-z]{2,})\.|[^\w\s.]\.|\d\.(?!\s+(?:[.,:;?!]|(?-i:[^\W\d_A-Z])|"""
    r"(?:abreast|aes|business|cbot|colgate|commodities|cooper|corrections|credit|dividend|financing|genentech|henley|insider|"
    r"international|leisure|letters|notable|pay|pegasus|pepper|review|rj|wedgestone|who|zimmer)\b)))"
    r"""(?=[])};"'*:@({[]|\s+\S)|[?!](?=["')\]}*]*\s+\S))""" + _NOT_LAST,
    re.IGNORECASE,
)
# Words before a point that may not end a sentence
_ABBREVIATIONS: Final = frozenset(
    "adm al ala approx apr ariz aug ave bros calif chg cie co col colo conn corp cos ct dec dept dr ed eg eq est etc feb fig "  # noqa: SIM905
    "fla fri ft ga gen ie ill inc jan jr kan ky la lt ltd maj mass max messrs mg mich min minn mr mrs ms mt nev no nov oct ok "
    "okla ore pa pp prof rep reps sec sen sep sept sr st sw tenn tues va vol vs vt wash wed wis yr".split()
)
# Words of which a tokenizer of the Penn Treebank makes two
_SPLIT_WORDS: Final = re.compile(r"\b(?:CANNOT|GIMME|GONNA|GOTTA|LEMME|WANNA)\b")


@dataclass(frozen=True, slots=True)
class IfEval(Options, ItemScorer):
    """Share of the instructions in ``instruction_id_list`` and ``kwargs`` of the metadata that the output follows.

    The output is what is behind its reasoning; an empty one follows nothing. Raises ``PipelineError`` without langdetect, and
    ``RewardError`` for an item with an instruction that is unknown or not decided.
    """

    level: Annotated[Literal["instruction", "prompt"], accepts("instruction, prompt")] = "instruction"
    """``instruction``: the share of instructions followed. ``prompt``: 1.0 when all are, else 0.0."""
    strict: Flag = True
    """When false, it suffices to follow an instruction without the first or the last line, or without asterisks."""

    def __post_init__(self) -> None:
        require("langdetect", "langdetect", "ifeval")

    def score_one(self, item: GraderInput) -> RewardScore:
        checks = self.wanted(item)
        rest = without_reasoning(item.completion) or ""
        output = rest if rest == item.completion else rest.strip()
        lines = output.split("\n")
        cut = ["\n".join(part).strip() for part in (lines[1:], lines[:-1], lines[1:-1])]
        texts = [output] if self.strict else [text for each in (output, *cut) for text in (each, each.replace("*", ""))]
        missed, undecided = list[str](), list[str]()
        for name, check in checks:
            followed, why = False, ""
            for text in filter(str.strip, texts):
                try:
                    followed = followed or check(text)
                except RewardError as error:
                    why = f"{name}: {error}"
            if not followed:
                (undecided if why else missed).append(why or name)
        # One instruction that is not followed decides about all of them.
        if undecided and not (self.level == "prompt" and missed):
            raise RewardError("; ".join(undecided))
        share = 1 - len(missed) / len(checks) if self.level == "instruction" else float(not missed)
        names = f", not {', '.join(missed)}" if missed else ""
        return RewardScore("", share, f"followed {len(checks) - len(missed)} of {len(checks)} instructions{names}")

    def wanted(self, item: GraderInput) -> list[tuple[str, Check]]:
        """Return names and checks of an item's instructions. Raise ``RewardError`` where one is unknown or lacks a setting."""
        names, settings = column(item, "instruction_id_list"), column(item, "kwargs")
        if not isinstance(names, list | tuple) or not isinstance(settings, list | tuple) or not 0 < len(names) == len(settings):
            raise RewardError("the item has no instruction_id_list, or no kwargs for each of its instructions")
        checks: list[tuple[str, Check]] = []
        for name, own in zip(map(str, names), settings, strict=True):
            if name not in _CHECKS:
                raise RewardError(f"unknown instruction {name!r}; known: {', '.join(sorted(_CHECKS))}")
            # As a table has them: every setting in every row, empty where it is of no use.
            kwargs = {key: value for key, value in own.items() if value is not None} if isinstance(own, Mapping) else {}
            _, *wanted = inspect.signature(_CHECKS[name]).parameters
            if kwargs.keys() != {*wanted}:
                raise RewardError(f"{name} has kwargs {', '.join(kwargs) or 'none'}; it takes {', '.join(wanted) or 'none'}")
            for key, value in kwargs.items():
                try:
                    kwargs[key] = _SETTINGS[key].validate_python(value)
                except ValidationError as error:
                    raise RewardError(f"{name} has kwargs {key} {value!r:.60}: {error.errors()[0]['msg']}") from None
            checks.append((name, partial(_CHECKS[name], **kwargs)))
        return checks


@cache
def _detectors() -> tuple[Any, type[Exception]]:
    import langdetect  # noqa: PLC0415 - an extra

    factory = langdetect.DetectorFactory()
    factory.load_profile(langdetect.PROFILES_DIRECTORY)
    # It draws its readings at random.
    factory.seed = 0
    return factory, langdetect.LangDetectException


def _language_code(code: str) -> str:
    codes = {each for name in _detectors()[0].get_lang_list() for each in (name, name.partition("-")[0])}
    if code not in codes:
        raise ValueError(f"{code!r} is none of {', '.join(sorted(codes))}")
    return code


def _is_in(language: str, text: str) -> bool:
    if text.isascii() and sum(map(str.isalpha, text)) < _FEWEST_LETTERS:
        raise RewardError("the text is too short to tell its language")
    detectors, no_words = _detectors()
    detector = detectors.create()
    detector.append(text)
    try:
        readings = detector.get_probabilities()
    except no_words:
        raise RewardError("the text has no words of a language") from None
    share = sum(each.prob for each in readings if language in (each.lang, each.lang.partition("-")[0]))
    if 0 < share < _SURE:
        raise RewardError(f"the language may be {' or '.join(each.lang for each in readings)}")
    return bool(share)


_Count: TypeAlias = Annotated[int, Field(ge=0)]
_KINDS: Final[Mapping[Any, str]] = {
    _Count: "capital_frequency frequency let_frequency num_bullets num_highlights num_paragraphs num_placeholders "
    "num_sections num_sentences num_words",
    Annotated[int, Field(ge=1)]: "nth_paragraph",
    Literal["less than", "at least"]: "capital_relation let_relation relation",
    str: "end_phrase first_word keyword postscript_marker prompt_to_repeat section_spliter",
    list[str]: "forbidden_words keywords",
    Annotated[str, Field(min_length=1, max_length=1)]: "letter",
    Annotated[str, AfterValidator(_language_code)]: "language",
}
_SETTINGS: Final = {name: TypeAdapter(kind) for kind, names in _KINDS.items() for name in names.split()}


def _compares(relation: str, threshold: int, low: int, high: int | None = None) -> bool:
    # Of a count that is not certain both bounds have to say the same.
    one, other = ((count < threshold) == (relation == "less than") for count in (low, low if high is None else high))
    if one != other:
        raise RewardError(f"a count from {low} to {high} does not decide about {relation} {threshold}")
    return one


def _count(text: str, pattern: str, flags: int = re.IGNORECASE | re.MULTILINE) -> int:
    return len(re.findall(pattern, text, flags))


def _words(text: str, num_words: int, relation: str) -> bool:
    # Whether vowel signs divide the words of Indic scripts depends on the library that is used for patterns.
    whole = "".join(each for each in text if text.isascii() or not unicodedata.category(each).startswith("M"))
    return _compares(relation, num_words, _count(whole, r"\w+"), _count(text, r"\w+"))


def _sentences(text: str, num_sentences: int, relation: str) -> bool:
    ends = [match[1] for match in _SURE_BREAK.finditer(text)]
    sure = sum(word is None or word.lower() not in _ABBREVIATIONS for word in ends)
    return _compares(relation, num_sentences, sure + 1, len(_BREAK.findall(text)) + 1)


def _divided(parts: list[str], count: int) -> list[str] | None:
    # Nothing empty may be between others.
    stripped = [part.strip() for part in parts]
    filled = [part for part in stripped if part]
    return filled if all(stripped[1:-1]) and len(filled) == count else None


def _first_word(text: str, num_paragraphs: int, nth_paragraph: int, first_word: str) -> bool:
    if nth_paragraph > num_paragraphs:
        raise RewardError(f"there is no paragraph {nth_paragraph} of {num_paragraphs}")
    parts = [part.strip() for part in text.split("\n\n")]
    if sum(map(bool, parts)) != num_paragraphs or not parts[nth_paragraph - 1]:
        return False
    word = parts[nth_paragraph - 1].split()[0].lstrip("'").lstrip('"')
    return re.split("[.,?!'\"]", word)[0].lower() == first_word.lower()


def _postscript(text: str, postscript_marker: str) -> bool:
    marker = postscript_marker.strip()
    patterns = {"P.P.S": r"p\.\s?p\.\s?s", "P.S.": r"p\.\s?s\."}
    return _count(text.lower(), patterns.get(marker, re.escape(marker.lower())), 0) > 0


def _is_json(text: str) -> bool:
    try:
        json.loads(re.sub(r"^```(?:json|Json|JSON)?|```$", "", text.strip()).strip())
    except (ValueError, RecursionError):
        return False
    return True


_CHECKS: Final[Mapping[str, Check]] = {
    "change_case:capital_word_frequency": lambda text, capital_frequency, capital_relation: _compares(
        capital_relation,
        capital_frequency,
        sum(map(str.isupper, text.split())),
        sum(map(str.isupper, re.findall(r"[^\W_]+", text))) + len(_SPLIT_WORDS.findall(text)),
    ),
    "change_case:english_capital": lambda text: text.isupper() and _is_in("en", text),
    "change_case:english_lowercase": lambda text: text.islower() and _is_in("en", text),
    "combination:repeat_prompt": lambda text, prompt_to_repeat: (
        text.strip().lower().startswith(prompt_to_repeat.strip().lower())
    ),
    "combination:two_responses": lambda text: len({*(_divided(text.split("******"), 2) or ())}) == 2,
    # As the pattern [.*?] finds them in each line, but without a search for the end of each opening.
    "detectable_content:number_placeholders": lambda text, num_placeholders: (
        sum("[" in piece for line in text.split("\n") for piece in line.split("]")[:-1]) >= num_placeholders
    ),
    "detectable_content:postscript": _postscript,
    "detectable_format:constrained_response": lambda text: any(each in text for each in _RESPONSES),
    "detectable_format:json_format": _is_json,
    "detectable_format:multiple_sections": lambda text, section_spliter, num_sections: (
        _count(text, rf"{re.escape(section_spliter.strip())}\s?\d+", 0) >= num_sections
    ),
    "detectable_format:number_bullet_lists": lambda text, num_bullets: (
        _count(text, r"^[^\S\n]*\*[^*].*$") + _count(text, r"^[^\S\n]*-.*$") == num_bullets
    ),
    "detectable_format:number_highlighted_sections": lambda text, num_highlights: (
        sum(bool(each.strip("*").strip()) for one in (r"\*[^\n*]*\*", r"\*\*[^\n*]*\*\*") for each in re.findall(one, text))
        >= num_highlights
    ),
    "detectable_format:title": lambda text: any(
        0 <= (one := line.find("<<")) < (other := line.rfind(">>")) - 2
        and line[one : other + 2].lstrip("<").rstrip(">").strip()
        for line in text.split("\n")
    ),
    "keywords:existence": lambda text, keywords: all(_count(text, re.escape(each)) for each in keywords),
    "keywords:forbidden_words": lambda text, forbidden_words: (
        not any(_count(text, rf"\b{re.escape(each)}\b") for each in forbidden_words)
    ),
    "keywords:frequency": lambda text, keyword, frequency, relation: _compares(
        relation, frequency, _count(text, re.escape(keyword.strip()))
    ),
    "keywords:letter_frequency": lambda text, letter, let_frequency, let_relation: _compares(
        let_relation, let_frequency, text.lower().count(letter.lower())
    ),
    "language:response_language": lambda text, language: _is_in(language, text),
    "length_constraints:nth_paragraph_first_word": _first_word,
    "length_constraints:number_paragraphs": lambda text, num_paragraphs: (
        _divided(re.split(r"\s?\*\*\*\s?", text), num_paragraphs) is not None
    ),
    "length_constraints:number_sentences": _sentences,
    "length_constraints:number_words": _words,
    "punctuation:no_comma": lambda text: "," not in text,
    "startend:end_checker": lambda text, end_phrase: text.strip().strip('"').lower().endswith(end_phrase.strip().lower()),
    "startend:quotation": lambda text: len(text.strip()) > 1 and text.strip()[0] == text.strip()[-1] == '"',
}

"""Screen a lesson before it is stored or shown to an actor: clean it, then accept it or reject it with a reason.

Lessons come from a model that read untrusted text. What no advice needs is refused: secrets, addresses, prompt markup, orders
about lessons and prompts (patterns: ``screening.yaml``), hidden and encoded text, given-away answers, words of a single item,
scripts that neither the pack nor the item has. Lists of hostile words are no part of it: they stop one in five of the next
author's. What a lesson does to behaviour is for the canaries of the sweep.
"""

from __future__ import annotations

import html
import re
import unicodedata
from base64 import b64decode
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal, InvalidOperation
from difflib import SequenceMatcher
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias
from urllib.parse import unquote

from tfgrpo.stores.packaged import packaged_yaml
from tfgrpo.stores.text import MAX_CHARS, MAX_WORDS, clean_text, count_words

Rule: TypeAlias = Literal["empty", "markup", "order", "secret", "address", "answer", "prompt", "long", "negated"]
_SCREENING: dict[str, Any] = packaged_yaml(__file__, "screening.yaml")
_COMMON: dict[str, Any] = packaged_yaml(__file__, "common.yaml")
# Invisible characters that are neither control nor format characters: fillers, joiners, variation selectors.
_INVISIBLE = re.compile(
    "[\ufeff\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2800\u3164\uffa0\ufe00-\ufe0f\U000e0100-\U000e01ef]"
)
# Most characters of a candidate that are screened; longer ones are too long anyway.
_MAX_SCREENED = 4000
_RUN = 8
_RUN_OF_PROMPT = 6
_FOLLOWED = re.compile(r"(?<![^\W_])([^\W\d_]+) (?=([^\W\d_]))")
# What tells such a language from texts full of names, which may have its letters below a capital.
_GERMAN = re.compile(
    "\\b[a-z]*[\u00e4\u00f6\u00fc\u00df]|\\b(?:und|ist|das|nicht|wird|wie|viele|zu|mit|bei|eine[mnrs]?|die(?= [A-Z]))\\b"
)
_ORDINARY_NAMES = frozenset(_COMMON["ordinary_names"])
_COMMON_NUMBERS = frozenset(map(Decimal, range(4)))
_NUMBER = re.compile(r"(?<![\w.])(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?(?!\d|(?:st|nd|rd|th)\b)")
_WORD = re.compile(r"[^\W_]+")
_TOKEN = re.compile(r"[^\W_](?:[\w.,:/-]*[^\W_])?")
_SENTENCE_START = re.compile(r"(?:^|[.!?:;\n])[\s\"'(\[*\u2022-]*$")
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")
_SPELLED = {word: Decimal(value) for word, value in _COMMON["spelled"].items()}
_KNOWN_UNITS: dict[Decimal, str] = {Decimal(value): units for value, units in _COMMON["units"].items()}
_KNOWN_FACTORS = frozenset(map(Decimal, _COMMON["factors"]))
_FACTOR_LEAD = re.compile(r"(?:\b(?:by|times|per|over|multiple of|power of|base)(?: an?)?|[*/\u00d7\u00f7])\s*$")
_RESULT_LEAD = re.compile(
    r"(?:\b(?:is|are|was|be|equals?|equal to|gets?|got|gives?|makes?|yields?|totals?|leaves?|answers?|answer with|"
    r"option|choice|result(?:s in)?|returns?|choose|pick|select|say)|[=:\u2192])\s*[\"'`($\u20ac\u00a3-]*$"
)
_ANSWER_LEAD = re.compile(
    r"(?:\b(?:answers?|option|choice|result)(?: (?:is|are|was|with))?|\b(?:choose|pick|select|say|reply|respond with)|"
    r"[=:\u2192])\s*[\"'`(]*$"
)
_VAGUE = frozenset({"yes", "no", "true", "false", "none", "null", "n/a", "unknown"})
_LOOK_ALIKES = {ord(shown): meant for meant, group in _SCREENING["look_alikes"].items() for shown in group}
_LETTER_NAME = re.compile(
    r"(?:LATIN LETTER SMALL CAPITAL|NEGATIVE (?:SQUARED|CIRCLED) LATIN CAPITAL LETTER|REGIONAL INDICATOR SYMBOL LETTER) ([A-Z])"
)
_SPELLED_OUT = re.compile(r"(?<![^\W_])(?:(?:[^\W\d_][.\-_*]){2,}|(?:[^\W\d_] ){3,})[^\W\d_](?![^\W_])")
_ESCAPED = re.compile(r"\\(?:u([0-9a-f]{4})|x([0-9a-f]{2}))", re.IGNORECASE)
_ENCODED = re.compile(r"[A-Za-z0-9+/]{12,}={0,2}")
_DOTTED = re.compile(r"(?<![\w.@/-])[\w-]{1,63}+(?:\.[\w-]{1,63}+)++(?![\w(@-])")
_HOST = re.compile(r"[^\W\d][\w-]*\.[a-z]{2,}$|^\d+(?:\.\d+){3}$")
_TAG = re.compile(r"<[^<>]{1,80}>")
_SENTENCE_END = re.compile(r"(?<=[!?\n\u061f\u3002\uff01\uff1f])|(?<=\.)(?=\s)")


def folded_text(text: str) -> str:
    """Return the visible text as a reader sees it: case, accents and look-alikes folded, s p e l l e d out letters joined."""
    visible = text.lower()
    if not text.isascii():
        named = {sign: _LETTER_NAME.fullmatch(unicodedata.name(sign, "")) for sign in set(text)}
        shown = {ord(sign): name and name[1] for sign, name in named.items() if name or unicodedata.category(sign) == "Cf"}
        text = _INVISIBLE.sub("", text.translate(shown))
        decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKC", text).casefold())
        visible = "".join(character for character in decomposed if not unicodedata.combining(character))
        visible = unicodedata.normalize("NFC", visible.translate(_LOOK_ALIKES))
    joined = _SPELLED_OUT.sub(lambda match: re.sub(r"[ .\-_*]", "", match.group()), visible)
    return " ".join(joined.split())


_ATTACKS = {rule: [re.compile(pattern) for pattern in attack["patterns"]] for rule, attack in _SCREENING["attacks"].items()}
_HARMLESS = re.compile(_SCREENING["harmless"])
ATTACK_REASONS = frozenset(attack["reason"] for name, attack in _SCREENING["attacks"].items() if name != "answer")
"""Reasons that speak of an attack, not of a lesson that is too long or gives an answer away."""


def without_secrets(text: str) -> str:
    """Return a text with everything that looks like a secret masked."""
    for pattern in _ATTACKS["secret"]:
        text = pattern.sub("***", text)
    return text


def addresses_in(text: str) -> set[str]:
    """Return the addresses in a text, folded, as the screening recognises them."""
    folded = folded_text(text)
    return {match.group() for pattern in _ATTACKS["address"] for match in pattern.finditer(folded)}


def hosts_in(text: str) -> set[str]:
    """Return what may be a host by its form alone, folded: words and points, which files are, too, or four numbers."""
    return set(filter(_HOST.search, _DOTTED.findall(folded_text(text))))


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason of a rejection. Only ``long`` is worth asking for a shorter wording."""

    reason: str
    rule: Rule


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompts that a lesson may not repeat."""

    own: tuple[str, ...] = ()
    """Prompts of the items that the lesson comes from."""
    batch: tuple[str, ...] = ()
    """Prompts of the batch: a name or number that several of them have belongs to no single item."""
    ordinary: str = ""
    """Text whose words belong to no item, such as that of the pack."""


def screen_lesson(
    text: str, *, answers: Sequence[str] = (), prompts: Prompts | None = None, max_words: int = MAX_WORDS
) -> str | Rejection:
    """Return a lesson as it is stored: cleaned, one line, of at most ``max_words``, at most 32, and 280 characters.

    ``answers`` are the reference answers of its items. Screening a screened text changes nothing.
    """
    words_limit = min(max_words, MAX_WORDS)
    if len(text) > _MAX_SCREENED:
        return Rejection(f"{len(text)} characters; at most {MAX_CHARS}", "long")
    if _matches("hidden", text):
        return _rejection("hidden")
    cleaned = clean_text(_INVISIBLE.sub("", text))
    words = count_words(cleaned)
    if rejection := _rejected_content(cleaned, answers, prompts):
        return rejection
    if words > words_limit:
        return Rejection(f"{words} words; at most {words_limit}", "long")
    if len(cleaned) > MAX_CHARS:
        return Rejection(f"{len(cleaned)} characters; at most {MAX_CHARS}", "long")
    return cleaned


def _rejected_content(cleaned: str, answers: Sequence[str], prompts: Prompts | None) -> Rejection | None:
    if not any(map(str.isalpha, cleaned)):
        return Rejection("no words in it", "empty")
    if attack := attack_in(cleaned):
        return attack
    if gives_away(cleaned, answers):
        return Rejection("gives away the answer of an item", "answer")
    if prompts is None:
        return None
    if repeated := words_of_item(cleaned, prompts):
        return Rejection(f"repeats words of its item: {repeated}", "prompt")
    strange = ", ".join(sorted(scripts_of(cleaned) - scripts_of("\n".join((prompts.ordinary, *prompts.own)))))
    return Rejection(f"is written in letters that neither pack nor item has: {strange}", "prompt") if strange else None


def scripts_of(text: str) -> set[str]:
    """Return the scripts of words in a text but LATIN; one letter of a script in a word may be a symbol, as in ``µmol``."""
    words = (word for word in _WORD.findall(text) if not word.isascii())
    counts = (Counter(unicodedata.name(sign, "UNNAMED").split()[0] for sign in word if sign.isalpha()) for word in words)
    return {name for each in counts for name, letters in each.items() if letters > 1} - {"LATIN"}


def attack_in(text: str) -> Rejection | None:
    """Return the first attack in a lesson, or None. A folded copy is matched, so that disguised text is found too."""
    # Not folded: the letters of keys are told by their case.
    for name, reading in (("secret", unicodedata.normalize("NFKC", text)), ("scripts", text)):
        if _matches(name, reading):
            return _rejection(name)
    unescaped = _unescaped(text)
    if _ENCODED.sub(_decoded, unescaped) != unescaped:
        return _rejection("encoded")
    for reading in dict.fromkeys((folded_text(text), folded_text(unescaped))):
        remaining = _HARMLESS.sub(" ", reading)
        for rule in ("markup", "address", "order", "answer"):
            if _matches(rule, remaining if rule == "answer" else reading):
                return _rejection(rule)
    return None


def _unescaped(text: str) -> str:
    return _ESCAPED.sub(lambda match: chr(int(match[1] or match[2], 16)), html.unescape(unquote(text)))


def _rejection(name: str) -> Rejection:
    attack = _SCREENING["attacks"][name]
    return Rejection(attack["reason"], attack.get("rule", name))


def _matches(name: str, subject: str) -> bool:
    return any(pattern.search(subject) for pattern in _ATTACKS[name])


def _decoded(match: re.Match[str]) -> str:
    word = match.group().rstrip("=")
    for decode, text in ((bytes.fromhex, word), (partial(b64decode, validate=True), word + "=" * (-len(word) % 4))):
        try:
            decoded = decode(text).decode("ascii")
        except ValueError:
            continue
        if decoded.isprintable():
            return decoded
    return match.group()


def gives_away(text: str, answers: Sequence[str]) -> bool:
    """Return whether the lesson contains one of the answers. Empty answers do not count.

    - A number, alone or with its unit: any equal number in the lesson, in any form (``1,200``, ``1200.0``, ``twelve``), except
      0 to 3 and common knowledge (``7 days``, ``divide by 100``), unless stated as a result (``is 7``, ``= 7``).
    - A single letter, or yes, no, true, false, none: only when named as the answer (``answer B``, ``choose true``).
    - Other text: its words in this order; of a long answer, any eight in a row. In scripts without spaces: its characters.
    """
    lesson = _folded(text)
    return any(_contains(lesson, text, answer.strip()) for answer in answers if answer.strip())


def _folded(text: str) -> str:
    return " ".join(unicodedata.normalize("NFKC", text).casefold().replace("\u2212", "-").split())


def _contains(lesson: str, original: str, answer: str) -> bool:
    folded = _folded(answer).strip(" .,;:!?\"'`()[]{}")
    words = _WORD.findall(folded)
    values = {value for _, _, value in _numbers(folded)}
    if len(values) == 1 and len(words) <= _RUN:
        equal = [number for number in _numbers(lesson) if number[2] in values]
        if any(_RESULT_LEAD.search(lesson[: number[0]]) or not _common_knowledge(lesson, *number) for number in equal):
            return True
    if (letter := len(folded) == 1 and folded.isalpha() and folded.isascii()) or folded in _VAGUE:
        # A letter is a capital, in quotes or in brackets: the article ``a`` does not count.
        shown = rf"(?<!\w)(?:{folded.upper()}|[\"'`(]{folded}[\"'`)])(?!\w)" if letter else rf"\b{re.escape(folded)}\b"
        within = original if letter else lesson
        return any(_ANSWER_LEAD.search(within[: match.start()].casefold()) for match in re.finditer(shown, within))
    if _UNSPACED.search(folded):
        return len(folded) > 1 and folded in lesson
    with suppress(InvalidOperation):
        # A number is given away as one.
        Decimal(folded.replace(",", "").strip("$€£%+- "))
        return False
    size = min(len(words), _RUN)
    if not size or folded in _SPELLED:
        return False
    spoken = _WORD.findall(lesson)
    runs = {tuple(spoken[at : at + size]) for at in range(len(spoken) - size + 1)}
    return any(tuple(words[at : at + size]) in runs for at in range(len(words) - size + 1))


def _numbers(lesson: str) -> Iterator[tuple[int, int, Decimal]]:
    for match in _NUMBER.finditer(lesson):
        yield match.start(), match.end(), Decimal(match.group().replace(",", ""))
    for match in _WORD.finditer(lesson):
        if (value := _SPELLED.get(match.group())) is not None:
            yield match.start(), match.end(), value


def _common_knowledge(lesson: str, start: int, end: int, value: Decimal) -> bool:
    if value in _COMMON_NUMBERS:
        return True
    if value in _KNOWN_FACTORS and _FACTOR_LEAD.search(lesson[:start]):
        return True
    units = _KNOWN_UNITS.get(value)
    return units is not None and re.match(rf"[ -]?(?:{units})(?!\w)", lesson[end:]) is not None


def words_of_item(text: str, prompts: Prompts) -> str:
    """Return words that a lesson has from the prompt of one of its items alone, or an empty text.

    - Six words among eight in a row (in scripts without spaces twice as many characters), or half as many in a row that are
      the whole lesson, unless more than nine tenths of the batch have them: the form of its questions.
    - A number of two or more digits that is not common knowledge; a code of letters with digits or underscores; a name: a
      capitalised word that is nowhere in lower case. Each unless a fifth of the batch's prompts has it.
    """
    batch = tuple(dict.fromkeys((*prompts.batch, *prompts.own)))
    common, most = max(2, -(-len(batch) // 5)), max(1, 9 * len(batch) // 10)
    for run in _repeated_runs(text, prompts.own, prompts.ordinary, whole=True):
        if sum(map(run.stands_in, batch)) <= most:
            return str(run)
    for token, pattern in _rare_tokens(text, prompts, batch):
        of_item = any(map(pattern.search, prompts.own)) and not pattern.search(prompts.ordinary)
        if of_item and sum(pattern.search(prompt) is not None for prompt in batch) < common:
            return token
    return ""


def said_by_itself(text: str, prompt: str, ordinary: str = "") -> bool:
    """Return whether an item says a lesson, or words of it other than in a question, so that it is no witness for it."""
    sentences = _SENTENCE_END.split(_unescaped(prompt))
    stated = "\n".join(each for each in sentences if each.rstrip()[-1:] not in "?\u061f\uff1f")
    stated = prompt if _Run(_spaced(_unescaped(text)).split()).stands_in(prompt) else stated
    return any(_repeated_runs(text, [stated], ordinary, whole=True))


def repeated_run(text: str, sources: Iterable[str], ordinary: str = "", *, whole: bool = False) -> str:
    """Return six words in a row that a text has from one of the sources, and ``ordinary`` has not; empty for none.

    With ``whole`` six among eight count, too, and fewer, at least three in a row, where they are the whole text.
    """
    return str(next(_repeated_runs(text, sources, ordinary, whole=whole), ""))


def _repeated_runs(text: str, sources: Iterable[str], ordinary: str, *, whole: bool) -> Iterator[_Run]:
    words = _spaced(_unescaped(text)).split()
    size = 2 * _RUN_OF_PROMPT if _UNSPACED.search(text) else _RUN_OF_PROMPT
    size = len(words) if whole and size // 2 <= len(words) < size else size
    most = size + size // 3 if whole and size >= _RUN_OF_PROMPT else size
    sizes = sorted({size, max(size, min(most, len(words)))})
    runs = [_Run(words[at : at + many], many - size) for many in sizes for at in range(len(words) - many + 1)]
    return (run for source in sources for run in runs if run.stands_in(source) and not run.stands_in(ordinary))


class _Run(NamedTuple):
    """Words in a row of a lesson."""

    words: Sequence[str]
    spare: int = 0
    """How many of them a source need not say, which may say as many others between them."""

    def __str__(self) -> str:
        return " ".join(self.words)

    def stands_in(self, source: str) -> bool:
        """Return whether a source says them; of a long run only the letters count, whatever is between them."""
        spaced, letters = _readings(source)
        if f" {self} " in spaced or (len(self.words) >= _RUN_OF_PROMPT and "".join(self.words) in letters):
            return True
        said, own, need = spaced.split() if self.spare else [], set(self.words), len(self.words) - self.spare
        rows = (said[at : at + len(self.words)] for at, word in enumerate(said) if word in own)
        near = (row for row in rows if sum(word in own for word in row) >= need)
        in_order = (SequenceMatcher(None, self.words, row, autojunk=False).get_matching_blocks() for row in near)
        return any(sum(block.size for block in blocks) >= need for blocks in in_order)


@lru_cache(256)
def _readings(source: str) -> tuple[str, str]:
    """Return a source with its tags and encoded words and without them, as spaced words, and as letters alone."""
    shown = _unescaped(source)
    spaced = "".join(map(_spaced, dict.fromkeys((shown, _TAG.sub(" ", _ENCODED.sub(_decoded, shown))))))
    return spaced, spaced.replace(" ", "")


def _spaced(text: str) -> str:
    """Return the folded words with a space around each; in scripts without spaces the characters."""
    return f" {' '.join(_WORD.findall(_UNSPACED.sub(lambda sign: f' {sign.group()} ', folded_text(text))))} "


def _rare_tokens(text: str, prompts: Prompts, batch: Sequence[str]) -> Iterator[tuple[str, re.Pattern[str]]]:
    folded = _folded(text)
    for match in _NUMBER.finditer(folded):
        value = Decimal(match.group().replace(",", ""))
        if sum(map(str.isdigit, match.group())) > 1 and not _common_knowledge(folded, *match.span(), value):
            whole, _, rest = f"{value:f}".partition(".")
            grouped = rf"{int(whole):,}".replace(",", ",?")
            fraction = rf"\.{rest.rstrip('0')}0*" if rest.strip("0") else r"(?:\.0+)?"
            yield match.group(), re.compile(rf"(?<![\w.]){grouped}{fraction}(?![\d]|\.\d)")
    capitals_name = not any(map(_nouns_have_capitals, ("\n".join(batch), "\n".join(prompts.own))))
    for match in _TOKEN.finditer(text):
        token = match.group()
        as_it_is = rf"(?<!\w){re.escape(token)}(?!\w)"
        if any(map(str.isalpha, token)) and any(sign.isdigit() or sign == "_" for sign in token):
            yield token, re.compile(as_it_is, re.IGNORECASE)
        elif capitals_name and _is_name(text, match, (*batch, prompts.ordinary)):
            yield token, re.compile(as_it_is)


@lru_cache(16)
def _nouns_have_capitals(text: str) -> bool:
    # As in German, they follow a third of the words in lower case.
    after = [letter for word, letter in _FOLLOWED.findall(text) if word.islower()]
    return _GERMAN.search(text) is not None and 3 * sum(map(str.isupper, after)) >= len(after)


def _is_name(text: str, match: re.Match[str], others: Sequence[str]) -> bool:
    """Return whether a word is capitalised where no sentence starts, in its text or another, and is nowhere in lower case."""
    word = match.group()
    if not (word[0].isupper() and any(map(str.islower, word))) or word.casefold() in _ORDINARY_NAMES:
        return False
    lower = re.compile(rf"(?<!\w){re.escape(word.lower())}(?!\w)")
    if any(map(lower.search, (text, *others))):
        return False
    exactly = re.compile(rf"(?<!\w){re.escape(word)}(?!\w)")
    written = [(text, match.start()), *((other, each.start()) for other in others for each in exactly.finditer(other))]
    return any(not _SENTENCE_START.search(within[max(0, at - 80) : at]) for within, at in written)

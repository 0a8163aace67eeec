"""Find what a question offers and asks for: its options, the letters of options in a text, and the field of a reply."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Any, Final

from tfgrpo.rewarders.text import answers
from tfgrpo.rewarders.text.spelling import MARKUP, is_form_of

LETTERS: Final = "ABCDEFGHIJ"
_OPTION_SIGNS: Final = (LETTERS, LETTERS.lower(), "123456789")
_OPTION_LINE: Final = re.compile(
    r"(?m)^[ \t>*-]*[(\[]?([A-Ja-j]|[1-9])(?:[.:][ \t]+|[.:\u3001](?=[^\x00-\u1fff])|[ ]?[)\]]:?[ \t]*)(\S.*?)[ \t]*$"
)
# Between two options of a line.
_NEXT_OPTION: Final = re.compile(r"(?<=\S)[ \t\u3000]{2,9}(?=[(\[]?[B-J][.:)\]\u3001])")
# Signs as wide as Chinese ones, and brackets of Chinese, in ASCII.
_WIDE: Final[Mapping[int, str]] = {
    **{ord(sign) + 0xFEE0: f"{sign} " if sign in ".,:;" else sign for sign in map(chr, range(0x21, 0x7F))},
    **dict(zip((0x3010, 0x3011, 0x300C, 0x300D), "[][]", strict=True)),
}
# What is before an option within a line, by its sign.
_MARKS: Final = {
    sign: re.compile(rf"""(?<![^\s,;'"?\u3000-\u9fff])[(\[]?{sign}{ends}(?=\S)""")
    for signs in _OPTION_SIGNS
    for ends in (r"(?:[.:][ ]+|[.:\u3001](?=[^\x00-\u1fff])|[ ]?[)\]][ ]*)" if signs is LETTERS else r"[ ]?[)\]][ ]*",)
    for sign in signs
}
_EXCEPTION: Final = re.compile(r"(?i)(?:\b(?:not|except|nicht|kein\w*)\b|n't\b)[^.!?\n]*(?:[?:]|$)")
_LETTER: Final = re.compile(
    r"""(?:^|(?<=[\s(\[*"'>:]))(?:(?:option|choice|answer|letter)[ ]+)?[(\["'*]*
    (?:(?P<upper>[A-J])
      |(?:(?<=[(\[])|(?<=option[ ])|(?<=choice[ ])|(?<=answer[ ])|(?<=letter[ ])
        |^(?=.\)\s))(?P<lower>[a-j]))[)\]}."':,;!*\u3001\u3002\u060c\u0964]*(?=\s|$)""",
    re.VERBOSE,
)
# A letter that is no Latin one.
_SCRIPT: Final = r"[^\W\x00-\u02ff]"
_SCRIPT_BEGINS: Final = re.compile(rf"(?<={_SCRIPT})(?=[(\[]?[A-J](?![A-Za-z0-9'+#]))")
_SCRIPT_ENDS: Final = re.compile(rf"(?<![A-Za-z0-9'])([A-J][)\].:,;\u3001\u3002\u060c]*)(?={_SCRIPT}|[(\[])")
_NO_VERB: Final = re.compile(r"\s+(?!(?:or|and|is|because|since|fits|seems)\b)[a-z]")


def options_of(prompt: str, metadata: Mapping[str, Any] | None = None) -> dict[str, str]:
    """Return the options of a multiple-choice question by letter: as its prompt shows them, else as its metadata does.

    A prompt has them as lines, or one after the other within a line. Those that it numbers are by number: ``1``, ``2``.
    Metadata has a column for each letter, or ``choices`` or ``options``: a list, an object with a list ``text``, or an object
    of letters.
    """
    prompt = re.sub(r"\\q+uad|\$", " ", re.sub(r"\\(?:textbf|text|mathrm)\{([^{}]*)\}", r"\1", prompt))
    prompt = prompt if prompt.isascii() else prompt.translate(_WIDE)
    lines = _OPTION_LINE.findall(_NEXT_OPTION.sub("\n", prompt))
    for signs in _OPTION_SIGNS:
        options = {sign: text for sign, text in lines if sign in signs}
        in_order = signs is LETTERS or "".join(sorted(options)) == signs[: len(options)]
        if len(options) > 1 and signs[0] in options and in_order:
            return {sign.upper(): text for sign, text in _with_missing(options, signs).items()}
        if signs is LETTERS and (within := _options_within_lines(prompt, (signs,))):
            return within
    entries = metadata if isinstance(metadata, Mapping) else {}
    return _options_within_lines(prompt, _OPTION_SIGNS[1:]) or _options_of_metadata(entries)


def _options_within_lines(prompt: str, kinds: Iterable[str]) -> dict[str, str]:
    """Return the options of the last line that has some one after the other."""
    lines = reversed(prompt.splitlines())
    return next((options for line in lines for signs in kinds if (options := _options_within(line, signs))), {})


def _with_missing(options: Mapping[str, str], signs: str) -> dict[str, str]:
    """Return options in order, also those behind another in its line, ``(B) blue. (C) green``; not what is far from them."""
    texts = dict(options)
    for before, sign in pairwise(signs):
        last = max(texts) if len(texts) == len(options) else signs[-1]  # in lines of two the last may be behind another, too
        if sign not in texts and before in texts and sign <= last:
            head, *tail = re.split(rf"(?<=\S)\s[(\[]?{sign}[.:)\]]\s*(?=\S)", texts[before], maxsplit=1)
            texts |= {before: head, sign: tail[0]} if tail else {}
    near = (sign for at, sign in enumerate(signs) if at < 2 or not texts.keys().isdisjoint(signs[at - 2 : at]))
    return {sign: texts[sign] for sign in near if sign in texts}


def _options_within(line: str, signs: str) -> dict[str, str]:
    """Return the options that a line has one after the other: ``A) red B) blue``."""
    signs_at: list[re.Match[str]] = []
    for sign in signs:
        mark = _MARKS[sign].search(line, signs_at[-1].end() if signs_at else 0)
        if mark is None:
            break
        signs_at.append(mark)
    if len(signs_at) < 2 or re.match(r"(?:and|or)\b", line[signs_at[0].end() :]):  # (a) or (b)
        return {}
    ends_at = [*(mark.start() for mark in signs_at[1:]), len(line)]
    listed = line[signs_at[0].start() - 1] in "'\"" if signs_at[0].start() else False  # ['A)800', 'B)720']
    drop = " ,;|\t\u3002" + "'\"]" * listed
    texts = (line[mark.end() : end].strip(drop) for mark, end in zip(signs_at, ends_at, strict=True))
    return dict(zip(signs.upper(), texts, strict=False))


def _options_of_metadata(entries: Mapping[str, Any]) -> dict[str, str]:
    listed = next((entries[name] for name in ("choices", "options") if entries.get(name)), ())
    for lettered in (entries, listed if isinstance(listed, Mapping) else {}):
        options = {letter: str(lettered[letter]) for letter in LETTERS if letter in lettered}
        if len(options) > 1 and "A" in options:
            return options
    texts = listed.get("text", ()) if isinstance(listed, Mapping) else listed
    return dict(zip(LETTERS, map(str, texts), strict=False)) if isinstance(texts, list | tuple) else {}


def exception_asked(prompt: str) -> str:
    """Return the question for the option of which something does not hold, ``Which is NOT a fruit?``; empty for another."""
    head = _OPTION_LINE.split(prompt, maxsplit=1)[0].rstrip()
    match = _EXCEPTION.search(head)
    return re.split("[.!?\n]", head[: match.start()])[-1] + match[0] if match else ""


def ends_in_numbered_options(prompt: str, options: Mapping[str, str]) -> bool:
    """Return whether a prompt ends in numbered options, of words, behind a question or a choice."""
    head, *_, tail = [*_OPTION_LINE.split(prompt), ""] if "1" in options else ["", ""]
    asks = re.search(r"\?\s*$|\b(?:options?|following|choices?)\b[^\n]*\s*$", head, re.IGNORECASE)
    return bool(asks) and len(tail.split()) <= 8 and all(re.search(r"[^\W\d]{2}", each) for each in options.values())


def narrow(text: str) -> str:
    r"""Return a text without markup, with the letters of options apart from other scripts and out of LaTeX: ``选 B``."""
    if not text.isascii():
        text = _SCRIPT_ENDS.sub(r"\1 ", _SCRIPT_BEGINS.sub(" ", text.translate(_WIDE)))
        text = re.sub("([\u3001\u060c])(?=\\S)", r"\1 ", text)
    if "\\" in text or "$" in text:
        text = re.sub(r"\\(?:text(?:bf|it)?|mathbf)\s?\{([^{}]*)\}", r" \1 ", text)
        text = re.sub(r"\\(?:[,;:! ()\[\]]|q?quad)|[~$]", " ", text)
    return re.sub(r"^(\W{0,3}[A-J][)\]:]{1,2})(?=\w)", r"\1 ", MARKUP.sub("", text))  # (B)blue


def sign_of(mark: re.Match[str]) -> str:
    """Return the letter at a place that ``letters_in`` found."""
    return str(mark["upper"] or mark["lower"]).upper()


def letters_in(text: str, options: Mapping[str, str]) -> list[re.Match[str]]:
    """Return where a text has letters of options: no article or pronoun, as in ``A good answer``, ``I think``, and no unit."""
    last = max(options, default=LETTERS[-1])
    marks: list[re.Match[str]] = []
    for mark in _LETTER.finditer(text):
        before, sign = text[: mark.start()], mark[0].strip(" (\"'")
        is_unit = mark[0][0] not in "([" and re.search(r"\d ?$", before)  # 3 J
        within = sign == "A" and re.search(r"\w ?$", before)  # a letter, capital as it is
        is_word = sign in ("A", "I") and not within and _NO_VERB.match(text, mark.end())
        if sign_of(mark) <= last and not (is_unit or is_word):
            marks.append(mark)
    return marks


_FIELD_LINE: Final = re.compile(
    r"[ \t>*_#•-]*(?P<name>[^\W\d_][^:|\n]{0,40}?)[ \t*_]*(?:\||:)(?=[ *_])[*_]*[ \t]+(?P<value>\S.*)"
)
_MOST_FIELDS: Final = 50
# Of a question that are searched.
_MOST_WORDS: Final = 400
# Between the words of a name: ``unitPrice``, ``unit_price``.
_NO_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?:(?![,;(\n])[_\W])+")
# A question, behind what it supposes: ``Given the country Peru, what …``.
_ASKS: Final = re.compile(
    r"(?is)(?:.*?\b(?=(?:what|which|who(?:m|se)?|when|where|how|extract|find|give|return|state|identify|determine|tell)\b))?"
    r"(.+?)(?:[?!:\n]|\.\s|\Z)"
)
_IS_NAME: Final = re.compile(r"[^\W\d]{2}")
# Fields that repeat what was given.
_GIVEN: Final = re.compile(r"text|question|prompt|input|sentence|id")
# Between two that are both asked for.
_BESIDE: Final = re.compile(r"(?:and|or)(?: the| its)?|,.*|")
# Between two of which the second is asked for: ``the employee's start date``.
_OWNS: Final = ("", "s")


def field_asked_for(output: str, prompt: str) -> str | None:
    """Return the text or number in the field of a reply that a question asks for; None where it asks for none of several.

    ``{"city": "Lyon", "former": "Turin"}`` answers "In which city …" with Lyon, and so does a line ``City: Lyon`` of several.
    It is the only field beside a reason, else the one that the question names first.
    """
    text = (answers.without_reasoning(output) or "").strip()
    fenced = answers.FENCED.fullmatch(text) or (answers.OBJECT_LAST.search(text) if text[-1:] in "}`" else None)
    value = answers.without_envelope(answers.written_value(fenced["inside"] if fenced else text))
    if value and fenced and fenced.start() and answers.marked(text):
        return None
    if not value:
        lines = [_FIELD_LINE.fullmatch(each.strip()) for each in text.splitlines() if each.strip()]
        fields = {each["name"]: each["value"] for each in lines if each}
        alone = len(fields) == len(lines) and not (answers.marked(text) or answers.TAKES_BACK.search(text))
        value = fields if alone else None  # a text of fields, a line each
    if not isinstance(value, dict) or not 1 < len(value) < _MOST_FIELDS:
        return None
    asks = _ASKS.match(question := answers.last_question(prompt)[: answers.LOOKED_AT])
    texts = (asks[1] if asks else "", question)
    question, whole = (_words(re.sub(r"\b[Ww]ho(?:m|se)?\b", r"\g<0> name", each)) for each in texts)
    while isinstance(value, dict):
        named = {_words(str(key)): each for key, each in value.items()}
        named = {name: each for name, each in named.items() if not _is_beside(name, question)}
        if not named or {*named} & {"answer", "final answer"} or len(named) > len({*named} - {"value"}) > 0:
            return None  # which says itself what its answer is, or is one name with its value
        results = [name for name in named if not _GIVEN.fullmatch(name)]
        mentioned = [name for name in named if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", whole) and _IS_NAME.search(name)]
        turned = [name for name in named if " " in name and {*name.split()} <= {*whole.split()}]
        only = next((each[0] for each in (results, mentioned, turned) if len(each) == 1), "")
        value = named.get(_first_named(named, question) or only)
    is_told = isinstance(value, str | int | float) and not isinstance(value, bool)
    return str(value).translate(answers.UNESCAPED) if is_told else None


def _is_beside(name: str, question: str) -> bool:
    """Return whether a field is beside the answer: a reason, or what asks: ``What does the customer want``."""
    about = rf"(?:^(?:is|are|was|were)|\b(?:do|does|did|can|will|has|have|should)) (?:the|this|an?) {re.escape(name)}(?!\w)"
    return bool(answers.BESIDE_ANSWER.fullmatch(name) or re.search(about, question))


def _words(text: str) -> str:
    return " ".join(re.sub(r"[,;(\n]+", " , ", _NO_WORD.sub(" ", text)).casefold().split())


def _first_named(names: Mapping[str, Any], question: str) -> str:
    """Return the name that a question has first, as it is, else in another form; empty for none, and for two together."""
    words = question.split()[:_MOST_WORDS]
    for same in (str.__eq__, is_form_of):
        name_at: dict[int, list[str]] = {}
        for own in (name.split() for name in filter(_IS_NAME.search, names)):
            spans = ((at, words[at : at + len(own)]) for at in range(len(words) - len(own) + 1))
            at = next((at for at, span in spans if all(map(same, own, span))), -1)
            if at >= 0 and len(own) > len(name_at.get(at, ())):
                name_at[at] = own
        end = -1
        first: list[str] = []
        for at, own in sorted(name_at.items()):
            between = " ".join(words[end:at])
            if first and at >= end and between not in _OWNS:
                return "" if _BESIDE.fullmatch(between) else " ".join(first)
            if at >= end:
                end, first = at + len(own), own
        if first:
            return " ".join(first)
    return ""

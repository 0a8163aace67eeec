r"""Find the part of an output that states its answer, and the JSON value and fenced blocks of a text.

One reader for every scorer that compares with a reference. Reasoning is cut; then the last mark counts (``Answer:``,
``<answer>``, ``\boxed{}``, ``####``, ``{"answer": …}``), then "the answer is …", the last line, the whole text. What may
be answered is no answer: "the answer (yes or no) is no" states no.
"""

from __future__ import annotations

import ast
import json
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from tfgrpo.stores.errors import RewardError
from tfgrpo.stores.json_values import FINITE, canonical_json, load_json

VOCABULARY: Final[Mapping[str, Any]] = json.loads(Path(__file__).with_name("vocabulary.json").read_text("utf-8"))
"""Words of several languages: numbers, units, months, answers, labels, denials; symbols of LaTeX."""
LOOKED_AT: Final = 50_000
"""Characters from the end of a text that are searched: answers are at the end, and runaway replies are long."""
UNSPACED: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"
"""Thai, Lao, Burmese, Khmer, Japanese, Chinese: no spaces between words. Korean: none before particles."""
AnswerSource: TypeAlias = Literal["answer line", "tag", "box", "hashes", "object", "sentence", "last line"]
_REASONING: Final = re.compile(
    r"(?i)(?!(?<=`)[^\s`]{5,14}`(?!`))"  # in backticks it is quoted
    r"(?:<(/?)(?:think|thinking|reasoning|thought|analysis|seed:think)>|(?-i:\[(/?)THINK\]|◁(/?)think▷))"
)
# Where the answer starts in the channels of gpt-oss, which come before it.
_FINAL_CHANNEL: Final = re.compile(r"<\|channel\|>final(?:<\|[a-z]+\|>[^<]*)?<\|message\|>")


def any_of(name: str) -> str:
    """Return a pattern for any word, or phrase, of a list of the vocabulary."""
    words = VOCABULARY[name]
    return "|".join(words.split() if isinstance(words, str) else words)


_WORDS: Final = any_of("answer")
_CHOSEN: Final = (
    "(?:correct|right|best|final|predicted)[ ](?:(?:option|choice|statement)s?|label|category|class|value|solution)"
)
_DECORATION: Final = r"[ \t*_`]{0,6}"
_ANSWER_LINE: Final = re.compile(
    rf"""(?<=\?\n)A:[ \t]* | (?<=\n)A:[ \t]+(?=[-+$€£]{{0,2}}\d[^\n]*\Z) |             # behind a question; GSM8K's
    (?:^[ \t>*_#`|【\[-]{{0,12}}|(?<=[.!?;)])[ \t]+\**)                          # at a line's start, or after a sentence
    (?:(?:the|my|our|so|thus|therefore|hence)[ \t,]+){{0,3}}(?:(?:(?:final|correct|short|exact)[ \t]+)?(?:{_WORDS})|{_CHOSEN}
    |result|tl;dr|final(?=[*_]{{0,2}}:))(?:[ \t]+finale?)?(?!\w)(?:[ \t]*\([^()\n]{{0,40}}\))?{_DECORATION}
    (?:[:\uff1a=】]{_DECORATION}|\](?![^\n]*\[/)|[ \t][-\u2013\u2014][ \t]+|$(?=\s*\S))""",
    re.IGNORECASE | re.MULTILINE | re.VERBOSE,
)
_TAG: Final = re.compile(
    r"(?is)<(?P<tag>answer|final_answer|solution)>(?P<inside>.*?)(?:</(?P=tag)>|<\\(?P=tag)>|\Z)"
    r"|\[ANSWER\](?P<bracketed>(?:(?!\[ANSWER\]).)*?)\[/ANSWER\]"
)
# How agents that write code or actions hand in their answer, at the end: ``final_answer("Paris")``, ``Finish[Paris]``.
_CALL: Final = re.compile(
    r"(?i)\b(?:final_answer|finish|submit)[(\[](?P<quote>[\"'`]?)(?P<inside>[^\n]+?)(?P=quote)[)\]][ \t`]*\Z"
)
BOX: Final = re.compile(r"\\f?box(?:ed)?[ \t]{0,3}\{")
_BETWEEN_BOXES: Final = re.compile(BOX.pattern + r"[^{}]*(?:\{[^{}]*\}[^{}]*)*\}")
_MOST_BOXES: Final = 9
_MOST_SENTENCES: Final = 99
# What there is between boxes, but for words and commas.
_JOINS: Final = re.compile(r"\\(?:q?quad|text|[\[\](), ])|[ ${}]")
# What makes two boxes one answer: ``x = \boxed{1}, \boxed{2}``.
_JOINT: Final = re.compile(r"(?:[,;]|[,;]?and)(?:\w=)?")
# GSM8K's mark. A heading of Markdown looks the same: it counts before a number, or as the last line.
_HASHES: Final = re.compile(r"(?m)^[ \t]*####[ \t]*(?=[^\s#])(?:(?=[-+$€£¥(\[\\]?[ \t]?[\d.])|(?=[^\n]*\s*\Z))")
_SENTENCE: Final = re.compile(
    rf"""(?:คำตอบคือ|\bjibu\ ni\b
    |答案[是为為]|(?<![是为為])正确答案[是为為]?|(?<!不)[选選](?:择|擇)?(?=[A-J])|答えは|解答は|(?:정)?답은)[ \t:\uff1a]*
    |\b(?<!wrong\ )(?<!incorrect\ )(?:answer|answers(?=\ (?:are|were))|{_CHOSEN}
    |(?P<result>result)(?:(?<=the\ result)|(?<=our\ result)|(?<=final\ result)))
    (?:\ \([^()\n]{{1,40}}\)|\ (?:we|you|i)(?:\ \w+){{1,6}}?(?=\ is\b))?(?:,\ \w{{2,9}},)?
    (?:\ (?:to|for|of|in|here|would|should|must|therefore|thus|then|so)\b[^.\n:=]{{0,160}}?)?
    (?:(?<=\bthe\ answer):|[ \t]+(?:is|are|was|be|equals|=)\b)[ \t]*
    (?:thus|therefore|then|simply|indeed|clearly|just|exactly)?[ \t:,]*
    |\b(?:antwort|ergebnis|réponse|résultat|respuesta|resultado|risposta|risultato|resposta)(?:\ (?!nicht|n'|no|non|não)\w+)?
    \ (?:ist|lautet|est|es|è|é)\b[ \t:,]*""",
    re.IGNORECASE | re.VERBOSE,
)
_SENTENCE_END: Final = re.compile(
    r"[.!?][*_\"'”’)\]$]*(?=\s+[A-Z\"'“(*#<\\]|\s*$)|(?:です|である|입니다|이다)?[。.]?\s*\Z|。|\n"
)
_ABBREVIATION: Final = re.compile(r"\b(?:[A-Z]|St|Mt|Ft|Dr|Mr|Mrs|Ms|Prof|Gen|Lt|Col|Sgt|Jr|Sr|vs)\.$")
_WORDS_OF_LATEX: Final = re.compile(r"^\$?\\(?:text|mathrm|textbf|mathbf)\s?\{([^{}]*)\}\$?$")
FENCED: Final = re.compile(r"(?s)(?P<fence>`{3,9})(?!`)[\w+-]*+(?P<inside>(?:(?!(?P=fence)).)*)(?P=fence)")
OBJECT_LAST: Final = re.compile(r"(?<=[:\n])[ \t]*(?:```\w*\s*)?(?P<inside>\{[^{}]*\})[ \t\n]*(?:```[ \t]*)?\Z")
"""An object behind words, as the last thing: ``Here is the JSON: {"answer": 42}``."""
# A program with something below: its ``answer = 6 * 7`` states nothing.
_CODE: Final = re.compile(
    r"```(?!(?:json|la?te?x|markdown|md|output|plaintext|te?xt|yaml)\b)[A-Za-z][^\n`]*\n[^`]*(?:`(?!``)[^`]*)*```(?=\s*\S)"
)
_TOOL_CALL: Final = re.compile(r"(?s)<(tool_call|function_call)>\s*(?P<inside>.*?)\s*</\1>")
# Keys of an object that say which value is the answer, in lower case with spaces for underscores.
_KEYS: Final = ("answer", "final answer", "choice", "option", "label", "category", "class", "result", "prediction")
BESIDE_ANSWER: Final = re.compile(r"reason(?:ing)?|explanation|rationale|analysis|justification|thoughts?|confidence(?: \w+)?")
"""Keys of what an object has beside its answer."""
_OPENS_OBJECT: Final = re.compile(r"(?m)^[ \t]*(?:```(?:json)?\s*)?\{\s{0,9}\"")
# The answer in an object: ``"final_answer": "B"``.
_FIELD: Final = re.compile(
    rf"""(?i)[\n{{,]\s*"(?:{"|".join(_KEYS[:4]).replace(" ", "[ _]")})"\s*:\s*(?:(?P<text>"[^"\n]*")"""
    r"""|(?P<bare>[^\s"{}\[\],]+))"""
)
UNESCAPED: Final = str.maketrans({"\f": r"\f", "\b": r"\b", "\t": r"\t", "\r": r"\r"})
r"""Commands of LaTeX that a model wrote without a second backslash are control characters in JSON: ``\frac``, ``\text``."""
_FENCE_LINE: Final = re.compile(r"[ \t]*+(?:```[\w+-]*|~~~[\w+-]*|\$\$|\\\[|\\\]|</[a-z]\w*>)[ \t]*+|[-*_=|: \t]{3,}+")
_REMARK_LINE: Final = re.compile(
    r"(?i)\[\d+\][: ]|【(?!答案|正确答案)\w{2,4}】|\W{0,4}(?:(?:check|verification|proof|note|sources?|explanation)\W{0,3}:"
    r"|\((?=[^()]*[a-z]{3} [a-z])[^()]*+\)\W*$)"
)
# A matrix, of whatever lines: one formula.
_ENVIRONMENT: Final = re.compile(r"\\begin\{(\w*matrix|array|cases)\}[^$]{0,2000}?\\end\{\1\}")
# Where another part begins: ``B。【解析】…``.
_REMARK_HEADING: Final = re.compile(r"(?<=\S)(?=【(?!答案|正确答案)\w{2,4}】)")
# What follows the token that ends a reply, and that token: ``B</s>``.
_ENDED: Final = re.compile(
    r"(?s)(?:</s>(?=\s*(?:<|\n|\Z))|<\|(?:im_end|endoftext|eot_id|end_of_text)\|>|<(?:eos|eoa|eot|end_of_turn)>|\[(?:EOS|EOA|EOT)\]).*\Z"
    r"|(?:<\|?end\|?>|\[END\])\s*\Z"
)
# What Markdown crosses out: ``~~5~~ 6``.
_STRUCK: Final = re.compile(r"(?<!~)~~(?=[^\s~])[^~\n]{1,200}~~(?!~)[ \t]*")
# A first line that announces the answer, above a line of its own and more below: ``Sure! Here it is:``.
_OPENER: Final = re.compile(
    rf"(?i)\A(?!\W*(?:first|step|yes|no)\b)(?:[^\n]{{1,80}}:|(?:{any_of('openings')})\b[^\n]{{0,80}}[!,.])[ \t*_]*\n[ \t]*\n\s*"
    r"(?=\S[^\n]*\n[ \t]*\n\s*\S)"
)
MOST_BARE: Final = 5
"""Words of a line that is an answer as a whole."""
# Where a model goes on with a question of its own, as base models do.
_NEXT_QUESTION: Final = re.compile(r"(?i)\n[ \t]*\n(?=[ \t*#]*(?:question|problem|q|human|user)[ \t*]*\d*:)")
_ASIDE: Final = re.compile(r"(?<=[^\s,;*/+^-]) \((?![A-J]\))[^()\n]*\)")
# What was to be filled in, or left out: ``The answer is _____.``, ``The answer is ... B``.
_BLANK: Final = re.compile(r"^(?:\.{3}|\u2026)\s+(?=\S)|^_{3,}(?:[.:]?\s+(?=\S))?|_{3,}(?=\W*$)")
_NEGATED: Final = re.compile(rf"(?i)(?:{any_of('not')}|isn't|n't)\b")
REJECTED: Final = re.compile(r"(?i)(?<=\S),\s+(?:and\s+)?not\s+(?!only|just|necessarily|sure|sometimes)[^\n]{1,80}$")
"""What a statement rejects at its end: ``Paris, not London``."""
TAKES_BACK: Final = re.compile(
    r"(?i)(?:(?<=[.\u2026!?;\n\u2014])\s{0,3}|^|(?<=\w), (?:no, )?(?=scratch that|i mean|make that|but i(?:'d| would) say))"
    r"(?:(?:hmm|oh|oops|no|sorry)[,. \u2026]{1,4})?(?:wait|actually|correction|scratch that|i mean|make that"
    r"|on (?:second thought|reflection)|(?<=\.\. )no(?=,)"
    r"|(?:but )?(?:now|today|currently)(?=,? (?:it|they|he|she)\b| \d)"
    r"|but i(?:'d| would) say|i (?:choose|pick|select|say)(?! (?:this|that|it|so)\b))\b[,:. ]{0,4}(?:no[,:.] (?=\w))?"
)
"""The beginning of a clause that may state another answer than what comes before it."""
_BULLET: Final = re.compile(r"[ \t]*[-*\u2022] ")
_TASK: Final = re.compile(r"(?i)\W*(?:calculate|compute|determine|evaluate|find|give|list|name|simplify|solve|state|write)\b")
# The rest of a line below which the answer is: ``as follows:``, ``\[``.
_ANNOUNCES: Final = re.compile(rf"(?i)(?:(?:as follows|the following|below)[ \t]*[:.]?)?(?:{_FENCE_LINE.pattern})?[ \t*_`]*")
# The beginning of a solution, of which the last line is the answer.
_WORKED: Final = re.compile(r"(?i)[*_>\s]*(?:first|step|let|start|begin|we (?:first|have|need|start|begin))\b")
# Before an answer that is not the reply's: ``its author's answer is``, ``a more direct answer is``.
_OF_ANOTHER: Final = re.compile(r"(?:['\u2019]s|\b(?:an?|more|less|better))\s+(?:[a-z-]+\s+){0,2}\Z")
_LABEL_NOT: Final = re.compile(r"(?i)not?\b.")
# What a reply says of its own answer: ``So the answer is correct.``
_JUDGED: Final = re.compile(
    r"(?i)(?:indeed |also |therefore |thus )?(?:correct|right|verified|confirmed|reasonable|consistent|valid|checked)\b"
    r"(?=\W*(?:$|\n|[.!] ))"
)
# A conclusion from a result: ``the result is 24. Therefore, …``.
_CONCLUDES: Final = re.compile(r"(?i)(?:[.!]\s|\n)[^\w\n]{0,5}(?:so|thus|therefore|hence|finally|then|in conclusion)\b")
_CONCLUSION: Final = re.compile(r"(?i)\b(?:so|thus|therefore|hence)\b[ ,:]*")
# What a prompt has before its last question.
_BEFORE_QUESTION: Final = re.compile(r"(?s)\A.*(?:[.!?\n]\s|\A)(?=(?:(?![.!?]\s)[^\n])*\?)")
_ANY_ORDER: Final = re.compile(r"(?i)\b(?:any order|order (?:does not|doesn't) matter|no particular order)\b")
_ALL_ASKED: Final = re.compile(
    r"(?i)\b(?:all|every|solutions|roots)\b|\b(?:list|name) (?:the )?(?:[\w-]+ ){0,3}[\w-]+s\b|\bwhich \w+s\b"
)
SEVERAL_ASKED: Final = re.compile(
    r"(?i)\ball (?:(?:that|which) (?:apply|applies|fit|match)|(?:applicable|relevant|matching))\b|\bone or more\b"
    r"|\b(?:select|choose|pick|list|assign|name|give|find|extract) (?:all|every)\b|\bwhich (?:tags|labels|topics|categories)\b"
)
"""A question for several answers together, not for one of them: "Choose all that apply"."""
ORDER_ASKED: Final = re.compile(
    r"(?i)\b(?:order\w*|sort\w*|\w+cending|rank\w*|respectively|sequence|steps|first|next|then|home|chronolog\w+|coordinates|top"
    r"|(?:small|larg|great|high|low|long|short|old|young|fast|near|new|late|earli|b|wor)(?:e)?st|and the|from \w+ to)\b"
)


@dataclass(frozen=True, slots=True)
class Stated:
    """The part of a text that states its answer."""

    text: str
    source: AnswerSource
    whole: str

    @property
    def is_marked(self) -> bool:
        """Whether the text says itself that this is its answer."""
        return self.source != "last line"

    @property
    def candidates(self) -> tuple[str, ...]:
        """What may be the answer, likeliest first: a part with a mark alone, any other next to the whole text."""
        return (self.text,) if self.source not in ("sentence", "last line") else (self.text, self.whole)


def bare_reference(text: str) -> str:
    """Return a reference without what surrounds its answer: of a worked solution the part that is marked as the answer."""
    stated = stated_answer(text)
    marked = stated is not None and stated.text and stated.is_marked and stated.source != "sentence"
    return _WORDS_OF_LATEX.sub(r"\1", stated.text if stated is not None and marked else text.strip())


def without_reasoning(text: str) -> str | None:
    """Return the text behind its last block of reasoning; None when the last one is not closed.

    A lone ``</think>`` closes a block that the chat template opened. Tags in backticks are quoted.
    """
    if "<" not in text and "[" not in text and "◁" not in text:
        return text
    final = _last(_FINAL_CHANNEL, text)
    if final is not None:
        return text[final.end() :].partition("<|")[0]
    last = _last(_REASONING, text)
    return text if last is None else text[last.end() :] if any(last.groups()) else None


@lru_cache(maxsize=8)  # of one answer several rules read the same parts
def stated_answer(text: str, labels: tuple[str, ...] = ()) -> Stated | None:
    """Return the part that states the answer; None for reasoning without an end, and for no text behind it.

    ``labels``: what may be answered, as in ``in_a_sentence``.
    """
    rest = without_reasoning(text)
    if rest is None or not rest.strip():
        return None
    tail = rest[-LOOKED_AT:].replace("\r\n", "\n").replace("\r", "\n").strip()
    tail = _ENDED.sub("", _STRUCK.sub("", tail)).strip() or tail
    tail = _ENVIRONMENT.sub(lambda block: " ".join(block[0].split()), tail) if "\\begin" in tail else tail
    tail = _REMARK_HEADING.sub("\n", tail) if "】" in tail else tail
    before, *more = _NEXT_QUESTION.split(tail, 1)
    bare = "\n" not in before and len(before.split()) <= MOST_BARE and before[-1:] not in ":!"
    tail = before if more and (bare or marked(before) or in_a_sentence(before)) else tail
    tail = tail if _ANSWER_LINE.match(tail) else _OPENER.sub("", tail)
    lines = [each for each in tail.split("\n") if not _is_empty(each)]
    lines = [each for each in lines if not _REMARK_LINE.match(each)] or lines
    if (fenced := FENCED.fullmatch(tail)) and isinstance(written_value(fenced["inside"]), dict):
        lines = tail, *_ = [" ".join(fenced["inside"].split())]
    last = Stated(lines[-1].strip() if lines else tail, "last line", tail)
    return _in_an_object(tail) or marked(tail) or in_a_sentence(tail, labels) or last


def _in_an_object(text: str) -> Stated | None:
    last = OBJECT_LAST.search(text) if text[-1:] in "}`" else None
    fenced = FENCED.fullmatch(text) or _TOOL_CALL.fullmatch(text) or last
    inside = fenced["inside"] if fenced else text
    value = written_value(inside)
    if not isinstance(value, dict):
        return _in_a_broken_object(text)
    called = value.get("arguments") if "name" in value else None
    value = called if isinstance(called, dict) else value
    fields = {str(key).lower().replace("_", " "): each for key, each in value.items()}
    answers = [each for key, each in fields.items() if key in _KEYS]
    if isinstance(called, dict) and len(answers) != 1:
        return Stated("", "object", text)  # the call of a tool states nothing
    if not answers and (" " in str(value.get("error")) or (value.get("status") == "error" and len(value) > 1)):
        return Stated("", "object", text)  # nor does a report of an error
    if len(answers) != 1 or isinstance(answers[0], dict | list):
        return None
    if fenced is last is not None and "answer" not in inside.lower() and marked(text):
        return None  # what it says of the answer: ``Answer: Paris`` with ``{"category": "city"}`` below
    answer = answers[0].translate(UNESCAPED) if isinstance(answers[0], str) else json.dumps(answers[0])
    return Stated(answer.strip(), "object", text)


def _in_a_broken_object(text: str) -> Stated | None:
    """Return the answer in an object that is no JSON, as with line breaks or LaTeX in its reasoning; None without just one."""
    opened = _OPENS_OBJECT.match(text) or (_OPENS_OBJECT.search(text) if text.rstrip("` \n").endswith("}") else None)
    values = {each["text"] or each["bare"] or "" for each in _FIELD.finditer(text, opened.start())} if opened else ()
    if len(values) != 1:
        return None
    answer = values.pop()
    with suppress(ValueError):
        answer = str(json.loads(answer if answer[:1] == '"' else f'"{answer}"', strict=False)).translate(UNESCAPED)
    return Stated(answer.strip('" \n'), "object", text)


def marked(text: str) -> Stated | None:
    """Return the part of a text behind its last mark of an answer; None without one."""
    marks: list[tuple[int, AnswerSource, str]] = []
    prose = _CODE.sub(lambda block: re.sub("[^\n]", " ", block[0]), text) if "```" in text else text
    if (line := _last(_ANSWER_LINE, prose)) is not None:
        marks.append((line.end(), "answer line", _behind(text, line)))
    if (tag := _last(_TAG, text)) is not None:
        marks.append((tag.start(), "tag", tag["inside"] or tag["bracketed"] or ""))
    if text[-1:] in ")]`" and (call := _CALL.search(text[-2_000:])) is not None:
        marks.append((len(text), "tag", call["inside"]))
    if (box := _last(BOX, text)) is not None:
        boxes = [until_closing(text[each.end() :]) for each in [*BOX.finditer(text)][-_MOST_BOXES:]]
        between = _BETWEEN_BOXES.split(text)[1:-1] if 1 < len(boxes) < _MOST_BOXES else []
        joints = [_JOINT.fullmatch(_JOINS.sub("", each)) for each in between]
        joined = 1 < len(boxes) == len(between) + 1 and all(joints)
        marks.append((box.end(), "box", ", ".join(boxes) if joined else boxes[-1]))
    if (hashes := _last(_HASHES, text)) is not None:
        marks.append((hashes.end(), "hashes", text[hashes.end() :].partition("\n")[0]))
    if not marks:
        return None
    _, source, stated = max(marks)
    prose = stated if re.search(r"\$|\\\(", stated) else _ASIDE.sub("", stated)  # brackets of a formula are no aside
    inner = in_a_sentence(prose.strip()) if source == "answer line" else None
    stated = stated.strip() if inner is None else inner.text
    return Stated(_WORDS_OF_LATEX.sub(r"\1", stated), source, text)


def _is_empty(line: str) -> bool:
    return not line.strip() or _FENCE_LINE.fullmatch(line) is not None


def _behind(text: str, mark: re.Match[str]) -> str:
    """Return the rest of an answer line; below a heading, which has no rest or asks again, the answer or first paragraph."""
    line, _, below = text[mark.end() :].partition("\n")
    asks = "?" in line and len(line.split()) > 2  # fewer words may be an answer in doubt
    if (asks or _TASK.match(line)) and in_a_sentence(below):
        return below
    asks = asks and bool(below.strip()) and line.rstrip(' \t*_`"').endswith("?")
    if line.strip(" \t*_`#") and not (asks or _ANNOUNCES.fullmatch(line)):
        is_list = _BULLET.match(line) and _BULLET.match(below)
        return "\n".join([line, *takewhile(_BULLET.match, below.split("\n"))]) if is_list else line
    lines = [*takewhile(lambda each: not _is_empty(each), dropwhile(_is_empty, below.split("\n")))]
    is_worked = _WORKED.match(lines[0]) if len(lines) > 1 else None
    return lines[-1] if is_worked or (len(lines) > 1 and all("=" in each for each in lines)) else "\n".join(lines)


def in_a_sentence(text: str, labels: tuple[str, ...] = ()) -> Stated | None:
    """Return the rest of the last sentence of the form "the answer is …".

    "Is not …" states none, unless a label is ``not spam``; neither does "is correct" beside another text, unless a label is.
    """
    denied, judged = (any(map(pattern.match, labels)) for pattern in (_LABEL_NOT, _JUDGED))
    for match in reversed([*_SENTENCE.finditer(text)][-_MOST_SENTENCES:]):
        rest = _BLANK.sub("", text[match.end() :])
        if _OF_ANOTHER.search(text[max(0, match.start() - 32) : match.start()]):
            continue
        if not rest.strip(" \t\n.!\u3002\uff01") or (not denied and _NEGATED.match(rest)):
            continue
        if match["result"] and _CONCLUDES.search(rest[:2_000]):
            continue
        if not judged and _JUDGED.match(rest) and re.search(r"\w", text[: match.start()] + rest.partition("\n")[2]):
            continue
        if _ANNOUNCES.fullmatch(rest.partition("\n")[0]):
            return Stated(_behind(text, match).strip(), "sentence", text)
        end = next((each for each in _SENTENCE_END.finditer(rest) if not _abbreviates(rest, each)), None)
        answer = (rest[: end.start()] if end else rest).strip()
        if answer and not (end and end[0].startswith("?")):
            return Stated(answer, "sentence", text)
    return None


def _abbreviates(text: str, end: re.Match[str]) -> bool:
    """Return whether a full stop is that of an abbreviation within a sentence: ``St. Louis``, ``J. R. R. Tolkien``."""
    behind = text[end.end() :].partition("\n")[0].strip()
    before = text[: end.start() + 1][-8:]
    date = re.search(r"\b\d\d?\.$", before) and re.match(r"[^\W\d_]+ \d{4}\b", behind)  # 3. Januar 2024
    return bool(behind) and bool(date or _ABBREVIATION.search(before))


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    return max(pattern.finditer(text), key=re.Match.end, default=None)


def conclusion_of(text: str) -> str:
    """Return what a text concludes with; empty where it does not conclude."""
    *before, last = _CONCLUSION.split(text)
    return last if before else ""


def several_in(text: str) -> list[str]:
    """Return the texts that a cell may have between bars, semicolons, slashes or ``or``, or as a list; empty for one text."""
    value = written_value(text)
    if not isinstance(value, list) and re.search(r"[{}=<>$\n]|\w\(| -\w", text):  # code, or JSON
        return []
    parts = list(map(str, value)) if isinstance(value, list) else re.split(r" ?\|\|? ?|;| / ", text)
    either = text.split(" or ")
    parts = either if len(parts) == 1 and all(len(each.split()) <= MOST_BARE for each in either) else parts
    return parts if len(parts) > 1 and all(re.search(r"\w", part) for part in parts) else []


def until_closing(text: str) -> str:
    """Return the text up to the brace that closes an open one; all of it without one."""
    depth = 1
    for position, character in enumerate(text):
        depth += (character == "{") - (character == "}")
        if depth == 0:
            return text[:position]
    return text


_FENCE_BEGINS: Final = re.compile(r"(?m)^[ \t]*(?:`{3}|~{3})")
_FENCE_OPENS: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[^`\n]*")
_FENCE_CLOSES: Final = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*\r?")
_BRACKET: Final = re.compile(r"\{(?=\s*[\"}])|\[(?=\s*[\[{\"\]\d\-tfn])")
_BRACE: Final = re.compile(r"[{}]")


def fenced_blocks(text: str, opening: re.Pattern[str], closing: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yield where blocks begin and end, from left to right, none inside another: the lines between two fences.

    Each pattern matches a line; its first group is the fence. A block extends from an opening line to the next closing one
    with the same fence; an opening without one is skipped. Both patterns may match only lines that start with three
    backticks or tildes, after white space.
    """
    starts = (match.start() for match in _FENCE_BEGINS.finditer(text))
    lines = [(begin, len(text) if (end := text.find("\n", begin)) < 0 else end) for begin in starts]
    closers: dict[str, list[int]] = {}
    for number, line in enumerate(lines):
        if match := closing.fullmatch(text, *line):
            closers.setdefault(match[1], []).append(number)
    number = 0
    while number < len(lines):
        match = opening.fullmatch(text, *lines[number])
        ascending = closers.get(match[1], []) if match else []
        next_at = bisect_right(ascending, number)
        if next_at < len(ascending):
            yield lines[number][1] + 1, lines[ascending[next_at]][0]
            number = ascending[next_at]
        number += 1


def json_in(text: str) -> Any:
    """Return the JSON value of an answer: all of it, its fenced one, or the only object or array of its prose.

    Raises ``ValueError`` for none, and ``RewardError`` for different ones.
    """
    text = text.strip("\ufeff \t\r\n")
    try:
        return load_json(text)
    except ValueError as error:
        reason = str(error)
    blocks = [*fenced_blocks(text, _FENCE_OPENS, _FENCE_CLOSES)]
    values: list[Any] = []
    for begin, end in blocks:
        try:
            values.append(load_json(text[begin:end]))
        except ValueError as error:
            if "json" in text[:begin].rstrip("\r\n").rpartition("\n")[2].lower():
                raise ValueError(f"the fenced JSON cannot be read: {error}") from None
    if not values:
        begins, ends = [0, *(end for _, end in blocks)], [*(begin for begin, _ in blocks), len(text)]
        values = _embedded("\n".join(text[begin:end] for begin, end in zip(begins, ends, strict=True)))
    if len({canonical_json(value) for value in values}) > 1:
        raise RewardError(f"{len(values)} JSON values in the answer, which differ")
    if not values:
        raise ValueError(f"no JSON in the answer: {reason}")
    return values[0]


def _embedded(text: str) -> list[Any]:
    """Return the outermost objects and arrays in prose; arrays without an object only if there is none, as in ``[1]``."""
    values: list[Any] = []
    pieces: list[str] = []
    at = 0
    while opening := _BRACKET.search(text, at):
        pieces.append(text[at : opening.start()])
        try:
            value, at = FINITE.raw_decode(text, opening.start())
        except (ValueError, RecursionError) as error:
            if opening[0] == "{" or isinstance(error, RecursionError):
                return []
            at = opening.end()  # a remark in brackets
            continue
        values.append(value)
    objects = [value for value in values if "{" in canonical_json(value)]
    # Braces around it may make it a part of a value that is broken.
    return [] if _BRACE.search("".join([*pieces, text[at:]])) else objects or values


_NO_LITERAL: Final = re.compile(r"""[ \t]*(?!(?:[bBrRuU]{1,2}['"]|True\b|False\b|None\b|set\b))[A-Za-z_<`]""")
# Characters of a Python literal; the parser takes 2 seconds and half a gigabyte for a million.
_MAX_LITERAL: Final = 200_000
_ESCAPE: Final = re.compile(r"""\\(?:[\r\n\\'"abfnrtv0-7xNuU]|(.?))""", re.DOTALL)
_RAW_STRING: Final = re.compile(r"""(?<!\w)(?:[bB]?[rR]|[rR][bB])['"]""")


def python_literal(text: str) -> Any:
    """Return the value of a Python literal. Raises ``ValueError`` for any other text; no code is executed."""
    # Prose and markup are recognised by their first characters: the parser takes far longer to refuse them.
    if len(text) > _MAX_LITERAL or _NO_LITERAL.match(text):
        raise ValueError("no Python literal")
    if "\\" in text and not _RAW_STRING.search(text):  # where it would change the value
        # Unknown escapes such as ``\q`` are doubled, which means the same: the parser would warn of them, and warnings
        # cannot be silenced for one thread alone.
        text = _ESCAPE.sub(lambda match: match[0] if match[1] is None else f"\\\\{match[1]}", text)
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError) as error:
        raise ValueError("no Python literal") from error


def written_value(text: str) -> Any:
    """Return the list or object that a cell of a table has as text: JSON, or Python as pandas writes it; None for neither."""
    read: Callable[[str], Any]
    for read in (load_json, python_literal) if text.lstrip()[:1] in ("[", "{") else ():
        with suppress(ValueError, TypeError, RecursionError):
            return load_json(json.dumps(read(text.strip())))  # no set of Python's
    return None


def in_words(text: str) -> str:
    """Return the entries of a list in code as a list in words; another text as it is."""
    entries = written_value(text)
    return ", ".join(map(str, entries)) if isinstance(entries, list) else text


def without_envelope(value: Any) -> Any:
    """Return the innermost object of objects in each other: ``{"city": "Lyon"}`` of ``{"data": {"city": "Lyon"}}``."""
    while isinstance(value, dict) and len(within := [each for each in value.values() if isinstance(each, dict)]) == 1:
        value = within[0]
    return value


def last_question(prompt: str) -> str:
    """Return a prompt from its last question on; all of it where it has none."""
    return _BEFORE_QUESTION.sub("", prompt)


def is_order_free(prompt: str) -> bool:
    """Return whether a question is for all of something, in no order."""
    question = last_question(prompt)
    return bool(_ANY_ORDER.search(prompt) or (_ALL_ASKED.search(question) and not ORDER_ASKED.search(prompt)))

"""Compare an output with a formula."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import ClassVar, Final, NamedTuple

from tfgrpo.rewarders.text.answers import Stated, bare_reference, conclusion_of
from tfgrpo.rewarders.text.base import LONGEST_PART, Reference, parts_of
from tfgrpo.rewarders.text.lexer import unit_of, written
from tfgrpo.rewarders.text.rules import AnswerRule as Rule
from tfgrpo.rewarders.text.rules import Compared, ReadAnswer, denies, is_same_outcome, verdict_by
from tfgrpo.rewarders.text.spelling import LATEX_SPACE, QUOTES, plain

NEEDS_MATH: Final = 'comparing formulas needs math-verify: pip install "tfgrpo[math]"'


@dataclass(frozen=True)
class _Formula(ReadAnswer["FormulaReference"]):
    stated: Stated

    def is_denied(self) -> bool:
        text = self.text[:LONGEST_PART]
        several = len(_runs(text)) > 1 and _is_prose(_NEXT.sub(" ", _WRITTEN.sub("", text)))
        return (several or denies(self.stated.text)) and not denies(self.reference.text)

    def is_same(self) -> bool:
        wanted = self.reference.text
        same = plain(self.text) == plain(wanted) and not re.search(r"[)\]]\W*$", wanted)
        forms = {_formula(wanted), _formula(in_latex(wanted))}
        return same or not forms.isdisjoint((_formula(self.text), _formula(self.stated.text)))

    def is_same_outcome(self) -> bool:
        return is_same_outcome(plain(self.reference.text), plain(self.stated.text))

    def is_none(self) -> bool:
        is_prose = re.search(r"[A-Za-z]{3}", _FUNCTIONS.sub("", self.text)) or not re.search(r"[-+*/=|]", self.text)
        return bool(is_prose and not re.search(r"[\d\\^]|^\W*[A-Za-z]\W*$", self.text))

    def repeats_question(self) -> bool:
        return is_in_prompt(self.text, self.reference.prompt) and not self.is_same()

    def names_another(self) -> bool:
        ours, theirs = (re.match(r"\W*([A-Za-z])\s*=(?!=)", each) for each in (self.stated.text.strip(), self.reference.text))
        return bool(ours and theirs and ours[1].lower() != theirs[1].lower())

    def has_other_ends(self) -> bool:
        ours, theirs = (_ENDS.fullmatch(in_latex(each).strip("$ .")) for each in (self.text, self.reference.text))
        mixed = ours and theirs and ours.groups() != theirs.groups()
        return bool(mixed and ours and theirs and {*ours.groups(), *theirs.groups()} & {"[", "]"})

    def is_equal(self) -> bool:
        answer, wanted = (in_latex(each.strip(" $")) for each in (self.text, self.reference.text))
        if _INTEGRAL.search(self.reference.prompt) and _CONSTANT.search(wanted):
            answer, wanted = (_CONSTANT.sub("+ C", each) for each in (answer, wanted))
        return self.reference.equal is not None and self.reference.equal(answer, wanted)


@dataclass(frozen=True, slots=True)
class FormulaReference(Reference):
    r"""A formula such as ``(x+1)^2``. Equal when written the same, or by ``equal``, which knows algebra."""

    equal: Callable[[str, str], bool] | None = None
    """Whether two formulas in LaTeX are equal; None when no library for it is installed."""
    rules: ClassVar[tuple[Rule[_Formula], ...]] = (
        Rule("unclear", "denies a formula, or has several", "x^2", "x^2 or x^3", _Formula.is_denied),
        Rule("wrong", "repeats the question", r"2\sqrt{2}", r"\sqrt{8}", _Formula.repeats_question, r"Simplify $\sqrt{8}$."),
        Rule("wrong", "is of another name", "y = x^2", "z = x^2", _Formula.names_another),
        Rule("wrong", "has other ends", r"[0, \sqrt{2}]", r"(0, \sqrt{2}]", _Formula.has_other_ends),
        Rule("right", "is the same formula", r"\frac{1}{2}x", r"$\dfrac12x$", _Formula.is_same),
        Rule("right", "says that there is no value, too", r"\emptyset", "no solution", _Formula.is_same_outcome),
        Rule("wrong", "has no formula", "x^2", "a square", _Formula.is_none),
        Rule("unclear", f"is written otherwise; {NEEDS_MATH}", "x^2", "x*x*1", lambda it: it.reference.equal is None),
        Rule("right", "is equal", "x^2", "x*x*1", _Formula.is_equal),
        Rule("wrong", "is another formula", "x^2", "x*x*1", lambda _: True),
    )

    def _compare(self, stated: Stated) -> Compared:
        answer, said = self._formula_in(stated)
        answer = answer if "\u2248" in self.text else answer.partition("\u2248")[0].strip()
        answer = _without_condition(answer)
        sides = re.split(r"(?<![<>!])=(?!=)\s*", answer)
        unknown, known = ({*re.findall(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])", each)} for each in (sides[0], sides[-1]))
        is_name = re.fullmatch(r"\W*[A-Za-z]\w*'?\s*(?:\^\{?-1\}?)?(?:\([a-z]\)\s*)?", sides[0])
        if "=" not in self.text and len(sides) > 1 and (is_name or unknown <= known):
            answer = sides[-1]  # what a name, or the same in other words, is equal to
        answer = in_latex(re.sub(r"^\\text\{([^{}]*)\}$", r"\1", answer))
        unit = re.search(r"\s(m(?=\^)|[A-Za-z]{2,})(?:\^\{?[23]\}?)?$", answer)
        answer = answer[: unit.start()] if unit and unit_of(unit[1]) and unit[1] not in self.text else answer
        return verdict_by(self.rules, _Formula(self, answer, replace(stated, text=said)))

    def _formula_in(self, stated: Stated) -> tuple[str, str]:
        """Return the formula that a text states, and its sentence with what follows: among words, the one between signs."""
        if stated.is_marked:
            text = stated.text[:LONGEST_PART]
            return (_is_prose(_WRITTEN.sub("", text)) and _told_by(text)) or stated.text.strip(AROUND_FORMULA), stated.text
        if (shown := _DISPLAYED.search(stated.whole[-LONGEST_PART:])) and "\n" in shown[0].strip():
            return next(filter(None, shown.groups())).strip(AROUND_FORMULA), shown[0]
        for place, part in enumerate(parts_of(stated)):
            for sentence, rest in _sentences(part):
                if formula := _said_in(sentence, self.prompt):
                    return formula, stated.text if place else rest
            between_words = [each for each in PROSE.split(_without_condition(part)) if _SIGNS.search(each)]
            if between_words:
                return str(between_words[-1]).strip(AROUND_FORMULA + "!"), stated.text
        return stated.text, stated.text


def in_latex(formula: str) -> str:
    """Return a formula as LaTeX, also one in the notation of programs: ``sqrt(2)*x**2``."""
    for found in reversed([*_RAISED.finditer(formula := " ".join(formula.split()))]):
        digits = unicodedata.normalize("NFKC", found[0]).translate(QUOTES)
        formula = f"{formula[: found.start()]}{'_' if found[1] else '^'}{{{digits}}}{formula[found.end() :]}"
    formula = _MATRIX.sub(_as_matrix, formula.replace("**", "^"))
    formula = formula if "\\" in formula else written(formula, "formulas")
    return written(written(formula, "arguments"), "notations")


def _as_matrix(rows: re.Match[str]) -> str:
    """Return a matrix of programs in LaTeX: ``[[1, 2], [3, 4]]``, ``[1 2; 3 4]``."""
    listed = re.findall(r"\[([^\[\]]*)\]", rows[0]) if rows[0][:2] == "[[" else rows[0].strip("[]").split(";")
    entries = [[*filter(None, re.split(r",|\s+", row.strip()))] for row in listed]
    return r"\begin{pmatrix}" + r" \\ ".join(" & ".join(map(str.strip, row)) for row in entries) + r"\end{pmatrix}"


class _Run(NamedTuple):
    """Formulas between the signs of LaTeX or in bold, one after the other: ``$2$, $3$ and $5$``."""

    formula: str
    end: int
    is_told: bool  # by a word such as "is" or "get" before it
    is_conditional: bool  # behind the beginning of a condition


def _runs(text: str) -> list[_Run]:
    words = _WRITTEN.sub(lambda found: "$" * len(found[0]), text)
    condition, reason = (found.start() if found else len(text) for found in (_CONDITION.search(words), _REASON.search(words)))
    runs: list[_Run] = []
    for found in _WRITTEN.finditer(text):
        begin, formula = found.start(), "".join(filter(None, found.groups())).strip(AROUND_FORMULA)
        if runs and _NEXT.fullmatch(text, runs[-1].end, begin) and "=" not in runs[-1].formula + formula:
            runs[-1] = runs[-1]._replace(formula=f"{runs[-1].formula}, {formula}", end=found.end())
        elif (not runs or begin < reason) and (_SIGNS.search(formula) or not PROSE.search(formula)):
            is_told = _TOLD.search(text, max(0, begin - 40), begin) is not None
            runs.append(_Run(formula, found.end(), is_told, begin > condition))
    return runs


def _said_in(sentence: str, prompt: str) -> str:
    """Return the last formula of a sentence, with a condition the one that is told or ahead of it; empty for none."""
    runs = _runs(conclusion_of(sentence)) or _runs(sentence)
    told, ahead = ([each for each in runs if each.is_told], [each for each in runs if not each.is_conditional])
    if len(ahead) < len(runs):
        own = [each for each in ahead if not is_in_prompt(each.formula, prompt)]
        runs = [each for each in told if each in ahead] or told or own or runs
    return runs[-1].formula if runs else ""


def _told_by(answer: str) -> str:
    """Return the only formula that an answer in words tells, or has ahead of a condition; empty for none and for several."""
    if runs := _runs(answer):
        told, ahead = ([each for each in runs if each.is_told], [each for each in runs if not each.is_conditional])
        return next((each[0].formula for each in (told, ahead) if len(each) == 1), "")
    *words, rest = _IS.split(answer)
    rest = _without_condition(rest)
    is_one = words and _SIGNS.search(rest) and not (_is_prose(rest) or _NEXT.search("".join(words)))
    return rest.strip(AROUND_FORMULA) if is_one else ""


def told_last(text: str) -> str:
    """Return the formulas that a text ends with if its last sentence tells them and no others; empty for a denial."""
    sentence = next(_sentences(text[-LONGEST_PART:]))[0]
    runs = _runs(sentence)
    told = [each for each in runs if each.is_told]
    alone = told == runs[-1:] and not any(re.search(r"\w", sentence[each.end :]) for each in told)
    return told[0].formula if told and alone and not denies(sentence) else ""


def _sentences(text: str) -> Iterator[tuple[str, str]]:
    """Yield the sentences of a text from the last to the first, each with what follows it."""
    begins = [0, *(found.end() for found in _SENTENCE_ENDS.finditer(text)), len(text)]
    for begin, end in reversed([*pairwise(begins)]):
        yield text[begin:end], text[begin:]


def _is_prose(text: str) -> bool:
    return PROSE.search(_FUNCTIONS.sub("", text)) is not None


def _without_condition(text: str) -> str:
    """Return what comes before a condition if it is a formula; all of the text otherwise: ``It holds for x > 3``."""
    head = _CONDITION.split(text)[0].strip()
    return head if _SIGNS.search(head) or not PROSE.search(head) else text


_WRITTEN: Final = re.compile(r"\$\$?([^$\n]+)\$|\*\*([^*\n]+)\*\*|\\\(((?:(?!\\\().)+?)\\\)|\\\[((?:(?!\\\[).)+?)\\\]")
PROSE: Final = re.compile(
    r"(?i)(?:(?<![\\{A-Za-z])[A-Za-z'’]{0,40}[A-Za-z]{3,}(?![A-Za-z({])|\b(?:is|it's|it|so|be|as)\b|[:\u2192\u21d2]|=>)"
)
_CONDITION: Final = re.compile(r"(?<=.)(?:,\s?|\s\(?|\\q?quad\s?\(?)(?:for|where|when|if|\w\s?(?:\\neq?|≠))(?![A-Za-z]).*")
"""What says for which values a formula holds: ``x + 2, for x ≠ 2``."""
_REASON: Final = re.compile(r"(?<=\S)\s\(?(?:because|since)\b")
_TOLD: Final = re.compile(
    r"(?:\b(?:is|are|was|be|equals?|gets?|gives?|yields?|becomes?|obtain|(?:equal|simplif|reduc|evaluat|expand|factor)\w* to"
    r"|(?:is|are) (?:then|thus|therefore|simply|given by|the \w+))|[:=])[ \t]*\Z"
)
"""What comes before a formula that a sentence tells: ``The angle is …``, ``we get …``."""
_NEXT: Final = re.compile(r"\s*(?:,|,?\s*and\b)\s*")
_IS: Final = re.compile(r"\b(?:is|are|equals|holds? (?:for|when|if)(?: all)?)\s+")
_SIGNS: Final = re.compile(r"\d|\\[a-z]|[²³π√∞]")
"""What a formula has between words."""
_SENTENCE_ENDS: Final = re.compile(r"(?:(?<=[.!?])|(?<=[.!?]\$)|(?<=[.!?]\\[\])]))\s+(?=[A-Z])")
_DISPLAYED: Final = re.compile(
    r"(?s)(?:\\\[((?:(?!\\\[).)+?)\\\]|\$\$((?:(?!\$\$).)+)\$\$|(\\begin\{(?:(?!\\begin).)+?\\end\{\w+\*?\}))[\s.*]{0,9}\Z"
)
"""A formula in lines of its own at the end."""
_CONSTANT: Final = re.compile(r"\+\s*(?:[A-Z]|\\text\{C\}|c)\s*$")
"""That of an integral."""
_INTEGRAL: Final = re.compile(r"(?i)\bintegra|antideriv|\\int(?![a-z])|∫")
_MATRIX: Final = re.compile(r"\[\[[^\[\]]*\](?:, ?\[[^\[\]]*\])*\]|\[[-\d./ ]+(?:;[-\d./ ]+)+\]")
_RAISED: Final = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u207b]+|([\u2080-\u2089]+)")
AROUND_FORMULA: Final = " \t\n*_`.:,;\u2705\u2713\u2714"
_ENDS: Final = re.compile(r"(?:\\left)?\s*([(\[])[^()\[\]]*?(?:\\right)?\s*([)\]])")
_EXPRESSION: Final = re.compile(r"(?=.*[A-Za-z])(?=.*(?:[-+*/=|^]|\d[A-Za-z]|\)\())[\w\s()+*/=.,|^-]+")
_OPERATION: Final = re.compile(r"[\w\s()+*/=.-]*[\w)]\s*(?:\*\*|[+*=]|(?:[<>]=?|[≤≥])\s*-?)\s*[\w(][\w\s()+*/=.-]*")
_BETWEEN: Final = re.compile(r"-?[\d.]+\s*[<≤]=?\s*[A-Za-z]\s*[<≤]=?\s*-?[\d.]+")
"""An inequality of two sides: ``-3 < a <= 10``."""
_MATHS: Final = re.compile(r"(?s)\$.*\$|\\\(|\\[a-z]{3,}|\b[a-z]\^\d|\b[fgh]\(x\)|\b(?:derivative|integral)\b")
"""What a prompt of mathematics has."""
_FUNCTIONS: Final = re.compile(r"\b(?:sqrt|sin|cos|tan|log|exp|pi|abs)\b")


def _formula(text: str) -> str:
    text = re.sub(r"\\[dtc]frac", r"\\frac", LATEX_SPACE.sub("", written(text.translate(QUOTES), "arguments")))
    text = re.sub(r"_\{?(\d+)\}?", r"\1", re.sub(r"\^(\d?[+-]$|\w)", r"^{\1}", text))
    text = re.sub(r"(?<=[A-Za-z])\s*(?:\\cdot|\\times|[·×*])\s*(?=[A-Za-z](?![A-Za-z]))", "", text)
    return re.sub(r"\s+|\\text\{[^{}]*\}$|\.$", "", re.sub(r"^[A-Za-z]'?(?:\([a-z]\))?=", "", text.replace(" ", "")))


def is_in_prompt(formula: str, prompt: str) -> bool:
    """Return whether a formula of more than a sign stands in a question: to repeat it is no answer."""
    bare = _formula(in_latex(formula).strip(AROUND_FORMULA + "$"))
    return re.search(r"[\d\\^+*/=<>|(]", bare) is not None and len(bare) > 2 and bare in _formula(in_latex(prompt))


def is_formula(text: str, prompt: str = "") -> bool:
    r"""Return whether a reference is a formula: LaTeX, or an expression of variables, operators and digits.

    Beside a prompt in LaTeX a difference is one, too, and a product without a sign: ``p - q``, ``9x``.
    """
    bare = bare_reference(text).strip(" $.")
    is_prose = re.search(r"[A-Za-z]{3}", _FUNCTIONS.sub("", bare)) is not None
    if _MATHS.search(prompt) and _EXPRESSION.fullmatch(bare):
        return not is_prose
    worked = not is_prose and (re.search("[√π]", bare) or _OPERATION.fullmatch(bare) or _BETWEEN.fullmatch(bare))
    latex = re.search(r"\\[a-zA-Z]{2,}|\^|_\{|^\|[^|]*[-+][^|]*\|$", bare)
    return not re.match(r"\^|[A-Za-z]:\\", bare) and bool(worked or latex)

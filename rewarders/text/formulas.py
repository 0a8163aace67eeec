"""Compare an output with a formula."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from tfgrpo.rewarders.text.answers import Stated, bare_reference, conclusion_of
from tfgrpo.rewarders.text.base import LONGEST_PART, Reference, parts_of
from tfgrpo.rewarders.text.lexer import CONSTANT, unit_of, written
from tfgrpo.rewarders.text.rules import AnswerRule as Rule
from tfgrpo.rewarders.text.rules import Compared, ReadAnswer, denies, is_same_outcome, verdict_by
from tfgrpo.rewarders.text.spelling import LATEX_SPACE, QUOTES, plain

NEEDS_MATH: Final = 'comparing formulas needs math-verify: pip install "tfgrpo[math]"'


@dataclass(frozen=True)
class _Formula(ReadAnswer["FormulaReference"]):
    stated: Stated

    def is_denied(self) -> bool:
        return denies(self.stated.text) and not denies(self.reference.text)

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
        Rule("right", "is the same formula", r"\frac{1}{2}x", r"$\dfrac12x$", _Formula.is_same),
        Rule("right", "says that there is no value, too", r"\emptyset", "no solution", _Formula.is_same_outcome),
        Rule("wrong", "has no formula", "x^2", "a square", _Formula.is_none),
        Rule("unclear", f"is written otherwise; {NEEDS_MATH}", "x^2", "x*x*1", lambda it: it.reference.equal is None),
        Rule("right", "is equal", "x^2", "x*x*1", _Formula.is_equal),
        Rule("wrong", "is another formula", "x^2", "x*x*1", lambda _: True),
    )

    def _compare(self, stated: Stated) -> Compared:
        answer, sentence = self._formula_in(stated)
        answer = answer if "\u2248" in self.text else answer.partition("\u2248")[0].strip()  # exact before it is rounded
        if "=" not in self.text:  # what a name, or the same in other words, is equal to
            answer = re.split(r"(?<![<>!])=(?!=)\s*", answer)[-1]
        answer = in_latex(re.sub(r"^\\text\{([^{}]*)\}$", r"\1", answer))
        unit = re.search(r"\s(m(?=\^)|[A-Za-z]{2,})(?:\^\{?[23]\}?)?$", answer)
        answer = answer[: unit.start()] if unit and unit_of(unit[1]) else answer
        return verdict_by(self.rules, _Formula(self, answer, replace(stated, text=sentence)))

    def _formula_in(self, stated: Stated) -> tuple[str, str]:
        """Return the formula that a text states, and its sentence with what follows: among words, the one between signs."""
        if stated.is_marked:
            text = _without_condition(stated.text[:LONGEST_PART])
            only = (
                runs[0][0]
                if len(runs := _runs(text)) == 1 and PROSE.search(_FUNCTIONS.sub("", _WRITTEN.sub("", text)))
                else text
            )
            return only.strip(AROUND_FORMULA), stated.text
        if displayed := _DISPLAYED.search(stated.whole[-LONGEST_PART:]):
            return next(filter(None, displayed.groups())).strip(AROUND_FORMULA), displayed[0]
        for part in parts_of(stated):
            head = _without_condition(part)
            if runs := _runs(conclusion_of(head)) or _runs(head) or _runs(part):
                return runs[-1][0], part
            between_words = [each for each in PROSE.split(head) if _SIGNS.search(each)]
            if between_words:
                return str(between_words[-1]).strip(AROUND_FORMULA + "!"), stated.text
        return stated.text, stated.text


def in_latex(formula: str) -> str:
    """Return a formula as LaTeX, also one in the notation of programs: ``sqrt(2)*x**2``."""
    formula = _RAISED.sub(lambda digits: f"^{{{unicodedata.normalize('NFKC', digits[0]).translate(QUOTES)}}}", formula)
    formula = _LOWERED.sub(lambda digits: f"_{{{unicodedata.normalize('NFKC', digits[0])}}}", formula)
    formula = _MATRIX.sub(_as_matrix, " ".join(formula.split()).replace("**", "^"))
    formula = formula if "\\" in formula else written(formula, "formulas")
    return written(written(formula, "arguments"), "notations")


def _as_matrix(rows: re.Match[str]) -> str:
    lines = [" & ".join(map(str.strip, row.split(","))) for row in re.findall(r"\[([^\[\]]*)\]", rows[0])]
    return r"\begin{pmatrix}" + r" \\ ".join(lines) + r"\end{pmatrix}"


def _runs(text: str) -> list[tuple[str, bool]]:
    """Return the formulas between signs, each with whether a word such as "is" tells it: of ``$2$ and $3$`` one, ``2, 3``."""
    text = _NEXT.sub(", ", text)
    runs = []
    for match in _WRITTEN.finditer(text):
        formula = "".join(filter(None, match.groups())).strip(AROUND_FORMULA)
        if _SIGNS.search(formula) or not PROSE.search(formula):
            runs.append((formula, _TOLD.search(text, max(0, match.start() - 40), match.start()) is not None))
    return runs


def told_last(text: str) -> str:
    """Return the formula that a text tells; empty for none, and for several."""
    formulas = [formula for formula, is_told in _runs(text[-LONGEST_PART:]) if is_told]
    return formulas[0] if len(formulas) == 1 else ""


def _without_condition(text: str) -> str:
    """Return what comes before a condition if it is a formula; all of the text otherwise: ``It holds for x > 3``."""
    head = _CONDITION.split(text)[0].strip()
    return head if _SIGNS.search(head) or not PROSE.search(head) else text


_WRITTEN: Final = re.compile(r"\$\$?([^$\n]+)\$|\*\*([^*\n]+)\*\*|\\\(((?:(?!\\\().)+?)\\\)|\\\[((?:(?!\\\[).)+?)\\\]")
PROSE: Final = re.compile(
    r"(?i)(?:(?<![\\{A-Za-z])[A-Za-z'’]{0,40}[A-Za-z]{3,}(?![A-Za-z({])|\b(?:is|it's|it|so|be|as)\b|[:\u2192\u21d2]|=>)"
)
_CONDITION: Final = re.compile(
    r"(?<=.)(?:(?:,\s?|\s\(?|\\q?quad\s?\(?)(?:for|where|when|if|\w\s?(?:\\neq?|≠))|,?\s\(?(?:because|since))(?![A-Za-z]).*"
)
_TOLD: Final = re.compile(
    r"(?:\b(?:is|are|was|be|equals?|gets?|gives?|yields?|becomes?|obtain|(?:equal|simplif|reduc|evaluat|expand|factor)\w* to"
    r"|(?:is|are) (?:then|thus|therefore|simply|given by|the \w+))|[:=])[ \t]*\Z"
)
_NEXT: Final = re.compile(r"(?:\$|\\\))\s*(?:,|,?\s*and\b)\s*(?:\$|\\\()")
_SIGNS: Final = re.compile(r"\d|\\[a-z]|[²³π√∞]")
_DISPLAYED: Final = re.compile(
    r"(?s)(?:\\\[((?:(?!\\\[).)+?)\\\]|\$\$((?:(?!\$\$).)+)\$\$|(\\begin\{(?:(?!\\begin).)+?\\end\{\w+\*?\}))[\s.*]{0,9}\Z"
)
# Any letter may name the constant of an integral.
_CONSTANT: Final = re.compile(r"\+\s*(?:[A-Z]|\\text\{C\}|c)\s*$")
_INTEGRAL: Final = re.compile(r"(?i)\bintegra|antideriv|\\int(?![a-z])|∫")
_MATRIX: Final = re.compile(r"\[\[[^\[\]]*\](?:, ?\[[^\[\]]*\])*\]")
_RAISED: Final = re.compile("[\u2070\u00b9\u00b2\u00b3\u2074-\u207b]+")
_LOWERED: Final = re.compile("[\u2080-\u2089]+")
AROUND_FORMULA: Final = " \t\n*_`.:,;\u2705\u2713\u2714"
_EXPRESSION: Final = re.compile(r"(?=.*[A-Za-z])(?=.*(?:[-+*/=|^]|\d[A-Za-z]|\)\())[\w\s()+*/=.,|^-]+")
_OPERATION: Final = re.compile(r"[\w\s()+*/=.-]*[\w)]\s*(?:\*\*|[+*=]|(?:[<>]=?|[≤≥])\s*-?)\s*[\w(][\w\s()+*/=.-]*")
_BETWEEN: Final = re.compile(r"-?[\d.]+\s*[<≤]=?\s*[A-Za-z]\s*[<≤]=?\s*-?[\d.]+")
_MATHS: Final = re.compile(r"(?s)\$.*\$|\\\(|\\[a-z]{3,}|\b[a-z]\^\d|\b[fgh]\(x\)|\b(?:derivative|integral)\b")
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
    r"""Return whether a reference is a formula: LaTeX, or an expression of variables, operators and digits."""
    bare = bare_reference(text).strip(" $.")
    is_prose = re.search(r"[A-Za-z]{3}", _FUNCTIONS.sub("", bare)) is not None
    # Beside LaTeX so is a difference, and a product without a sign: p - q, 9x.
    if _MATHS.search(prompt) and _EXPRESSION.fullmatch(bare):
        return not is_prose
    worked = not is_prose and (re.search(rf"√|{CONSTANT}", bare) or _OPERATION.fullmatch(bare) or _BETWEEN.fullmatch(bare))
    latex = re.search(r"\\[a-zA-Z]{2,}|\^|_\{|^\|[^|]*[-+][^|]*\|$", bare)
    return not re.match(r"\^|[A-Za-z]:\\", bare) and bool(worked or latex)

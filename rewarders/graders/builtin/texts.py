"""Scorers of text: the best of the accepted references counts, and an item without a usable one has no score."""

from __future__ import annotations

import json
import math
import re
import string
import unicodedata
from abc import abstractmethod
from collections import Counter
from collections.abc import Sequence
from itertools import chain, islice
from operator import mul
from typing import Annotated, Any, Final, Literal, TypeAlias, get_args

from pydantic import Field, StrictStr
from pydantic.dataclasses import dataclass

from tfgrpo.rewarders.judge.model import JudgeLoad, JudgeOptions, JudgeQuestion
from tfgrpo.rewarders.options import Flag, Name, Options, accepts, require
from tfgrpo.rewarders.scorer import (
    NO_REFERENCE,
    GraderInput,
    ItemScorer,
    RewardContext,
    Verdict,
    answer_text,
    column,
    references,
)
from tfgrpo.rewarders.text.answers import UNSPACED, bare_reference, stated_answer, without_reasoning
from tfgrpo.rewarders.text.base import whole_words
from tfgrpo.rewarders.text.rules import shown
from tfgrpo.stores.errors import ModelCallError, PipelineError, RewardError
from tfgrpo.stores.outcomes import RewardScore
from tfgrpo.stores.text import replace_surrogates

SimilarityMetric: TypeAlias = Literal["chrf", "rouge_l", "edit", "embeddings"]
_ARTICLES: Final = re.compile(r"\b(?:a|an|the)\b")
_PUNCTUATION: Final = str.maketrans("", "", string.punctuation)
_AROUND: Final = 30
# Characters of a text that are embedded: models refuse longer ones
_LONGEST_EMBEDDED: Final = 8_000
# Matches of a pattern in one output: each is found in linear time, all of them together are not
_MOST_MATCHES: Final = 1_000


@dataclass(frozen=True, slots=True)
class TextScorer(Options, ItemScorer):
    """Compares what an output states with each accepted reference."""

    def score_one(self, item: GraderInput) -> Verdict:
        usable = self.wanted(item)
        stated = stated_answer(item.completion)
        if stated is None:
            return RewardScore("", 0.0, "answered nothing")
        compared = (self._compare(part, each) for each in usable for part in stated.candidates)
        return max(compared, key=lambda each: each.score)

    def wanted(self, item: GraderInput) -> list[str]:
        accepted = references(item)
        texts = [bare_reference(answer_text(each)) for each in accepted if not isinstance(each, dict | list)]
        usable = [text for text in texts if text and self._reads(text)]
        if not usable:
            is_given = any(texts) or len(texts) < len(accepted)
            raise RewardError(f"the reference {accepted[0]!r:.60} has no text to compare" if is_given else NO_REFERENCE)
        return usable

    def _reads(self, _: str) -> bool:
        return True

    @abstractmethod
    def _compare(self, answer: str, reference: str) -> RewardScore:
        """Return the score of an answer against one reference."""


def _sides(answer: str, sign: str, reference: str) -> str:
    pairs = enumerate(zip(answer, reference, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), min(len(answer), len(reference)))
    differ = f", different from character {same + 1}: {shown(answer[same:])}" if 0 < same < len(answer) else ""
    return f"answered {shown(answer)} {sign} reference {shown(reference)}{differ}"


@dataclass(frozen=True, slots=True)
class Exact(TextScorer):
    """1.0 when the stated answer is the reference in every character but outer white space, else 0.0."""

    def _compare(self, answer: str, reference: str) -> RewardScore:
        one, other = answer.strip(), reference.strip()
        return RewardScore("", float(one == other), _sides(one, "=" if one == other else "≠", other))


@dataclass(frozen=True, slots=True)
class Includes(TextScorer):
    """1.0 when the reference occurs in the answer, white space folded, else 0.0. Unlike ``gt`` it notices no denial."""

    ignore_case: Flag = True
    whole_words: Flag = True
    """The reference may not be a part of a longer word or number; for scripts with spaces between words."""

    def _compare(self, answer: str, reference: str) -> RewardScore:
        text, wanted = (" ".join(unicodedata.normalize("NFC", each).split()) for each in (answer, reference))
        bounded = self.whole_words and not re.search(f"[{UNSPACED}]", wanted)
        pattern = whole_words(wanted) if bounded else re.escape(wanted)
        match = re.search(pattern, text, re.IGNORECASE if self.ignore_case else 0)
        around = text[max(0, match.start() - _AROUND) :] if match else text
        relation = "is in" if match else "is not in"
        return RewardScore("", float(match is not None), f"the reference {shown(wanted)} {relation} {shown(around)}")


@dataclass(frozen=True, slots=True)
class F1(TextScorer):
    """SQuAD's F1: harmonic mean of precision and recall of the words, without letter case, punctuation and articles."""

    def _reads(self, text: str) -> bool:
        return bool(_squad_words(text))

    def _compare(self, answer: str, reference: str) -> RewardScore:
        stated, wanted = _squad_words(answer), _squad_words(reference)
        common = Counter(stated) & Counter(wanted)
        missing, more = (" ".join((Counter(each) - common).elements()) for each in (wanted, stated))
        evidence = f"{common.total()} of {len(wanted)} words of the reference {shown(reference)}"
        evidence += f", missing {shown(missing)}" * bool(missing) + f", others {shown(more)}" * bool(more)
        return RewardScore("", self._score(stated, wanted, common.total()), evidence)

    def _score(self, stated: list[str], wanted: list[str], common: int) -> float:
        return 2 * common / (len(stated) + len(wanted))


@dataclass(frozen=True, slots=True)
class ExactMatch(F1):
    """SQuAD's exact match: 1.0 for the same words in order, without letter case, punctuation and articles; else 0.0."""

    def _score(self, stated: list[str], wanted: list[str], _: int) -> float:
        return float(stated == wanted)


def _squad_words(text: str) -> list[str]:
    # As SQuAD's evaluation script, version 1.1, compares them.
    return _ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split()


@dataclass(frozen=True, slots=True)
class Regex(Options, ItemScorer):
    """1.0 when a regular expression matches the output behind its reasoning, else 0.0; in linear time, by RE2.

    With a group in the pattern its text has to be a reference: of the last match, the first group that took part.
    """

    pattern: Annotated[StrictStr | None, Field(min_length=1), accepts("a regular expression")] = None
    """In RE2's syntax. None: each record has its own, in ``field``."""
    field: Name = "pattern"
    """Field of the metadata, else of the record, with the pattern; ``answer``: each reference is a pattern."""

    def __post_init__(self) -> None:
        require("re2", "google-re2", "re2")
        try:
            self._compiled(self.pattern or "")
        except RewardError as error:
            accepted = "a regular expression without lookaround and backreferences"
            raise PipelineError.one("pattern", str(error), accepted) from None

    def score_one(self, item: GraderInput) -> Verdict:
        return max((self._score(item, *each) for each in self.wanted(item)), key=lambda each: each.score)

    def wanted(self, item: GraderInput) -> list[tuple[Any, list[str]]]:
        # Each pattern with the accepted texts of its group; none without a group.
        by_answer = self.pattern is None and self.field == "answer"
        own = references(item) if by_answer else [self.pattern or column(item, self.field)]
        compiled = [self._compiled(each) for each in own if isinstance(each, str) and each]
        if not compiled:
            raise RewardError(f"the item has no regular expression in its field {self.field!r}")
        accepted = [text for each in references(item) if (text := bare_reference(answer_text(each)))]
        if not accepted and any(each.groups for each in compiled):
            raise RewardError(NO_REFERENCE)
        return [(each, accepted if each.groups and not by_answer else []) for each in compiled]

    def _compiled(self, pattern: str) -> Any:
        import re2  # noqa: PLC0415 - an extra

        options = re2.Options()
        options.log_errors = False
        try:
            return re2.compile(replace_surrogates(pattern), options)
        except re2.error as error:
            reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error
            raise RewardError(f"{shown(pattern)} is no regular expression of RE2: {reason}") from None

    def _score(self, item: GraderInput, pattern: Any, accepted: list[str]) -> RewardScore:
        text = replace_surrogates(without_reasoning(item.completion) or "").strip()
        # One match is enough where no group is compared.
        matches = [*islice(pattern.finditer(text), _MOST_MATCHES + 1 if accepted else 1)]
        if not matches:
            return RewardScore("", 0.0, f"no match of {shown(pattern.pattern)} in {shown(text)}")
        if not accepted:
            return RewardScore("", 1.0, f"{shown(pattern.pattern)} matches {shown(matches[0].group())}")
        if len(matches) > _MOST_MATCHES:
            raise RewardError(f"the pattern matches more than {_MOST_MATCHES:,} times")
        captured = next((each for each in matches[-1].groups() if each is not None), "").strip()
        sign, reference = ("=", captured) if captured in accepted else ("≠", accepted[0])
        return RewardScore("", float(sign == "="), f"matched {shown(captured)} {sign} reference {shown(reference)}")


@dataclass(frozen=True, slots=True)
class Similarity(TextScorer):
    """How alike the answer and the reference are, from 0 to 1. Raises ``PipelineError`` without the library, or the model.

    ``chrf``: sacrebleu's chrF, the F-score of n-grams of characters, for every language. ``rouge_l``: rouge_score's F of the
    longest common subsequence of words, of the letters a to z and digits only. ``edit``: 1 less Levenshtein's distance as a
    share of the longer text. ``embeddings``: the cosine of their vectors, not below 0, by a model of the run's endpoint.
    """

    metric: Annotated[SimilarityMetric, accepts(", ".join(get_args(SimilarityMetric)))] = "chrf"
    model: Annotated[StrictStr | None, Field(min_length=1), accepts("the name of a model")] = None
    """Model that embeds, as the endpoint calls it, for ``embeddings`` only."""

    def __post_init__(self) -> None:
        if self.asks_model and not self.model:
            raise PipelineError.one("model", "nothing", "a model that embeds, such as text-embedding-3-small")
        if not self.asks_model:
            if self.model:
                raise PipelineError.one("model", repr(self.model), f"none, because metric is {self.metric!r}")
            module = "sacrebleu" if self.metric == "chrf" else "rapidfuzz"
            require(module, module, "similarity")

    @property
    def asks_model(self) -> bool:
        """Whether a model embeds the texts."""
        return self.metric == "embeddings"

    def judge_loads(self, group_size: int) -> Sequence[JudgeLoad]:
        """Return the load of one group: one call for all of its texts."""
        options = JudgeOptions(model=self.model, retries=0, max_tokens=1)
        return [JudgeLoad(options, "", shown=group_size, calls_low=1, questions=1)] if self.asks_model else []

    async def score(self, context: RewardContext) -> list[Verdict]:
        """Return the cosines of a group, whose texts are embedded in one call. Raise ``RewardError`` if that is lost."""
        items = context.inputs()
        wanted, stated = self.wanted(items[0]), [stated_answer(item.completion) for item in items]
        answers = [[part for part in each.candidates if part.strip()] if each else [] for each in stated]
        if context.judge is None:
            raise RewardError("there is no model to ask here")
        sent = {text: text[:_LONGEST_EMBEDDED] for text in chain(wanted, *answers)}
        question = JudgeQuestion(tuple(("user", text) for text in sent.values()), embeds=True, model=self.model)
        try:
            reply = await context.judge.ask(question, context.time_limit_s)
        except ModelCallError as error:
            raise RewardError(f"{type(error).__name__}: {error}") from error
        lengths = [(vector, math.hypot(*vector) or 1.0) for vector in json.loads(reply.text)]
        units = ([each / length for each in vector] for vector, length in lengths)
        vectors = dict(zip(sent, units, strict=True))
        verdicts: list[Verdict] = []
        for parts in answers:
            pairs = [(part, each) for part in parts for each in wanted]
            compared = [self._shown(math.fsum(map(mul, vectors[one], vectors[other])), one, other) for one, other in pairs]
            verdicts.append(max(compared, key=lambda each: each.score, default=RewardScore("", 0.0, "answered nothing")))
        return verdicts

    def _reads(self, text: str) -> bool:
        return self.metric != "rouge_l" or bool(_rouge_words(text))

    def _compare(self, answer: str, reference: str) -> RewardScore:
        answer, reference = answer.strip(), reference.strip()
        if self.metric == "chrf":
            from sacrebleu.metrics.chrf import CHRF  # noqa: PLC0415 - an extra: 0.1 s

            return self._shown(float(CHRF().sentence_score(answer, [reference]).score) / 100, answer, reference)
        from rapidfuzz.distance import LCSseq, Levenshtein  # noqa: PLC0415 - an extra

        if self.metric == "edit":
            return self._shown(float(Levenshtein.normalized_similarity(answer, reference)), answer, reference)
        stated, wanted = _rouge_words(answer), _rouge_words(reference)
        return self._shown(2 * float(LCSseq.similarity(stated, wanted)) / (len(stated) + len(wanted)), answer, reference)

    def _shown(self, similarity: float, answer: str, reference: str) -> RewardScore:
        score = min(1.0, max(0.0, similarity))
        return RewardScore("", score, f"{self.metric} {score:.3f}: {_sides(answer, '~', reference)}")


def _rouge_words(text: str) -> list[str]:
    return re.findall("[a-z0-9]+", text.lower())

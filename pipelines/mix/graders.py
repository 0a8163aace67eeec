"""Score a group by the graders of an item's dataset, as the data server does."""

from __future__ import annotations

from collections.abc import Sequence

from tfgrpo.pipelines.mix.config import MixConfig
from tfgrpo.pipelines.mix.sampling import record_of
from tfgrpo.pipelines.settings.tree import DATASET_GRADERS
from tfgrpo.rewarders.base import Abstained, RewardContext, Verdict
from tfgrpo.rewarders.graders.base import GraderInput
from tfgrpo.rewarders.graders.combine import ItemGrade, grade_items
from tfgrpo.rewarders.graders.running import TIMEOUT_S, GraderRunner
from tfgrpo.stores.errors import DatasetError, RewardError
from tfgrpo.stores.outcomes import RewardScore


class DatasetGraders:
    """The rewarder of a run on a mix."""

    rewarder_id = DATASET_GRADERS
    limits_itself = True
    """A timeout of a grader costs only the attempt that it was grading."""

    def __init__(self, config: MixConfig) -> None:
        self._config = config
        self._runner = GraderRunner()

    async def score(self, context: RewardContext) -> Sequence[Verdict]:
        """Return one verdict for each attempt. Raise ``RewardError`` for an item of no dataset of the mix."""
        try:
            dataset_id, record = record_of(self._config, context.item_id)
        except (DatasetError, OSError) as error:
            raise RewardError(f"{self.rewarder_id}: {error}") from error
        inputs = [
            GraderInput.of(
                context.item_id,
                record,
                attempt.output,
                completion_tokens=attempt.tokens,
                completion_index=attempt.index,
            )
            for attempt in context.outputs
        ]
        limit_s = context.time_limit_s or TIMEOUT_S
        grades = await grade_items(self._runner, self._config.datasets[dataset_id].graders, inputs, limit_s)
        return tuple(self._verdict(grade) for grade in grades)

    def close(self) -> None:
        """Close the graders' threads and connections."""
        self._runner.close()

    def _verdict(self, grade: ItemGrade) -> Verdict:
        parts = ", ".join(f"{name} {reward:g}" for name, reward in grade.parts.items())
        if grade.reward is None:
            return Abstained(self.rewarder_id, grade.reasons, grade.broke)
        return RewardScore(self.rewarder_id, grade.reward, parts)

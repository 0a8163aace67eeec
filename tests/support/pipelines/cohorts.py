"""Draw the cohort of one epoch."""

from collections.abc import Sequence

from tfgrpo.pipelines.datasets.items import Item
from tfgrpo.pipelines.plan.data import Cohort, draw_cohorts
from tfgrpo.pipelines.settings.tree import LearningSettings


def draw_cohort(items: Sequence[Item], *, epoch: int, settings: LearningSettings) -> Cohort:
    return next(draw_cohorts(items, epochs=range(epoch, epoch + 1), settings=settings))

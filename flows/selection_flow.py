"""The Prefect flow ``tfgrpo-select``, which returns the best of K candidates for one request."""

from __future__ import annotations

import os
from typing import Any

from prefect import flow
from prefect.client.schemas.objects import State

from tfgrpo.flows.orchestration.deployed import Optional, asked_of, in_parameters, prefect_state, with_parameters
from tfgrpo.flows.orchestration.request import RunSummary, Scalar, SelectRequest
from tfgrpo.flows.selection import select
from tfgrpo.stores.errors import ConfigError, TfgrpoError


@flow(name="tfgrpo-select", persist_result=False, log_prints=False, validate_parameters=True)
@with_parameters(SelectRequest, "task_id", "model", "base_url", "k", "format", "max_usd", "max_calls", "dry_run")
def tfgrpo_select(  # noqa: D417 - the options are described where they are declared
    *,
    prompt: Optional[str] = None,
    item: Optional[str] = None,
    answer: Optional[str] = None,
    reference: Optional[str] = None,
    rewarders: Optional[list[str]] = None,
    pipeline: Optional[str] = None,
    settings: dict[str, Scalar] = {},  # noqa: B006 - never changed; Prefect's form shows it
    **options: Any,
) -> State[dict[str, object]]:
    """Choose the best of K answers to one request.

    Ends ``Completed`` with the selection as data (named ``StoppedEarly`` when the budget left nothing to choose from),
    or ``Failed`` with one clear message.

    Args:
        prompt: What is asked. Either this or an item; a dry run without either asks the first item of its world.
        item: An item of a dataset instead, as `FILE#id`.
        answer: Reference to compare with, as text.
        reference: The same, or `@` and the file that holds it.
        rewarders: What grades, as NAME or NAME=WEIGHT. Empty: those of the pipeline file, or what the stage rewards.
        pipeline: Name of a shipped pipeline, or path of a pipeline file, from `TFGRPO_HOME` on. Empty: the defaults.
        settings: Any other setting by its dotted key, such as `{"selection.temperatures": "[0.2, 0.8]"}`; those of the
            deployment hold as well. `tfgrpo config` lists all.
    """
    own = {"prompt": prompt, "item": item, "answer": answer, "reference": reference, "rewarders": rewarders}
    fields = {**own, "pipeline": pipeline, "settings": settings, **options}
    try:
        return prefect_state(select(asked_of(SelectRequest, fields), os.environ))
    except ConfigError as error:
        return prefect_state(RunSummary.refused(None, in_parameters(error, tfgrpo_select, SelectRequest)))
    except TfgrpoError as error:
        return prefect_state(RunSummary("failed", None, f"{type(error).__name__}: {error}", {}))

"""The Prefect flow ``tfgrpo-select``, which returns the best of K candidates for one request."""

from __future__ import annotations

import os
from typing import Literal

from prefect import flow
from prefect.client.schemas.objects import State
from pydantic.json_schema import SkipJsonSchema

from tfgrpo.flows.orchestration.deployed import Optional, asked_of, in_parameters, state_of
from tfgrpo.flows.orchestration.request import Scalar
from tfgrpo.flows.run.exit_status import RunSummary
from tfgrpo.flows.selection.request import SelectRequest
from tfgrpo.flows.selection.select import select
from tfgrpo.stores.errors import ConfigError, TfgrpoError


@flow(name="tfgrpo-select", persist_result=False, log_prints=False, validate_parameters=True)
def tfgrpo_select(  # noqa: PLR0913 - Prefect's form has a field for each
    *,
    prompt: Optional[str] = None,
    item: Optional[str] = None,
    answer: Optional[str] = None,
    reference: Optional[str] = None,
    rewarders: Optional[list[str]] = None,
    pipeline: Optional[str] = None,
    task_id: Optional[str] = None,
    model: Optional[str] = None,
    base_url: Optional[str] = None,
    k: Optional[int] = None,
    format: Optional[Literal["text", "json", "powl"]] = None,  # noqa: A002 - the name of the option
    max_usd: Optional[float] = None,
    max_calls: Optional[int] = None,
    dry_run: Optional[bool] = None,
    settings: dict[str, Scalar] = {},  # noqa: B006 - never changed; Prefect's form shows it
    request: SkipJsonSchema[SelectRequest | None] = None,
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
        task_id: Task whose lessons in force are used, and whose history is kept. Empty: nothing is read or written.
        model: Model that answers, as the endpoint calls it. Empty: the pipeline's.
        base_url: OpenAI-compatible root, usually ending in `/v1`. Empty: `OPENAI_BASE_URL` of the worker, or the pipeline's.
        k: Candidates. Empty: the pipeline's, or 4.
        format: What an answer is: text, json or powl. Empty: the pipeline's, or text.
        max_usd: Most US dollars; needs a price for every model in use. Empty: the deployment's, or the pipeline's.
        max_calls: Most model calls. Empty: the deployment's, or the pipeline's.
        dry_run: Ask the SIMULATED model in process.
        settings: Any other setting by its dotted key, such as `{"selection.temperatures": "[0.2, 0.8]"}`; those of the
            deployment hold beside it. `tfgrpo config` lists all.
        request: All of it as one value: from a deployment made before there were parameters.
    """
    fields = {name: value for name, value in locals().items() if name != "request"}
    try:
        return state_of(select(asked_of(SelectRequest, request, fields), os.environ))
    except ConfigError as error:
        return state_of(RunSummary.refused(None, in_parameters(error, tfgrpo_select, SelectRequest)))
    except TfgrpoError as error:
        return state_of(RunSummary("failed", None, f"{type(error).__name__}: {error}", {}))

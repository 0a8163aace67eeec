"""What does Prefect run for a selection? The flow ``tfgrpo-select``: one request, the best of its candidates as the result."""

from __future__ import annotations

import os

from prefect import flow
from prefect.client.schemas.objects import State

from flows.selection import select
from flows.selection_request import SelectRequest
from flows.states import failure, state_of
from flows.stops import RunSummary
from stores.errors import ConfigError, TfgrpoError


@flow(name="tfgrpo-select", persist_result=False, log_prints=False, validate_parameters=True)
def tfgrpo_select(request: SelectRequest) -> State[dict[str, object]]:
    """Choose the best of K answers to one request.

    Ends ``Completed`` with the selection as data (named ``StoppedEarly`` when the budget left nothing to choose from),
    or ``Failed`` with one clear message.
    """
    try:
        return state_of(select(request, os.environ))
    except ConfigError as error:
        return failure(str(error), RunSummary.refused(None, error).as_json())
    except TfgrpoError as error:
        message = f"{type(error).__name__}: {error}"
        return failure(message, {"status": "failed", "message": message})

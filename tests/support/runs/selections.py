"""Run or plan a selection in one call; build an earlier round."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tests.support.runs.chat_server import ChatServer
from tfgrpo.flows.orchestration.request import SelectRequest
from tfgrpo.flows.selection import Selected, SelectionPlan, plan_selection, select
from tfgrpo.tasks.selection.history import SelectionRound

ITEMS = Path(__file__).parents[3] / "pipelines" / "data" / "arithmetic.jsonl"
GOOD = "SEQUENCE(ACTIVITY(a), ACTIVITY(b))"


def ask(server: ChatServer | None = None, *, settings: dict[str, Any] | None = None, **asked: Any) -> Selected:
    """Run one selection against a server; without retries unless ``settings`` asks for them."""
    model: dict[str, Any] = {} if server is None else {"base_url": server.url, "model": "m"}
    quick = {"model.max_retries": 0, "model.wait_s": 0}
    return select(SelectRequest(**model, **asked, settings={**quick, **(settings or {})}), {})


def plan(env: dict[str, str] | None = None, **asked: Any) -> SelectionPlan:
    return plan_selection(SelectRequest(**asked), env or {}, clock=lambda: datetime(2026, 1, 1, tzinfo=UTC))


def past(name: str, **changed: Any) -> SelectionRound:
    """Return a finished round."""
    values: dict[str, Any] = {
        "selection_id": name, "at": datetime(2026, 1, 1, tzinfo=UTC), "item_id": "q", "model": "m", "simulated": True,
        "stage": "VALIDITY_GAP", "measure": "judge", "format": "text", "k": 4, "outcomes": {"ok": 4}, "answered": 4,
        "valid": 4, "chosen": 0, "reward": 0.9, "mean_reward": 0.8, "calls": 4, "tokens": 1, "cost_usd": 0.0,
        "duration_s": 0.1,
    }  # fmt: skip
    return SelectionRound(**{**values, **changed})

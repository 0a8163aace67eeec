"""Send each call to the model of its role."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tfgrpo.pipelines.settings.model import ModelRole
from tfgrpo.stores.runs.journal import CallKey
from tfgrpo.tasks.models.base import ChatModel, ChatReply, ChatRequest

_ROLES: Mapping[str, ModelRole] = {"rollout": "actor", "judge": "judge"}
"""Roles by those of call keys; all others reflect, curate or shorten."""


@dataclass(frozen=True, slots=True)
class RoleModels:
    """``ChatModel`` that asks the one of the call's role."""

    models: Mapping[ModelRole, ChatModel]

    async def complete(self, request: ChatRequest, key: CallKey) -> ChatReply:
        """Answer one request as the model of its role does."""
        return await self.models[_ROLES.get(key.role, "reflection")].complete(request, key)

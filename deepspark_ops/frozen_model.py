"""Base of the models of files and reports: their values never change, and unknown fields are refused."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class FrozenModel(BaseModel):
    """Values that never change, without unknown fields."""

    model_config = ConfigDict(frozen=True, extra="forbid")

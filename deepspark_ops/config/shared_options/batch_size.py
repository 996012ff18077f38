"""Option batch_size of all stages and commands with a net; the default depends on the net."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

DEFAULT_BATCH_SIZE: Final = 100
"""Default for a net of any batch size."""
BatchSize = Annotated[
    int | None,
    Field(
        ge=1,
        le=100_000,
        description=f"Samples of a forward pass; default: {DEFAULT_BATCH_SIZE}, or the net's own number where answers"
        " depend on it (Reshape, LSTM, BatchNorm without stored statistics)",
    ),
]

"""Option occlusion_squares of the parts that draw saliency maps."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

OcclusionSquares = Annotated[
    int,
    Field(
        ge=0,
        le=16,
        description="Squares side by side on a picture, each hidden from the net in turn, with squares halfway between:"
        " N squares are up to (2N)^2 passes of the net for a picture; 0: no map by occlusion",
    ),
]
DEFAULT_SQUARES = 7

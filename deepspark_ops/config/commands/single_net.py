"""Options of ``deepspark time`` and ``deepspark test``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from deepspark_ops.config.base import DataPathField, SampleShape, StageConfig
from deepspark_ops.config.evaluate import SplitChoice
from deepspark_ops.config.shared_options.named_files import AS_GIVEN, NamedFilesPart

_Threads = Annotated[int | None, Field(ge=1, le=1_024, description="Threads of a kernel; default: the cores there are")]
_Phase = Annotated[Literal["train", "test"], BeforeValidator(lambda phase: str(phase).lower())]
"""In any case: ``caffe time`` has ``-phase TEST``."""


class NetTimeConfig(StageConfig):
    """Time a net's layers, forward and backward."""

    net: Path = Field(description="Prototxt of a net; a deploy net needs no data")
    phase: _Phase = Field("train", description="Which of its layers are taken")
    batch_size: int | None = Field(None, ge=1, le=100_000, description="Samples of a pass; default: the net's own")
    sample_shape: SampleShape = None
    iterations: int = Field(50, ge=1, le=100_000, description="Passes that are recorded, and as many by the clock")
    threads: _Threads = None
    named_files: NamedFilesPart = AS_GIVEN


class NetTestConfig(StageConfig):
    """Run a net with trained weights over data."""

    net: Path = Field(description="Prototxt of a net; its layers of phase TEST are taken")
    weights: Path = Field(description="Trained weights, .caffemodel or .caffemodel.h5")
    dataset: DataPathField | None = Field(
        None, description="Ingested dataset; default: what the net's data layers name"
    )
    split: SplitChoice = "test"
    iterations: int | None = Field(
        None,
        ge=1,
        le=1_000_000_000,
        description="Batches; default: until every sample was seen",
    )
    batch_size: int | None = Field(None, ge=1, le=100_000, description="Samples of a batch; default: the net's own")
    threads: _Threads = None
    named_files: NamedFilesPart = AS_GIVEN

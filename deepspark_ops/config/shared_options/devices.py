"""Shared options about a worker's devices."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from caffe_import.devices.compute_plan import Precision
from deepspark_ops.config.base import EXPERT, FORM

GpusPerWorker = Annotated[
    int,
    Field(
        ge=1,
        le=1_024,
        title="Devices of a worker",
        description="Devices of each worker; without a placement each device computes separate passes, as Caffe's -gpu"
        " 0,1",
        json_schema_extra=FORM,
    ),
]
PlacementChoice = Annotated[
    Literal["none", "auto"] | Path,
    Field(
        title="Layers over devices",
        description="Placement of the layers on a worker's devices; none: every device has all layers; auto:"
        " consecutive stages of about equal time; or a file of lines 'LAYERS: DEVICE'",
        examples=["placement.txt"],
        json_schema_extra=EXPERT,
    ),
]
PrecisionChoice = Annotated[
    Precision,
    Field(
        title="Precision",
        description="Arithmetic of convolutions and inner products in training; sums, parameters, exchange and losses"
        " stay float32. float16 scales the loss",
        json_schema_extra=EXPERT,
    ),
]
DeviceChoice = Annotated[
    Literal["auto", "cpu", "gpu"],
    Field(
        title="CPU or GPU",
        description="Device of the net; auto: solver_mode's device (Caffe's default is GPU), but the CPU without a"
        " usable GPU; gpu: refuses to run without a GPU",
        json_schema_extra=FORM,
    ),
]
Tf32 = Annotated[
    bool,
    Field(
        title="TensorFloat-32",
        description="On GPUs, round the factors of convolutions and products to TensorFloat-32 (10 bits of mantissa)",
        json_schema_extra=EXPERT,
    ),
]
Recompute = Annotated[
    bool,
    Field(
        title="Save memory by computing again",
        description="Keep fewer activations: most layers are computed again for the backward pass. Less memory, up to a"
        " third more time, the same numbers",
        json_schema_extra=EXPERT,
    ),
]
ShareGpus = Annotated[
    bool,
    Field(
        title="Share GPUs",
        description="Let several workers of a host use the same GPU if there are too few GPUs",
        json_schema_extra=EXPERT,
    ),
]

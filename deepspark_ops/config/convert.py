"""Options of stage convert."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, model_validator

from deepspark_ops.config.base import FORM, DataPathField, StageConfig
from deepspark_ops.config.shared_options.bundle_formats import BundleFormats
from deepspark_ops.config.shared_options.named_files import AS_GIVEN, NamedFilesPart
from deepspark_ops.config.shared_options.task import OutputBlobs, TaskChoice

_NUMBER = r"[+-]?\d+(\.\d*)?"


class ConvertConfig(StageConfig):
    """Write a bundle of a net and weights that were trained elsewhere, and check the bundle."""

    net: Path = Field(
        title="Net",
        description="Caffe net prototxt: a deploy net, or a training net with its data layers",
        json_schema_extra=FORM,
    )
    weights: Path = Field(
        title="Weights", description="The net's .caffemodel or .caffemodel.h5", json_schema_extra=FORM
    )
    output: Path = Field(description="Bundle folder to write")
    class_names: Path | None = Field(
        None,
        title="Names of the classes",
        description="Text file with a class name per line, class 0 first; default: the names in the dataset",
        json_schema_extra=FORM,
    )
    mean: Path | None = Field(
        None,
        title="Mean image",
        description="Mean image (.binaryproto) to subtract; default: from the net's data layer",
        json_schema_extra=FORM,
    )
    mean_values: Annotated[str, Field(pattern=rf"^({_NUMBER}(, *{_NUMBER})*)?$")] = Field(
        "",
        title="Mean values",
        description="Values to subtract in place of a mean image: a single value, or a value a channel in the order"
        " blue, green, red, e.g. '104, 117, 123'",
        json_schema_extra={**FORM, "allowed": "one number, or one a channel with commas, like 104, 117, 123"},
    )
    scale: float | None = Field(
        None,
        gt=0.0,
        title="Scale",
        description="Factor of the pixels 0 to 255 after the subtraction of the mean, e.g. 0.00390625; default: from"
        " the net's data layer, 1 for a deploy net",
        json_schema_extra=FORM,
    )
    dataset: DataPathField | None = Field(
        None,
        title="Dataset",
        description="Ingested dataset with test samples for the check and class names for the bundle; default: the"
        " net's own sources, for a deploy net random pixels",
        json_schema_extra=FORM,
    )
    check_samples: int = Field(
        32, ge=1, le=10_000, description="Number of samples for comparing the exported model with the net"
    )
    formats: BundleFormats = None
    task: TaskChoice = "auto"
    output_blob: OutputBlobs = None
    named_files: NamedFilesPart = AS_GIVEN

    @model_validator(mode="after")
    def _check(self) -> ConvertConfig:
        if self.mean is not None and self.mean_values:
            msg = f"mean={self.mean} and mean_values='{self.mean_values}': give one"
            raise ValueError(msg)
        return self

    @property
    def channel_means(self) -> tuple[float, ...]:
        """``mean_values`` as numbers."""
        return tuple(float(value) for value in self.mean_values.split(",")) if self.mean_values else ()

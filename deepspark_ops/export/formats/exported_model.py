"""What every format is written from, and what one gives back when its files are read again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.evaluate.samples import Batch
from deepspark_ops.export.served_input import ServedInput
from deepspark_ops.export.served_output import Answers, ServedOutput

if TYPE_CHECKING:
    from deepspark_ops.export.tf_saved_model import ServedModel


class CannotHave(DeepSparkError):
    """A net has no form in this format; the message says why, for a sentence that names the format."""


@dataclass(frozen=True)
class ExportedModel:
    """A model on its way into a bundle.

    Attributes:
        folder: The bundle, being written.
        deploy: The deploy net.
        build: Returns it, built for a batch size.
        params: Its parameter vector, shape (n_params,).
        inputs: What the model takes.
        outputs: What it gives, the main result first.
        batch: The samples that every file is checked on.
        n_threads: Threads that the check may use.
        served: Returns its graph, from requests to probabilities; made at the first call, and then kept. With
            ``is_portable=True`` a graph of operations that TensorFlow Lite has, too.
        unit_batch: Samples that the net computes together at the least; a batch of the deploy net.
        calibration: Training samples as the model takes them, argument -> (n, ...); None if there are none.
    """

    folder: Path
    deploy: caffe_pb2.NetParameter
    build: Callable[[int], NetSpec]
    params: Vector
    inputs: tuple[ServedInput, ...]
    outputs: tuple[ServedOutput, ...]
    batch: Batch
    n_threads: int
    served: Callable[..., ServedModel]
    unit_batch: int = 1
    calibration: Mapping[str, npt.NDArray[Any]] | None = None

    @property
    def output_names(self) -> list[str]:
        """Return the outputs' names in the signature."""
        return [one.name for one in self.outputs]

    def requests(self) -> dict[str, npt.NDArray[Any]]:
        """Return the samples as the model takes them, argument -> array."""
        return {served.name: served.from_stored(self.batch.stored[served.blob]) for served in self.inputs}

    def prepared(self) -> dict[str, npt.NDArray[np.float32]]:
        """Return the samples as the deploy net takes them, blob -> array (N, ...)."""
        return {name: values[: self.batch.count] for name, values in self.batch.feeds.items()}


@dataclass(frozen=True)
class Reading:
    """What a reader of the written files answers for the check's samples.

    Attributes:
        file: The file that was read.
        reader: What read it.
        answers: Output -> (N, ...); None if this reader cannot read this net.
        unread: Why it cannot; empty if it can.
        min_agreement: For a format that rounds: share of the answers that must be the trained net's, as
            ``ServedOutput.agreement`` counts them; None for one that must give its very numbers.
    """

    file: str
    reader: str
    answers: Answers | None
    unread: str = ""
    min_agreement: float | None = None


@dataclass(frozen=True)
class Format:
    """A format of the bundle.

    Attributes:
        files: Files and folders in the bundle that belong to it alone.
        write: Writes them. Raises ``CannotHave``.
        read: Reads what was written, as a user would, and answers the check's samples. Raises ``CannotHave``.
        is_read_apart: Does all of ``read`` happen in a process of its own? It then runs in a thread, beside others.
    """

    files: tuple[str, ...]
    write: Callable[[ExportedModel], None]
    read: Callable[[ExportedModel], tuple[Reading, ...]]
    is_read_apart: bool = False

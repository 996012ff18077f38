"""Input of every format's writer, and result of every format's reader."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from caffe_import.net.net_spec import NetSpec
from caffe_import.net.param_layout import Vector
from caffe_import.proto import caffe_pb2
from deepspark_ops.errors import DeepSparkError
from deepspark_ops.evaluate.samples import Batch
from deepspark_ops.export.formats.outside_reader import ReaderFailed, read_outside
from deepspark_ops.export.served_input import ServedInput
from deepspark_ops.export.served_output import Answers, ServedOutput

if TYPE_CHECKING:
    from deepspark_ops.export.tf_saved_model import ServedModel


NEEDS_ITS_BATCH: Final = "the net computes with its whole batch: an answer depends on how many and which samples it has"
"""Reason of formats that compute each sample for itself."""


class CannotHave(DeepSparkError):
    """A net has no form in this format; the message is the reason, for a sentence that names the format."""


@dataclass(frozen=True)
class ExportedModel:
    """A model on its way into a bundle.

    Attributes:
        folder: Hidden folder of the unfinished bundle.
        deploy: The deploy net.
        build: Returns the deploy net for a batch size.
        params: Parameter vector of the deploy net, shape (n_params,).
        inputs: Inputs of the model.
        outputs: Outputs of the model, the main result first.
        batch: Samples for the check of every file.
        n_threads: Threads that the check may use.
        served: Returns the graph, from requests to probabilities. The first call builds the graph; later calls return
            the same graph. With ``is_portable=True`` the graph has only operations that TensorFlow Lite has, too.
        unit_batch: Smallest number of samples that the net computes together; a batch of the deploy net.
        calibration: Training samples in the form of requests, argument -> (n, ...); None without such samples.
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
        return [output.name for output in self.outputs]

    def requests(self) -> dict[str, npt.NDArray[Any]]:
        """Return the samples in the form of requests, argument -> array."""
        return {served.name: served.from_stored(self.batch.stored[served.blob]) for served in self.inputs}

    def prepared(self) -> dict[str, npt.NDArray[np.float32]]:
        """Return the samples in the form of the deploy net's inputs, blob -> array (N, ...)."""
        return {name: values[: self.batch.count] for name, values in self.batch.feeds.items()}

    def read_by(
        self, program: Path, reader: str, file: str, *arguments: str, min_agreement: float | None = None
    ) -> tuple[Reading, ...]:
        """Return the answers that a reader program computes from a file of the bundle, in a separate process.

        Raises:
            CannotHave: The framework cannot run the file.
        """
        try:
            answers = read_outside(program, [str(self.folder / file), *arguments], self.requests(), self.output_names)
        except ReaderFailed as failure:
            msg = f"{reader} cannot run it: {failure}"
            raise CannotHave(msg) from failure
        return (Reading(file, reader, answers, min_agreement=min_agreement),)


@dataclass(frozen=True)
class Reading:
    """Answers that a reader computes from the written files, for the check's samples.

    Attributes:
        file: The file that was read.
        reader: Program that read the file.
        answers: Output -> (N, ...); None if this reader cannot read this net.
        unread: Reason why the reader cannot read the net; empty if ``answers`` are there.
        min_agreement: Smallest share of answers that must equal the trained net's, for a format with rounded numbers;
            ``ServedOutput.agreement`` counts them. None for a format with exact numbers.
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
        files: Files and folders in the bundle that belong to this format alone.
        write: Writes the files. Raises ``CannotHave``.
        read: Reads the files, as a user would, and answers the check's samples. Raises ``CannotHave``.
        is_read_apart: Does ``read`` start a separate process? ``read`` then runs in a thread, in parallel with others.
    """

    files: tuple[str, ...]
    write: Callable[[ExportedModel], None]
    read: Callable[[ExportedModel], tuple[Reading, ...]]
    is_read_apart: bool = False

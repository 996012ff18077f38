"""The report of stage check: plain values, for printing, comparison and JSON."""

from __future__ import annotations

from typing import Literal

from deepspark_ops.devices.device_rows import DeviceRow
from deepspark_ops.devices.worker_rows import WorkerRow
from deepspark_ops.frozen_model import FrozenModel


class Problem(FrozenModel):
    """An error, or a possible surprise.

    Attributes:
        severity: ``error``: training cannot work; ``warning``: training works, but the user should know.
        finding: The whole message, with position.
        path: The net's file; empty without a position in a file.
        line: Line from 1; 0 without a position.
        column: Column from 1; 0 without a position.
    """

    severity: Literal["error", "warning"]
    finding: str
    path: str = ""
    line: int = 0
    column: int = 0


class FormatReport(FrozenModel):
    """Format version of a net's file, or of an old solver.

    Attributes:
        file: The net's file; the solver's file for a net inside a solver.
        version: Generation of the layers: V0, V1 or current; ``old`` for a solver with the solver_type enum.
        upgrades: Upgrades after reading, one line per step.
    """

    file: str
    version: Literal["V0", "V1", "old", "current"]
    upgrades: tuple[str, ...]


class ParityReport(FrozenModel):
    """Comparison of a layer type with recorded outputs of Caffe.

    Attributes:
        layer_type: The type.
        n_cases: Number of recorded cases for the type.
        n_passed: Number of cases within their bounds.
        largest_error: Largest relative error of all compared values; None without a case.
    """

    layer_type: str
    n_cases: int
    n_passed: int
    largest_error: float | None


class Certificate(FrozenModel):
    """``parity.json``: the comparison, stored in the run.

    Attributes:
        format_version: Version of this form.
        cases: Folder of the recorded cases.
        tensorflow: Compared version of TensorFlow.
        parity: A report per layer type of the nets.
        failed: Findings of the failed cases.
    """

    format_version: Literal[2]
    cases: str
    tensorflow: str
    parity: tuple[ParityReport, ...]
    failed: tuple[str, ...]


class LayerReport(FrozenModel):
    """A layer of a net.

    Attributes:
        name: Name of the layer.
        type: Type of the layer.
        bottoms: Input blobs, by their names in the file.
        tops: Output blobs.
        top_shapes: Shapes of the tops in Caffe's order, batch axis included.
        n_params: Number of owned parameters; shared parameters count at their owner.
        flops: Floating-point operations of one forward pass over the batch (a multiply-add is two).
        activation_bytes: Bytes of the tops; 0 for an in-place layer.
        notes: Notes on the layer.
    """

    name: str
    type: str
    bottoms: tuple[str, ...]
    tops: tuple[str, ...]
    top_shapes: tuple[tuple[int, ...], ...]
    n_params: int
    flops: int
    activation_bytes: int
    notes: tuple[str, ...]


class DataReport(FrozenModel):
    """Data of a data layer.

    Attributes:
        layer: The layer's name.
        source: Source of the layer, or the dataset's folder.
        n_samples: Number of samples; None if the data are not ingested yet and too many to count.
        sample_shapes: Stored shape of one sample per top.
        resized: Sizes that the ingestion's resize changes, as a sentence; empty without changes.
    """

    layer: str
    source: str
    n_samples: int | None
    sample_shapes: tuple[tuple[int, ...], ...]
    resized: str = ""


class NetReport(FrozenModel):
    """A net of the solver.

    Attributes:
        title: ``train``, ``test`` or ``test 1``.
        phase: TRAIN or TEST.
        name: Name of the net.
        batch_size: Samples of one pass; None if the net has no data layer.
        layers: In order of execution, without the automatic Split layers.
        data: Data of the data layers.
        n_params: Length of the parameter vector.
        flops: Floating-point operations of one forward pass over the batch.
        activation_bytes: Bytes of all blobs of one pass.
    """

    title: str
    phase: Literal["TRAIN", "TEST"]
    name: str
    batch_size: int | None
    layers: tuple[LayerReport, ...]
    data: tuple[DataReport, ...]
    n_params: int
    flops: int
    activation_bytes: int


class RatePoint(FrozenModel):
    """Learning rate at a minibatch of the clock, without rate_scale."""

    clock: int
    learning_rate: float


class WorkReport(FrozenModel):
    """Work of a training.

    Attributes:
        solver_type: SGD, Adam, ...
        max_iter: Minibatches of the clock, over all workers.
        iter_size: Passes of one minibatch.
        batch_size: Samples of one pass.
        n_workers: Workers.
        effective_batch: batch_size x iter_size x n_workers: samples computed at the same time.
        n_samples: Samples of the whole run.
        epochs: Passes over the training set; None if its size is unknown.
        learning_rates: Rates at the start, at every change of a stepwise policy, and at the end.
        worker_bytes: Forecast of a worker process' peak memory.
        driver_bytes: Forecast of the driver's peak memory.
        machine_bytes: Forecast of the peak memory of a machine with all workers and the driver.
        center_bytes: Bytes of the center.
        worker_devices: Devices of each worker.
    """

    solver_type: str
    max_iter: int
    iter_size: int
    batch_size: int
    n_workers: int
    effective_batch: int
    n_samples: int
    epochs: float | None
    learning_rates: tuple[RatePoint, ...]
    worker_bytes: int
    driver_bytes: int
    machine_bytes: int
    center_bytes: int
    worker_devices: tuple[WorkerRow, ...] = ()


class MemoryRow(FrozenModel):
    """Memory of a layer of the training net during a step.

    Attributes:
        layer: Name of the layer.
        type: Type of the layer.
        bytes: Total without recompute: kept tensors of a pass, and the parameters' share.
        activation_bytes: Tensors of the layer that the backward pass reads.
        recompute_bytes: The same with recompute.
        param_bytes: Parameters, their gradients and history.
    """

    layer: str
    type: str
    bytes: int
    activation_bytes: int
    recompute_bytes: int
    param_bytes: int


class MemoryReport(FrozenModel):
    """Comparison of a training step's memory with the available memory.

    Attributes:
        step_bytes: Forecast of the peak of one step on one device.
        recompute_step_bytes: The same with recompute.
        room: Name of the available memory, in words.
        room_bytes: Size of the available memory.
        needed_bytes: Needed bytes.
        recompute_needed_bytes: Needed bytes with recompute.
        largest_batch: Largest batch_size that fits; 0 if no batch size fits.
        recompute_largest_batch: The same with recompute.
        fits: Does the net fit with the present options?
        advice: Changes that make the net fit, one line each; empty if the net fits.
    """

    step_bytes: int
    recompute_step_bytes: int
    room: str
    room_bytes: int
    needed_bytes: int
    recompute_needed_bytes: int
    largest_batch: int
    recompute_largest_batch: int
    fits: bool
    advice: tuple[str, ...]


class ResultReport(FrozenModel):
    """A result for evaluation and export; the main result is first.

    Attributes:
        task: Task of the net, as ``config.shared_options.task.TaskName``.
        outputs: Blobs with the answers.
        target: Blob with the expected answers; None: evaluation has nothing to compare with.
        activation: Function from blob to answer: ``softmax``, ``sigmoid`` or ``none``.
        found_by: Evidence for the task.
        figures: Figures of the evaluation, in words.
        text: Summary in one line.
    """

    task: str
    outputs: tuple[str, ...]
    target: str | None
    activation: str
    found_by: str
    figures: str
    text: str


class PreflightReport(FrozenModel):
    """The whole report.

    Attributes:
        format_version: Version of this form.
        solver: The solver's path.
        nets: Reports of nets that could be built.
        formats: Formats of the nets' files, and of an upgraded solver's file.
        work: Work of the training; None if the training net could not be built.
        problems: Problems, errors first.
        layer_types: Types of the nets' layers, including nets that could not be built.
        parity: A report per layer type of the nets, if the comparison was requested.
        devices: A row per device of a worker, if the training net is placed on several devices.
        rows: Memory by layer of the training net, if requested.
        memory: Comparison with the available memory, if requested.
        results: Results of evaluation and export, the main result first.
        no_result: Reason why evaluation and export will refuse the net; empty without a reason.
    """

    format_version: Literal[4]
    solver: str
    nets: tuple[NetReport, ...]
    formats: tuple[FormatReport, ...]
    work: WorkReport | None
    problems: tuple[Problem, ...]
    layer_types: tuple[str, ...] = ()
    parity: tuple[ParityReport, ...] = ()
    devices: tuple[DeviceRow, ...] = ()
    rows: tuple[MemoryRow, ...] = ()
    memory: MemoryReport | None = None
    results: tuple[ResultReport, ...] = ()
    no_result: str = ""

    @property
    def errors(self) -> tuple[str, ...]:
        """Findings of severity ``error``: training would fail."""
        return tuple(problem.finding for problem in self.problems if problem.severity == "error")

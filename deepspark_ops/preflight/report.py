"""The report of stage check: plain values, so that it can be printed, compared and written as JSON."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict

from deepspark_ops.devices.device_rows import DeviceRow
from deepspark_ops.devices.worker_rows import WorkerRow


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Problem(_Frozen):
    """Something that is wrong or may surprise.

    Attributes:
        severity: ``error``: training cannot work; ``warning``: it can, but look at it.
        finding: Where and what; the whole message.
        path: The net's file, empty where no single place in it is to blame.
        line: 1-based, 0 likewise.
        column: 1-based, 0 likewise.
    """

    severity: Literal["error", "warning"]
    finding: str
    path: str = ""
    line: int = 0
    column: int = 0


class FormatReport(_Frozen):
    """The form in which a net is written in its file, or a solver of an old form.

    Attributes:
        file: The net's file; the solver's, for a net inside a solver.
        version: Generation of its layers: V0, V1 or current; ``old`` for a solver with the solver_type enum.
        upgrades: What was upgraded after reading, one line per step.
    """

    file: str
    version: Literal["V0", "V1", "old", "current"]
    upgrades: tuple[str, ...]


class ParityReport(_Frozen):
    """How one layer type compares with recorded outputs of Caffe.

    Attributes:
        layer_type: The type.
        n_cases: Recorded cases that were run; 0 if there are none for it.
        n_passed: Those within their bounds.
        largest_error: Largest relative error of all values compared; None without a case.
    """

    layer_type: str
    n_cases: int
    n_passed: int
    largest_error: float | None


class Certificate(_Frozen):
    """``parity.json``: what a run keeps of the comparison.

    Attributes:
        format_version: Version of this form.
        cases: Folder of the recorded cases.
        tensorflow: Version of TensorFlow that was compared.
        parity: One per layer type of the nets.
        failed: Findings of the cases that failed.
    """

    format_version: Literal[2]
    cases: str
    tensorflow: str
    parity: tuple[ParityReport, ...]
    failed: tuple[str, ...]


class LayerReport(_Frozen):
    """One layer of a net.

    Attributes:
        name: Its name.
        type: Its type.
        bottoms: Blobs read, by the names that the file gives them.
        tops: Blobs written.
        top_shapes: Their shapes in Caffe's order, batch axis included.
        n_params: Parameters it owns; shared ones count at their owner.
        flops: Floating-point operations of one forward pass over the batch (a multiply-add is two).
        activation_bytes: Bytes of its tops; 0 where it works in place.
        notes: Traps of this layer.
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


class DataReport(_Frozen):
    """What a data layer reads.

    Attributes:
        layer: The layer's name.
        source: Its source, or the dataset's folder.
        n_samples: Samples there; None if the data are not ingested yet and too many to count.
        sample_shapes: Shape of one sample per top, as stored.
        resized: Sizes that the ingestion's resize changes, as a sentence; empty if it changes none.
    """

    layer: str
    source: str
    n_samples: int | None
    sample_shapes: tuple[tuple[int, ...], ...]
    resized: str = ""


class NetReport(_Frozen):
    """One net of the solver.

    Attributes:
        title: ``train``, ``test`` or ``test 1``.
        phase: TRAIN or TEST.
        name: The net's own name.
        batch_size: Samples of one pass; None if the net has no data layer.
        layers: In order of execution, without the automatic Split layers.
        data: What its data layers read.
        n_params: Length of the parameter vector.
        flops: Of one forward pass over the batch.
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


class RatePoint(_Frozen):
    """The learning rate at one minibatch of the clock, without rate_scale."""

    clock: int
    learning_rate: float


class WorkReport(_Frozen):
    """What the training amounts to.

    Attributes:
        solver_type: SGD, Adam, ...
        max_iter: Minibatches of the clock, over all workers.
        iter_size: Passes of one minibatch.
        batch_size: Samples of one pass.
        n_workers: Workers.
        effective_batch: batch_size x iter_size x n_workers: samples in work at the same time.
        n_samples: Samples that the whole run computes.
        epochs: Times that it sees the training set; None if its size is not known.
        learning_rates: At the start, at every change of a stepwise policy, and at the end.
        worker_bytes: Forecast of one worker process' peak memory.
        driver_bytes: The same of the driver.
        machine_bytes: The same of one machine that runs all workers and the driver.
        center_bytes: Bytes of the center.
        worker_devices: What each worker computes on.
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


class MemoryRow(_Frozen):
    """The memory of one layer of the training net while a step is computed.

    Attributes:
        layer: Its name.
        type: Its type.
        bytes: All of it without recompute: what is kept of a pass, and its parameters' share.
        activation_bytes: What the backward pass reads of the tensors that it makes.
        recompute_bytes: The same where recompute keeps less.
        param_bytes: Its parameters, their gradients and history.
    """

    layer: str
    type: str
    bytes: int
    activation_bytes: int
    recompute_bytes: int
    param_bytes: int


class MemoryReport(_Frozen):
    """Whether a training step fits into the memory that is there.

    Attributes:
        step_bytes: Forecast of the peak of one step on one device.
        recompute_step_bytes: The same with recompute.
        room: Where it must fit, in words.
        room_bytes: How much there is.
        needed_bytes: What is needed there.
        recompute_needed_bytes: The same with recompute.
        largest_batch: Largest batch_size that fits there; 0 if none does.
        recompute_largest_batch: The same with recompute.
        fits: Does the net fit with the options as they are?
        advice: What would make it fit, one line each; empty where it fits.
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


class ResultReport(_Frozen):
    """One result that evaluation will find and export ship; the main one is the first.

    Attributes:
        task: What the net is for, as ``config.shared_options.task.TaskName``.
        outputs: Blobs with the answers.
        target: Blob with what they should be; None: evaluation has nothing to compare with.
        activation: What turns the blob into the answer: ``softmax``, ``sigmoid`` or ``none``.
        found_by: What told.
        figures: What comes out, in words.
        text: All of it in one line.
    """

    task: str
    outputs: tuple[str, ...]
    target: str | None
    activation: str
    found_by: str
    figures: str
    text: str


class PreflightReport(_Frozen):
    """The whole report.

    Attributes:
        format_version: Version of this form.
        solver: The solver's path.
        nets: Those that could be built.
        formats: The files that the nets come from; the solver's too where it was upgraded.
        work: None where the training net could not be built.
        problems: Errors first.
        layer_types: Types of the nets' layers, those of nets that could not be built included.
        parity: One per layer type of the nets, if the comparison was asked for.
        devices: One per device of a worker, if the training net is placed on several.
        rows: Memory by layer of the training net, if it was asked for.
        memory: Whether the net fits, likewise.
        results: What evaluation will score and export ship, the main result first.
        no_result: Why evaluation and export will refuse the net; empty if they will not.
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
        """Findings that make training impossible."""
        return tuple(problem.finding for problem in self.problems if problem.severity == "error")

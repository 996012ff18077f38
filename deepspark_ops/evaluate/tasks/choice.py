"""Task of a net, and the blobs of the results: inferred from the net's losses and outputs, or set by the user.

No TensorFlow and no data: stages check, evaluate and export all use this module, so the stages agree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final, Literal

from caffe_import.errors import NetError, did_you_mean
from caffe_import.layers.softmax import SoftmaxOptions
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import LayerSpec, NetSpec
from deepspark_ops.config.shared_options.task import TASK_NAMES, TaskName
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.tasks.net_wiring import maker_of, named, origins, user_name, weights_behind

Activation = Literal["none", "softmax", "sigmoid"]
_CLASS_LOSSES: Final = ("SoftmaxWithLoss", "InfogainLoss", "HingeLoss", "MultinomialLogisticLoss")
_LOSSES: Final = (*_CLASS_LOSSES, "SigmoidCrossEntropyLoss", "EuclideanLoss", "ContrastiveLoss")
_GIVES_PROBABILITIES: Final = ("MultinomialLogisticLoss",)
_SIDES: Final = 2
SEQUENCE: Final = "sequence labelling"
"""A segmentation of time steps, in words."""
_SEQUENCE_AXES: Final = 3
"""Samples, classes, time steps."""
_NEEDED: Final = (
    "needed: a loss layer (SoftmaxWithLoss, SigmoidCrossEntropyLoss, EuclideanLoss, ContrastiveLoss, ...) or an "
    "Accuracy layer whose target is no learned blob, or an output; else say what the net is for by the options task, "
    "output_blob and target_blob"
)


def is_of_steps(task: TaskName, n_axes: int) -> bool:
    """Return whether a result, with ``n_axes`` of a batch, has a class at each position of a single axis."""
    return task == "segmentation" and n_axes == _SEQUENCE_AXES


@dataclass(frozen=True)
class ChosenTask:
    """A result of a net.

    Attributes:
        task: What it is.
        outputs: Blobs with the answers, as the user named them: one, or the two sides of a pair (embedding; one blob
            of it is a vector a sample, whose target is its class).
        target: Blob with what the answers should be; None if the net has none. No learned layer has a part in it, but
            it may be computed from data (Slice, Flatten).
        found_by: The layer or the option that decided, ``layer "loss" (SoftmaxWithLoss)``.
        activation: What turns the blob into the answer: ``softmax`` over ``class_axis``, ``sigmoid``, or ``none``.
        ignore_label: Samples (segmentation: pixels) of this label do not count, as in the net's own loss.
        weight: The loss' weight; of several results the one with the largest is the main one.
        margin: Of ContrastiveLoss; None for others.
        class_axis: Axis of the classes in the blob.
        is_target_fed: Is ``target`` a top of a data layer itself?
        shape: Of one sample's answer, without the axes of the batch.
        n_classes: Classes of a classification or segmentation, labels of multi_label; 0 for others. A segmentation of
            one score a pixel (sigmoid) has 2.
        n_batch_axes: First axes of the blob that number the samples: 1, or 2 for (T, N, classes) of T * N samples.
    """

    task: TaskName
    outputs: tuple[str, ...]
    target: str | None
    found_by: str
    activation: Activation = "none"
    ignore_label: int | None = None
    weight: float = 1.0
    margin: float | None = None
    class_axis: int = 1
    is_target_fed: bool = False
    shape: Shape = ()
    n_classes: int = 0
    n_batch_axes: int = 1

    @property
    def axis_in_sample(self) -> int:
        """Axis of the classes in ``shape``."""
        return self.class_axis - self.n_batch_axes

    @property
    def n_positions(self) -> int:
        """Numbers of a class in a sample's answer: 1, or the pixels."""
        return self.n_values // self.shape[self.axis_in_sample] if self.n_values else 0

    @property
    def is_sequence(self) -> bool:
        """Whether the classes are of the time steps of a sequence."""
        return is_of_steps(self.task, 1 + len(self.shape))

    @property
    def kind(self) -> str:
        """The task in words."""
        return SEQUENCE if self.is_sequence else self.task.replace("_", " ")

    @property
    def output(self) -> str:
        """The blob with the answers; of a pair the first side."""
        return self.outputs[0]

    @property
    def n_values(self) -> int:
        """Numbers in a sample's answer."""
        return prod(self.shape)

    def text(self) -> str:
        """Return the choice in a line, for people."""
        blobs = " and ".join(f'"{name}"' for name in self.outputs)
        through = "" if self.activation == "none" else f" through a {self.activation}"
        against = "nothing to compare with" if self.target is None else f'target "{self.target}"'
        return f"{self.kind} of blob {blobs}{through}, {against}; decided by {self.found_by}"


@dataclass(frozen=True)
class TaskWish:
    """The user's options about the task.

    Attributes:
        task: ``auto``: read off the net.
        outputs: Blobs with the answers; empty: read off the net.
        target: Blob with what they should be; None: read off the net.
    """

    task: TaskName | Literal["auto"] = "auto"
    outputs: tuple[str, ...] = ()
    target: str | None = None


def task_wish(task: TaskName | Literal["auto"], output_blob: str | None, target_blob: str | None) -> TaskWish:
    """Return the wish of the options ``task``, ``output_blob`` (names with commas between) and ``target_blob``."""
    names = tuple(name.strip() for name in (output_blob or "").split(",") if name.strip())
    return TaskWish(task, names, target_blob or None)


NO_WISH: Final = TaskWish()


def choose_task(net: NetSpec, wish: TaskWish = NO_WISH) -> ChosenTask:
    """Return the main result; see ``choose_tasks``."""
    return choose_tasks(net, wish)[0]


def choose_tasks(net: NetSpec, wish: TaskWish = NO_WISH) -> tuple[ChosenTask, ...]:
    """Return the tasks of a net, the main result first.

    The tasks come from the net's losses, then from Accuracy layers, then from blobs without a consumer. Several
    losses with the same target are a single result: the result of the loss with the largest weight (GoogLeNet has two
    auxiliary losses). Losses, or Accuracy layers, with different targets are separate results. The main result has
    the largest weight; among equal weights a classification precedes, then the last loss. With ``outputs`` or
    ``target`` in the wish there is only this result.

    Raises:
        NetError: The net shows no result, or one of a shape that its task cannot have.
        ConfigError: The wish does not fit the net.
    """
    candidates = _candidates(net)
    if wish.outputs or wish.target is not None:
        return (_as_wished(net, wish, candidates),)
    if wish.task != "auto":
        return _of_task(net, wish.task, candidates)
    if not candidates:
        outputs = ", ".join(f'"{name}"' for name in net.outputs) or "none"
        msg = f'net "{net.name}" ({net.phase}) shows no result, its outputs are {outputs}; {_NEEDED}'
        raise NetError(msg)
    return candidates


def _candidates(net: NetSpec) -> tuple[ChosenTask, ...]:
    losses = [layer for layer in net.layers if layer.type in _LOSSES]
    weighty = [layer for layer in losses if layer.loss_weights[0]] or losses
    candidates = [task for layer in weighty if (task := _of_loss(net, layer)) is not None]
    if not any(task.task in ("classification", "segmentation") for task in candidates):
        accuracies = [layer for layer in net.layers if layer.type == "Accuracy"]
        weight = max((task.weight for task in candidates), default=1.0)
        candidates += [replace(_of_classes(net, layer, layer.bottoms[1]), weight=weight) for layer in accuracies]
    if not candidates and not losses:
        candidates = _of_ends(net)[-1:]
    return _one_for_each_target(candidates)


def _one_for_each_target(candidates: Sequence[ChosenTask]) -> tuple[ChosenTask, ...]:
    """Return the results, the main result first; of several with the same target only the heaviest."""

    def rank(item: tuple[int, ChosenTask]) -> tuple[float, bool, int]:
        at, task = item
        return task.weight, task.task == "classification", at

    ranked = [task for _, task in sorted(enumerate(candidates), key=rank, reverse=True)]
    heaviest: dict[object, ChosenTask] = {}
    for task in ranked:
        heaviest.setdefault(task.target if task.target is not None else task.outputs, task)
    return tuple(heaviest.values())


def _of_loss(net: NetSpec, layer: LayerSpec) -> ChosenTask | None:
    """Return the result of a loss layer; None for a loss between two learned blobs."""
    if layer.type in _CLASS_LOSSES:
        return replace(_of_classes(net, layer, layer.bottoms[1]), weight=layer.loss_weights[0])
    if layer.type == "ContrastiveLoss":
        return _of_pair(net, layer)
    blob_origins = origins(net)
    output, target = layer.bottoms[:2]
    if layer.type == "EuclideanLoss" and blob_origins[target].is_learned and not blob_origins[output].is_learned:
        output, target = target, output
    if blob_origins[target].is_learned:
        return None
    origin = blob_origins[output]
    is_own_input = origin.is_learned and origin.depends_on_all_of(blob_origins[target])
    has_sigmoid = layer.type == "SigmoidCrossEntropyLoss"
    task: TaskName = "reconstruction" if is_own_input else "multi_label" if has_sigmoid else "regression"
    shape = net.blob_shapes[user_name(net, output)]
    if task == "multi_label" and prod(shape[2:]) > 1 and shape[1] == 1:
        task = "segmentation"  # one yes or no a pixel
    chosen = ChosenTask(
        task,
        (user_name(net, output),),
        user_name(net, target),
        found_by=named(layer),
        activation="sigmoid" if has_sigmoid else "none",
        ignore_label=_ignored(layer),
        weight=layer.loss_weights[0],
    )
    return _completed(net, chosen)


def _of_classes(net: NetSpec, layer: LayerSpec, label: str) -> ChosenTask:
    """Return the classification or segmentation of a layer with scores and integer labels.

    Raises:
        NetError: Classes on the axis of the samples, or labels that the net computes.
    """
    axis = getattr(layer.definition.options, "axis", 1)
    output, shape = user_name(net, layer.bottoms[0]), layer.bottom_shapes[0]
    if axis == 0:
        msg = (
            f'{named(layer)}: class scores "{output}" of shape {shape} have their classes on axis 0, the axis of the '
            "samples; allowed: another axis, such as 1 for (N, classes)"
        )
        raise NetError(msg, layer=layer.name)
    origin, target = origins(net)[label], user_name(net, label)
    if origin.is_learned or origin.is_selected:
        msg = f'{named(layer)}: its labels "{target}" are computed by the net; allowed: a top of a data layer'
        raise NetError(msg, layer=layer.name)
    whole_sample = layer.type in ("HingeLoss", "MultinomialLogisticLoss")
    n_positions = prod(shape[_n_batch_axes(net, shape, axis) :]) // shape[axis]
    task: TaskName = "segmentation" if n_positions > 1 and not whole_sample else "classification"
    is_probability = layer.type in _GIVES_PROBABILITIES or _is_made_by(net, output, "Softmax")
    chosen = ChosenTask(
        task,
        (output,),
        target,
        found_by=named(layer),
        activation="none" if is_probability else "softmax",
        ignore_label=_ignored(layer),
        class_axis=axis,
    )
    return _completed(net, chosen)


def _n_batch_axes(net: NetSpec, shape: Shape, class_axis: int) -> int:
    """Return the number of first axes that number the samples: all before the classes if they number the batch."""
    return class_axis if shape[0] != net.batch_size and prod(shape[:class_axis]) == net.batch_size else 1


def _of_pair(net: NetSpec, layer: LayerSpec) -> ChosenTask:
    sides = tuple(user_name(net, bottom) for bottom in layer.bottoms[:_SIDES])
    label, margin = user_name(net, layer.bottoms[2]), layer.message.contrastive_loss_param.margin
    chosen = ChosenTask("embedding", sides, label, named(layer), weight=layer.loss_weights[0], margin=margin)
    return _completed(net, chosen)


def _of_ends(net: NetSpec) -> list[ChosenTask]:
    """Return results of blobs without a consumer; Softmax outputs are last, as the surest results."""
    blob_origins = origins(net)
    ends = [name for name in net.outputs if name not in net.inputs and blob_origins[name].is_learned]
    if (pair := _twins(net, ends)) is not None:
        found_by = f'outputs "{pair[0]}" and "{pair[1]}", made by the same weights'
        return [_with_unused_label(net, _completed(net, ChosenTask("embedding", pair, None, found_by)))]
    makers = {name: maker.type for name in ends if (maker := maker_of(net, name)) is not None}
    results = []
    for name in sorted(ends, key=lambda name: makers[name] == "Softmax"):
        shape = net.blob_shapes[name]
        if len(shape) < _SIDES:
            continue
        task: TaskName = "multi_label" if makers[name] == "Sigmoid" else "regression"
        axis = _softmax_axis(net, name)
        if makers[name] == "Softmax":
            n_positions = prod(shape[_n_batch_axes(net, shape, axis) :]) // shape[axis]
            task = "segmentation" if n_positions > 1 else "classification"
        elif prod(shape[2:]) > 1:
            task = "regression"
        found_by = f'output "{name}" ({makers[name]})'
        chosen = _completed(net, ChosenTask(task, (name,), None, found_by, class_axis=axis))
        results.append(_with_unused_label(net, chosen))
    return results


def _with_unused_label(net: NetSpec, chosen: ChosenTask) -> ChosenTask:
    """Return a result without a target with the label of the first data layer, if the label fits."""
    target = _unused_label(net)
    fits = target is not None and _target_fits(net, chosen, target)
    return replace(chosen, target=target, is_target_fed=target in net.inputs) if fits else chosen


def _twins(net: NetSpec, ends: Sequence[str]) -> tuple[str, ...] | None:
    """Return the two ends of a siamese net: of one shape, made by the same weights; None of any other net."""
    weights, shapes = weights_behind(net), net.blob_shapes
    is_pair = len(ends) == _SIDES and len({(weights[name], shapes[name]) for name in ends}) == 1
    return tuple(ends) if is_pair and len(shapes[ends[0]]) >= _SIDES else None


def _softmax_axis(net: NetSpec, blob: str) -> int:
    """Return the axis of the Softmax that makes ``blob``, else 1."""
    maker = maker_of(net, blob)
    options = None if maker is None else maker.definition.options
    return (options.axis or 1) if isinstance(options, SoftmaxOptions) else 1


def _as_wished(net: NetSpec, wish: TaskWish, candidates: Sequence[ChosenTask]) -> ChosenTask:
    """Return the result of the blobs in ``wish``; the candidates complete the wish."""
    for name in (*wish.outputs, *((wish.target,) if wish.target else ())):
        if name not in net.blob_shapes:
            msg = f'no blob "{name}" in net "{net.name}"; known: {", ".join(net.user_blobs)}'
            raise ConfigError(msg + did_you_mean(name, net.blob_shapes))
    if wish.target is not None and origins(net)[wish.target].is_learned:
        msg = f"target_blob={wish.target}: the net learns it; give a top of a data layer, or what is made of one"
        raise ConfigError(msg)
    matching = [
        task
        for task in candidates
        if wish.task in ("auto", task.task)
        and (not wish.outputs or set(wish.outputs) == set(task.outputs))
        and (wish.target is None or wish.outputs or wish.target == task.target)
    ]
    if matching:
        if wish.target is None:
            return matching[0]
        return _completed(net, replace(matching[0], target=wish.target))
    if wish.task == "auto" or not wish.outputs:
        shown_tasks = "; ".join(task.text() for task in candidates) or "nothing"
        option = f"output_blob={','.join(wish.outputs)}" if wish.outputs else f"target_blob={wish.target}"
        msg = (
            f"{option}: the net does not say what it is for (it shows: {shown_tasks}); "
            "give task, output_blob and target_blob"
        )
        raise ConfigError(msg)
    return _made_as_wished(net, wish.task, wish.outputs, wish.target or _unused_label(net))


def _made_as_wished(net: NetSpec, task: TaskName, outputs: tuple[str, ...], target: str | None) -> ChosenTask:
    """Return a result of blobs without a loss layer between."""
    read_by_sigmoid_loss = {
        user_name(net, layer.bottoms[0]) for layer in net.layers if layer.type == "SigmoidCrossEntropyLoss"
    }
    activation: Activation = "none"
    if task in ("classification", "segmentation") and not _is_made_by(net, outputs[0], "Softmax"):
        is_single = task == "segmentation" and net.blob_shapes[outputs[0]][1:2] == (1,)
        activation = "sigmoid" if is_single else "softmax"
    elif task == "multi_label" or outputs[0] in read_by_sigmoid_loss:
        activation = "sigmoid"
    if activation == "sigmoid" and _is_made_by(net, outputs[0], "Sigmoid"):
        activation = "none"
    axis = _softmax_axis(net, outputs[0])
    return _completed(net, ChosenTask(task, outputs, target, "the options", activation, class_axis=axis))


def _of_task(net: NetSpec, task: TaskName, candidates: Sequence[ChosenTask]) -> tuple[ChosenTask, ...]:
    chosen = [candidate for candidate in candidates if candidate.task == task]
    if chosen:
        return (chosen[0], *(candidate for candidate in candidates if candidate is not chosen[0]))
    alike = [
        candidate
        for candidate in candidates
        if len(candidate.outputs) == 1 and (task != "embedding" or candidate.target is None)
    ]
    if not alike:
        shown_tasks = "; ".join(candidate.text() for candidate in candidates) or "nothing"
        msg = f"task={task}: the net shows {shown_tasks}; name the blobs (output_blob, target_blob)"
        raise ConfigError(msg)
    return (_made_as_wished(net, task, alike[0].outputs, alike[0].target or _unused_label(net)),)


def _completed(net: NetSpec, chosen: ChosenTask) -> ChosenTask:
    """Return the result with what the net says of its blobs; errors as of ``_checked``."""
    full = net.blob_shapes[chosen.output]
    n_batch_axes = _n_batch_axes(net, full, chosen.class_axis)
    has_classes = len(full) >= _SIDES and chosen.task in ("classification", "multi_label", "segmentation")
    n_classes = full[chosen.class_axis] if has_classes else 0
    described = replace(
        chosen,
        is_target_fed=chosen.target in net.inputs,
        shape=full[n_batch_axes:],
        n_classes=2 if chosen.task == "segmentation" and n_classes == 1 else n_classes,
        n_batch_axes=n_batch_axes,
    )
    return _checked(net, described)


def _checked(net: NetSpec, chosen: ChosenTask) -> ChosenTask:
    """Return the result if the blobs' shapes fit the task.

    Raises:
        NetError: A shape does not fit the task.
    """
    where, full = chosen.found_by, net.blob_shapes[chosen.output]
    shapes = {name: net.blob_shapes[name] for name in chosen.outputs}
    if len(chosen.outputs) > (_SIDES if chosen.task == "embedding" else 1):
        allowed = "one blob, or the two sides of a pair" if chosen.task == "embedding" else "one blob"
        msg = f"{where}: output_blob has {len(chosen.outputs)} names; {chosen.task} needs {allowed}"
        raise NetError(msg)
    problem = ""
    if len(full) < _SIDES:
        problem = "allowed: (N, ...), an answer a sample"
    elif chosen.task in ("classification", "multi_label") and chosen.n_positions != 1:
        problem = f"allowed for {chosen.task}: (N, classes), one vector per sample"
    elif chosen.task == "segmentation" and chosen.n_positions == 1:
        problem = "allowed for segmentation: (N, classes, height, width), or (N, classes, time steps)"
    elif chosen.task == "embedding" and len({shape[1:] for shape in shapes.values()}) > 1:
        problem = "both sides must have the same shape"
    if problem:
        blob_shapes = " and ".join(f'"{name}" {shape}' for name, shape in shapes.items())
        msg = f"{where}: blob {blob_shapes}; {problem}"
        raise NetError(msg)
    if chosen.target is not None and not _target_fits(net, chosen, chosen.target):
        msg = (
            f'{where}: target "{chosen.target}" {net.blob_shapes[chosen.target]} does not fit "{chosen.output}" {full} '
            f"of a {chosen.kind}: {_FITTING[chosen.task]}"
        )
        raise NetError(msg)
    return chosen


_FITTING: Final[dict[TaskName, str]] = {
    "classification": "a whole number a sample is needed",
    "multi_label": "a 0 or 1 for each value is needed",
    "regression": "a number for each value is needed",
    "embedding": "one number is needed: the class of a sample, or of a pair 1 for similar and 0 for not",
    "reconstruction": "a number for each value is needed",
    "segmentation": "a whole number a pixel, or a time step, is needed",
}
assert set(_FITTING) == set(TASK_NAMES)


def _target_fits(net: NetSpec, chosen: ChosenTask, target: str) -> bool:
    n_numbers = {"classification": 1, "embedding": 1, "segmentation": chosen.n_positions}
    n_samples = prod(net.blob_shapes[chosen.output][: chosen.n_batch_axes])
    return prod(net.blob_shapes[target]) == n_samples * n_numbers.get(chosen.task, chosen.n_values)


def _ignored(layer: LayerSpec) -> int | None:
    """Return the ``ignore_label`` of a layer."""
    parameter = layer.message.accuracy_param if layer.type == "Accuracy" else layer.message.loss_param
    return parameter.ignore_label if parameter.HasField("ignore_label") else None


def _is_made_by(net: NetSpec, blob: str, layer_type: str) -> bool:
    maker = maker_of(net, blob)
    return maker is not None and maker.type == layer_type


def _unused_label(net: NetSpec) -> str | None:
    """Return the second top of the first data layer, the label in Caffe's data layers."""
    for layer in net.layers:
        if layer.definition.is_data:
            return layer.tops[1] if len(layer.tops) > 1 else None
    return None

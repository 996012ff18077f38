"""Model from elsewhere: a net's prototxt, a .caffemodel, and options for facts missing in a deploy net."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from caffe_import.data.transform import transform_options
from caffe_import.files.mean_file import read_mean
from caffe_import.files.prototxt import read_net
from caffe_import.net.batch_size import net_in_batches
from caffe_import.net.label_users import label_users
from caffe_import.net.layer_registry import Shape
from caffe_import.net.net_spec import NetSpec, build_net_spec
from caffe_import.net.phases import filter_layers
from caffe_import.proto import caffe_pb2
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.config.shared_options.bundle_formats import TFLITE_INT8
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.samples import Samples, scored_layers
from deepspark_ops.evaluate.tasks.choice import choose_task, task_wish
from deepspark_ops.evaluate.trained_net import load_params
from deepspark_ops.export.drawn_samples import DrawnInput, DrawnSamples
from deepspark_ops.export.manifest import Origin, file_digest
from deepspark_ops.export.model_parts import CheckSamples, ModelParts, class_names_of_file, code_version, first_samples
from deepspark_ops.processes.named_files import limit_named_files
from deepspark_ops.train.data.data_binding import FED_BY_COLUMN, READS_FILES, DataBinding
from deepspark_ops.train.data.sources import SourceResolver

_IMAGE_CHANNELS = (1, 3)


@contextmanager
def parts_of_files(config: ConvertConfig) -> Iterator[ModelParts]:
    """Open a net, its weights and the check's data; close the data at the end.

    Raises:
        ConfigError: A file is missing, or options that do not fit the net.
        DataError: The data are missing or damaged.
        CaffeImportError: Net, weights or sources that do not fit together.
    """
    for name in ("net", "weights", "class_names", "mean"):
        path: Path | None = getattr(config, name)
        if path is not None and not path.is_file():
            msg = f"{name}={path}: no such file"
            raise ConfigError(msg)
    binding = DataBinding(config.dataset, config.net.parent)
    try:
        with tempfile.TemporaryDirectory(prefix="deepspark-convert-") as lists:
            trusted_folders = (config.net.parent, config.dataset, config.mean and config.mean.parent)
            limit_named_files(config.named_files, trusted_folders, scratch=Path(lists))
            message = _resolved(config, Path(lists))
            net, samples = _bound(config, message, binding)
            wish = task_wish(config.task, config.output_blob, None)
            n_classes = choose_task(net, wish).n_classes
            params = load_params(net, config.weights)
            names = _class_names(config, samples, n_classes)
            origin = _origin(config)
            calibration = None
            if config.dataset is not None and TFLITE_INT8 in (config.formats or ()):
                calibration = first_samples(Samples(scored_layers(binding, net, "train")))
            yield ModelParts(
                message,
                net,
                params,
                config.weights,
                samples,
                names,
                origin,
                None,
                config.formats,
                calibration,
                wish,
                is_trained_on_samples=config.dataset is None,
            )
    finally:
        binding.close()


def _resolved(config: ConvertConfig, lists: Path) -> caffe_pb2.NetParameter:
    """Return the net of phase TEST with absolute sources and the asked preprocessing."""
    resolver = SourceResolver(config.dataset, config.net, lists)
    message = filter_layers(resolver.resolve(read_net(config.net)), phase="TEST")
    resolver.write_lists()
    images = [layer for layer in _fed(message) if layer.type in READS_FILES or _is_image(layer)]
    if not images and (config.mean is not None or config.mean_values or config.scale is not None):
        msg = (
            f"{config.net}: mean, mean_values and scale are for images, and no Input layer of the net takes any; "
            "allowed: a shape (N, 1, H, W) or (N, 3, H, W)"
        )
        raise ConfigError(msg)
    for layer in images:
        _set_transform(layer.transform_param, config)
    return message


def _fed(message: caffe_pb2.NetParameter) -> list[caffe_pb2.LayerParameter]:
    return [layer for layer in message.layer if layer.type in (*READS_FILES, *FED_BY_COLUMN)]


def _is_image(layer: caffe_pb2.LayerParameter) -> bool:
    shapes = [list(shape.dim) for shape in layer.input_param.shape]
    return len(shapes) > 0 and len(shapes[0]) == 4 and shapes[0][1] in _IMAGE_CHANNELS


def _set_transform(transform: caffe_pb2.TransformationParameter, config: ConvertConfig) -> None:
    """Let what the user gave take the place of what the net says."""
    if config.scale is not None:
        transform.scale = config.scale
    if config.mean is not None or config.mean_values:
        transform.ClearField("mean_file")
        del transform.mean_value[:]
    if config.mean is not None:
        transform.mean_file = str(config.mean)
    transform.mean_value.extend(config.channel_means)


def _bound(
    config: ConvertConfig, message: caffe_pb2.NetParameter, binding: DataBinding
) -> tuple[NetSpec, CheckSamples]:
    """Return the net, and the samples for its check.

    Raises:
        ConfigError: An image is smaller than the Input layer, or the crop is no square.
    """
    inputs = [layer for layer in message.layer if layer.type == "Input"]
    reads_files = any(layer.type in READS_FILES for layer in message.layer)
    if config.dataset is None and inputs and not reads_files:
        stored = None if config.mean is None else read_mean(config.mean).shape
        build = partial(build_net_spec, message, phase="TEST")
        classes = _classes_of_labels(net_in_batches(_fed(message), build, requested=None, default=config.check_samples))
        for layer in inputs:
            if classes.keys().isdisjoint(layer.top):
                _cut_to_input(layer, stored, f"mean={config.mean}")
        return build_net_spec(message, phase="TEST"), _drawn(inputs, config.net.parent, stored, classes)
    for layer in inputs:
        _cut_to_input(layer, binding.sample_shapes("TEST", layer)[0], f"dataset={config.dataset}")
    build = partial(build_net_spec, message, phase="TEST", sample_shapes=partial(binding.sample_shapes, "TEST"))
    net = net_in_batches(_fed(message), build, requested=None, default=config.check_samples)
    return net, Samples(scored_layers(binding, net, "test"))


def _cut_to_input(layer: caffe_pb2.LayerParameter, stored: Shape | None, name: str) -> None:
    """Crop images to the size of an Input layer, from the centre, as Caffe's data layers do with crop_size."""
    if stored is None or not _is_image(layer):
        return
    channels, height, width = list(layer.input_param.shape[0].dim)[1:]
    if stored == (channels, height, width):
        return
    if stored[0] != channels or height != width or stored[1] < height or stored[2] < width:
        msg = (
            f'{name}: its images have shape {stored}, layer "{layer.name}" takes {(channels, height, width)}; allowed: '
            "the same shape, or larger images and a square that is cut out of them"
        )
        raise ConfigError(msg)
    layer.transform_param.crop_size = height


def _classes_of_labels(net: NetSpec) -> Mapping[str, int]:
    """Return input -> number of classes (the smallest of several layers), for inputs that layers read as labels."""
    return {top: min(user.labels.n_classes for user in users) for top, users in label_users(net).items()}


def _drawn(
    inputs: list[caffe_pb2.LayerParameter], root: Path, mean: Shape | None, classes: Mapping[str, int]
) -> DrawnSamples:
    inputs_to_draw = []
    for layer in inputs:
        for position, (top, shape) in enumerate(zip(layer.top, layer.input_param.shape, strict=False)):
            is_image = position == 0 and _is_image(layer) and top not in classes
            transform = transform_options(layer.transform_param, root=root, layer=layer.name) if is_image else None
            extents = tuple(shape.dim)
            stored = mean if mean is not None and is_image else extents[1:]
            inputs_to_draw.append(DrawnInput({top: extents}, stored, transform, classes.get(top)))
    return DrawnSamples(tuple(inputs_to_draw))


def _class_names(config: ConvertConfig, samples: CheckSamples, n_classes: int) -> tuple[str, ...]:
    if config.class_names is None:
        return samples.class_names if isinstance(samples, Samples) else ()
    return class_names_of_file(config.class_names, n_classes)


def _origin(config: ConvertConfig) -> Origin:
    return Origin(
        run=config.weights.name,
        iteration=None,
        weights=config.weights.name,
        weights_digest=file_digest(config.weights),
        net_digest=file_digest(config.net),
        solver_digest=None,
        config_digest=None,
        datasets={},
        started_from=None,
        started_from_digest=None,
        split_rule=None,
        code_version=code_version(),
    )

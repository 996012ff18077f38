"""Shape of a data layer's batch, from the shapes of the source's samples and the crop."""

from __future__ import annotations

from caffe_import.net.layer_registry import LayerRequest, Shape
from caffe_import.net.shapes.axes import shape_text


def shapes_of_samples(request: LayerRequest) -> tuple[Shape, ...]:
    """Return the shape of one sample for each top, without the batch axis, before any crop.

    Raises:
        NetError: The shape of the samples is not known, or the source has another number of tops.
    """
    if request.sample_shapes is None:
        finding = "the shape of its samples is not known: open its source, or replace it by an Input layer"
        raise request.refuse(finding)
    samples = request.sample_shapes(request.message)
    n_tops = len(request.message.top)
    if len(samples) < n_tops:
        finding = f"has {n_tops} tops, its source holds {len(samples)} values per sample"
        raise request.refuse(finding)
    return samples[:n_tops]


def cropped(request: LayerRequest, samples: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """Return the samples' shapes after ``transform_param.crop_size``, which cuts the first top (C, H, W) to a square.

    Source: BVLC Caffe, src/caffe/data_transformer.cpp, DataTransformer::InferBlobShape.

    Raises:
        NetError: The image is smaller than the crop.
    """
    crop_size = request.message.transform_param.crop_size
    if crop_size == 0:
        return samples
    image = samples[0]
    if len(image) != 3 or min(image[1:]) < crop_size:
        finding = f"crop_size={crop_size} does not fit into samples of shape {shape_text(image)} (C, H, W)"
        raise request.refuse(finding)
    return ((image[0], crop_size, crop_size), *samples[1:])


def batch_of(batch_size: int, samples: tuple[Shape, ...]) -> tuple[Shape, ...]:
    """Return the tops' shapes: the batch axis, then the sample.

    Example:
        >>> batch_of(64, ((3, 32, 32), ()))
        ((64, 3, 32, 32), (64,))
    """
    return tuple((batch_size, *sample) for sample in samples)


def require_batch_size(request: LayerRequest, batch_size: int, *, option: str) -> int:
    """Return ``batch_size``.

    Raises:
        NetError: It is 0, which is also what a missing field reads as; or the layer has the options of a data layer of
            another type, which Caffe ignores, and no batch size among its own options.
    """
    own_options, _, field_name = option.partition(".")
    messages = {field.name: value for field, value in request.message.ListFields() if field.name.endswith("data_param")}
    own_message = messages.pop(own_options, None)
    if messages and (own_message is None or not own_message.HasField(field_name)):
        finding = (
            f"has {min(messages)} and no {option}; {request.message.type} reads {own_options} alone: "
            "move the fields there, or correct the type"
        )
        raise request.refuse(finding)
    if batch_size < 1:
        finding = f"{option}={batch_size}: must be at least 1"
        raise request.refuse(finding)
    return batch_size

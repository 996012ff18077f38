"""InnerProduct: a fully connected layer. Source: BVLC Caffe, src/caffe/layers/inner_product_layer.cpp."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from caffe_import.net.layer_registry import BlobSpec, LayerDefinition, LayerRequest, layer_type
from caffe_import.net.layer_traits import LayerTraits
from caffe_import.net.shapes.axes import canonical_axis


@dataclass(frozen=True)
class InnerProductOptions:
    """Resolved options.

    Attributes:
        axis: First axis of the bottom that is flattened into the product; axes before it are kept.
        n_outputs: Values per product.
        is_transposed: Weights are stored (in, out) instead of (out, in).
        has_bias: Is there a second blob, one value per output?
    """

    axis: int
    n_outputs: int
    is_transposed: bool
    has_bias: bool


@layer_type(
    "InnerProduct",
    bottoms=(1, 1),
    tops=(1, 1),
    traits=LayerTraits(arithmetic="16 bit", axis_order="caffe", gradient_keeps="bottoms", reads_overwritten=False),
)
def define_inner_product(request: LayerRequest) -> LayerDefinition:
    """Top: (axes before ``axis``, num_output)."""
    param = request.message.inner_product_param
    shape = request.bottom_shapes[0]
    axis = canonical_axis(request, param.axis, len(shape), option="inner_product_param.axis")
    if param.num_output < 1:
        finding = f"inner_product_param.num_output={param.num_output}: must be at least 1"
        raise request.refuse(finding)
    n_inputs = prod(shape[axis:])
    weights = (n_inputs, param.num_output) if param.transpose else (param.num_output, n_inputs)
    blobs = [BlobSpec(weights, param.weight_filler)]
    if param.bias_term:
        blobs.append(BlobSpec((param.num_output,), param.bias_filler))
    notes: tuple[str, ...] = ()
    if param.transpose:
        notes = ("transpose: fillers take fan_in = count / shape(0), which here is the number of outputs",)
    return LayerDefinition(
        top_shapes=((*shape[:axis], param.num_output),),
        blobs=tuple(blobs),
        options=InnerProductOptions(axis, param.num_output, param.transpose, param.bias_term),
        flops=2 * prod(shape) * param.num_output,
        notes=notes,
        gradient_reads_bottoms=True,
    )

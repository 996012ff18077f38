"""Python: a layer whose code the net does not hold. Source: BVLC Caffe, include/caffe/layers/python_layer.hpp."""

from __future__ import annotations

from caffe_import.layer_registry import LayerDefinition, LayerRequest, layer_type


@layer_type("Python", bottoms=(0, None), tops=(0, None))
def define_python(request: LayerRequest) -> LayerDefinition:
    """Refuse, with the way out: a class written for pycaffe cannot become part of a graph.

    Raises:
        NetError: Always.
    """
    param = request.message.python_param
    finding = (
        f'runs class "{param.layer}" of module "{param.module}" in Caffe\'s process, which has no form as a graph; '
        "replace it by built-in layers, or register a layer type and an emitter of its own "
        "(caffe_import.layer_registry, caffe_import.tf_graph.emitters)"
    )
    raise request.refuse(finding)

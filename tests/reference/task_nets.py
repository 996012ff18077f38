"""Nets of a few layers, at least one per task of evaluation, with training targets."""

from functools import partial

from tests.reference.layer_text import inner_product, input_layer, loss_layer

FILLERS = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -0.3 max: 0.3 }'
product = partial(inner_product, more=FILLERS)


SIGMOIDS = product("tags", "data", 3) + loss_layer(
    "SigmoidCrossEntropyLoss", "tags", "truth", name="SigmoidCrossEntropyLoss_tags"
)
NUMBERS = product("price", "data", 2) + loss_layer("EuclideanLoss", "price", "paid", name="EuclideanLoss_price")
PIXELS = (
    f'layer {{ name: "score" type: "Convolution" bottom: "data" top: "score" '
    f"convolution_param {{ num_output: 3 kernel_size: 3 pad: 1 {FILLERS} }} }}\n"
    + loss_layer("SoftmaxWithLoss", "score", "mask", name="SoftmaxWithLoss_score")
)
CLASSES = product("fc", "data", 4) + loss_layer(
    "SoftmaxWithLoss", "fc", "label", name="SoftmaxWithLoss_fc", options="loss_weight: 3"
)
OWN_INPUT = (
    product("code", "data", 2)
    + product("flat", "code", 48)
    + 'layer { name: "again" type: "Reshape" bottom: "flat" top: "again" '
    + "reshape_param { shape { dim: 0 dim: 3 dim: 4 dim: 4 } } }\n"
    + loss_layer("EuclideanLoss", "again", "data", name="EuclideanLoss_again")
)


def net_text(text):
    return f'name: "n"\n{input_layer("data", 3, 4, 4)}{text}'


PAIR = (
    'name: "pair"\n'
    + input_layer("pair_data", 2, 3, 3)
    + input_layer("sim")
    + 'layer { name: "part" type: "Slice" bottom: "pair_data" top: "data" top: "data_p" '
    + "slice_param { slice_point: 1 } }\n"
    + product("feat", "data", 2, options='param { name: "w" } param { name: "b" }')
    + product("feat_p", "data_p", 2, options='param { name: "w" } param { name: "b" }')
    + loss_layer("ContrastiveLoss", "feat", "feat_p", "sim", name="ContrastiveLoss_feat")
)


TASK_NETS = {
    "classification": net_text(input_layer("label") + CLASSES),
    "multi_label": net_text(input_layer("truth", 3) + SIGMOIDS),
    "regression": net_text(input_layer("paid", 2) + NUMBERS),
    "embedding": PAIR,
    "reconstruction": net_text(OWN_INPUT),
    "segmentation": net_text(input_layer("mask", 1, 4, 4) + PIXELS),
}
"""Task -> a net whose main result is of this task."""
SEVERAL_RESULTS = net_text(
    input_layer("truth", 3) + input_layer("paid", 2) + input_layer("label") + SIGMOIDS + CLASSES + NUMBERS
)
"""A classification, and beside it a regression and labels of yes or no."""

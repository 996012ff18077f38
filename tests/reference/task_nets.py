"""Nets of a few layers, at least one of every task that evaluation knows, with the targets that they are trained on."""

FILLERS = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -0.3 max: 0.3 }'


def given(name, *shape):
    dims = " ".join(f"dim: {extent}" for extent in (1, *shape))
    return f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}\n'


def product(name, bottom, n, share=""):
    return (
        f'layer {{ name: "{name}" type: "InnerProduct" bottom: "{bottom}" top: "{name}" {share} '
        f"inner_product_param {{ num_output: {n} {FILLERS} }} }}\n"
    )


def loss(kind, *bottoms, weight=1):
    read = " ".join(f'bottom: "{bottom}"' for bottom in bottoms)
    name = f"{kind}_{bottoms[0]}"
    return f'layer {{ name: "{name}" type: "{kind}" {read} top: "{name}" loss_weight: {weight} }}\n'


SIGMOIDS = product("tags", "data", 3) + loss("SigmoidCrossEntropyLoss", "tags", "truth")
NUMBERS = product("price", "data", 2) + loss("EuclideanLoss", "price", "paid")
PIXELS = (
    f'layer {{ name: "score" type: "Convolution" bottom: "data" top: "score" '
    f"convolution_param {{ num_output: 3 kernel_size: 3 pad: 1 {FILLERS} }} }}\n"
    + loss("SoftmaxWithLoss", "score", "mask")
)
CLASSES = product("fc", "data", 4) + loss("SoftmaxWithLoss", "fc", "label", weight=3)
OWN_INPUT = (
    product("code", "data", 2)
    + product("flat", "code", 48)
    + 'layer { name: "again" type: "Reshape" bottom: "flat" top: "again" '
    + "reshape_param { shape { dim: 0 dim: 3 dim: 4 dim: 4 } } }\n"
    + loss("EuclideanLoss", "again", "data")
)


def net_of(text):
    return f'name: "n"\n{given("data", 3, 4, 4)}{text}'


PAIR = (
    'name: "pair"\n'
    + given("pair_data", 2, 3, 3)
    + given("sim")
    + 'layer { name: "part" type: "Slice" bottom: "pair_data" top: "data" top: "data_p" '
    + "slice_param { slice_point: 1 } }\n"
    + product("feat", "data", 2, 'param { name: "w" } param { name: "b" }')
    + product("feat_p", "data_p", 2, 'param { name: "w" } param { name: "b" }')
    + loss("ContrastiveLoss", "feat", "feat_p", "sim")
)


TASK_NETS = {
    "classification": net_of(given("label") + CLASSES),
    "multi_label": net_of(given("truth", 3) + SIGMOIDS),
    "regression": net_of(given("paid", 2) + NUMBERS),
    "embedding": PAIR,
    "reconstruction": net_of(OWN_INPUT),
    "segmentation": net_of(given("mask", 1, 4, 4) + PIXELS),
}
"""Task -> a net whose main result is of this task."""
SEVERAL_RESULTS = net_of(given("truth", 3) + given("paid", 2) + given("label") + SIGMOIDS + CLASSES + NUMBERS)
"""A classification, and beside it a regression and labels of yes or no."""

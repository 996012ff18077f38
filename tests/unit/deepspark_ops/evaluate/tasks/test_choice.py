import pytest

from caffe_import.errors import NetError
from caffe_import.files.prototxt import parse_net
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.errors import ConfigError
from deepspark_ops.evaluate.tasks.answers import require_target
from deepspark_ops.evaluate.tasks.choice import ChosenTask, TaskWish, choose_task, choose_tasks, task_wish
from deepspark_ops.evaluate.tasks.registry import kind_of
from tests.reference.layer_text import inner_product, loss_layer

DATA = 'name: "n" layer { name: "data" type: "Data" top: "data" top: "label" data_param { source: "x" batch_size: 4 } }'
FLAT = 'layer { name: "flat" type: "Flatten" bottom: "data" top: "flat" }'
PROB = 'layer { name: "prob" type: "Softmax" bottom: "ip" top: "prob" }'
PRODUCT = inner_product("ip", "data", 7)
LOSS = loss_layer("SoftmaxWithLoss", "ip", "label")
PER_PIXEL = (
    'layer { name: "ip" type: "Convolution" bottom: "data" top: "ip" '
    "convolution_param { num_output: 7 kernel_size: 1 } }"
)


def net_with_data(*layers, sample=(1, 2, 3), label=()):
    def shapes(layer):
        return (sample, *[label] * (len(layer.top) - 1))

    return build_net_spec(parse_net(DATA + "".join(layers)), phase="TEST", sample_shapes=shapes)


def choose(*layers, wish=None, **shapes):
    return choose_tasks(net_with_data(*layers, **shapes), wish or TaskWish())


@pytest.mark.parametrize(
    ("kind", "activation"),
    [
        ("SoftmaxWithLoss", "softmax"),
        ("HingeLoss", "softmax"),
        ("MultinomialLogisticLoss", "none"),
        ("Accuracy", "softmax"),
    ],
)
def test_layers_that_read_class_labels_tell_a_classification(kind, activation):
    (chosen,) = choose(PRODUCT, loss_layer(kind, "ip", "label"))
    assert (chosen.task, chosen.outputs, chosen.target, chosen.n_classes) == ("classification", ("ip",), "label", 7)
    assert (chosen.activation, chosen.is_target_fed) == (activation, True)
    assert chosen.found_by == f'layer "loss" ({kind})'


def test_splits_are_looked_through_and_accuracy_beside_the_loss_is_no_second_result():
    (chosen,) = choose(PRODUCT, loss_layer("Accuracy", "ip", "label", name="acc"), LOSS)
    assert (chosen.output, chosen.found_by) == ("ip", 'layer "loss" (SoftmaxWithLoss)')


def test_an_accuracy_beside_another_loss_makes_it_a_classification():
    (chosen,) = choose(
        inner_product("ip", "data", 1),
        loss_layer("EuclideanLoss", "ip", "label"),
        loss_layer("Accuracy", "ip", "label", name="acc"),
    )
    assert chosen.task == "classification"


def test_accuracies_of_several_targets_are_results_where_the_losses_are_for_training_alone():
    slices = 'layer { name: "s" type: "Slice" bottom: "label" top: "kind" top: "make" slice_param { slice_dim: 1 } }'
    chosen = choose(
        slices,
        PRODUCT,
        inner_product("ip2", "data", 3),
        loss_layer("Accuracy", "ip", "kind", name="kind_1", options="accuracy_param { top_k: 1 }"),
        loss_layer("Accuracy", "ip", "kind", name="kind_5", options="accuracy_param { top_k: 5 }"),
        loss_layer("Accuracy", "ip2", "make", name="make_1"),
        label=(2,),
    )
    assert [(task.output, task.target, task.n_classes) for task in chosen] == [("ip2", "make", 3), ("ip", "kind", 7)]


def test_probabilities_are_seen():
    (chosen,) = choose(PRODUCT, PROB, loss_layer("Accuracy", "prob", "label"))
    assert (chosen.output, chosen.activation) == ("prob", "none")


def test_a_net_that_ends_in_softmax():
    (chosen,) = choose(PRODUCT, PROB)
    assert (chosen.task, chosen.output, chosen.activation, chosen.target) == ("classification", "prob", "none", "label")


def test_a_class_a_pixel_is_a_segmentation():
    (chosen,) = choose(
        PER_PIXEL,
        loss_layer("SoftmaxWithLoss", "ip", "label", options="loss_param { ignore_label: 255 }"),
        label=(1, 2, 3),
    )
    assert (chosen.task, chosen.n_classes, chosen.shape, chosen.ignore_label) == ("segmentation", 7, (7, 2, 3), 255)


def test_a_class_a_time_step_is_named_so_and_still_scored_as_a_segmentation():
    per_step = inner_product("ip", "data", 7).replace("num_output", "axis: 2 num_output")
    loss = loss_layer("SoftmaxWithLoss", "ip", "label", options="softmax_param { axis: 2 }")
    (chosen,) = choose(per_step, loss, sample=(5, 3), label=(5,))
    assert (chosen.task, chosen.kind, kind_of(chosen).figures) == (
        "segmentation", "sequence labelling", "time steps right, mean IoU",
    )  # fmt: skip
    assert chosen.text().startswith('sequence labelling of blob "ip" through a softmax')


def test_one_yes_or_no_a_pixel_is_a_segmentation_of_two_classes():
    (chosen,) = choose(
        PER_PIXEL.replace("7", "1"), loss_layer("SigmoidCrossEntropyLoss", "ip", "label"), label=(1, 2, 3)
    )
    assert (chosen.task, chosen.n_classes, chosen.activation) == ("segmentation", 2, "sigmoid")


def test_sigmoids_against_labels_are_several_labels():
    (chosen,) = choose(inner_product("ip", "data", 5), loss_layer("SigmoidCrossEntropyLoss", "ip", "label"), label=(5,))
    assert (chosen.task, chosen.n_classes, chosen.activation, chosen.target) == ("multi_label", 5, "sigmoid", "label")


def test_numbers_against_labels_in_either_order_are_a_regression():
    for bottoms in (("ip", "label"), ("label", "ip")):
        (chosen,) = choose(inner_product("ip", "data", 2), loss_layer("EuclideanLoss", *bottoms), label=(2,))
        assert (chosen.task, chosen.output, chosen.target, chosen.activation) == ("regression", "ip", "label", "none")


def test_a_part_of_the_label_that_the_net_reads_makes_no_reconstruction_of_the_other_part():
    slices = 'layer { name: "s" type: "Slice" bottom: "label" top: "gaze" top: "pose" slice_param { slice_point: 2 } }'
    joined = 'layer { name: "cat" type: "Concat" bottom: "flat" bottom: "pose" top: "cat" }'
    loss = loss_layer("EuclideanLoss", "ip", "gaze")
    (chosen,) = choose(slices, FLAT, joined, inner_product("ip", "cat", 2), loss, label=(4,))
    assert (chosen.task, chosen.output, chosen.target) == ("regression", "ip", "gaze")
    product_of_label = inner_product("ip", "label", 2)
    (chosen,) = choose(slices, product_of_label, loss, label=(4,))
    assert chosen.task == "reconstruction"


def test_caffes_autoencoder_reconstructs_its_input_and_is_one_result():
    sigmoid = 'layer { name: "sig" type: "Sigmoid" bottom: "ip" top: "sig" }'
    parts = (
        FLAT, inner_product("ip", "data", 6),
        loss_layer("SigmoidCrossEntropyLoss", "ip", "flat", options="loss_weight: 1"),
        sigmoid, loss_layer("EuclideanLoss", "sig", "flat", name="l2", options="loss_weight: 0"),
    )  # fmt: skip
    (chosen,) = choose(*parts)
    assert (chosen.task, chosen.output, chosen.activation) == ("reconstruction", "ip", "sigmoid")
    assert (chosen.target, chosen.is_target_fed) == ("flat", False)


def test_the_sides_of_a_pair_are_an_embedding():
    slices = 'layer { name: "s" type: "Slice" bottom: "data" top: "a" top: "b" slice_param { slice_dim: 1 } }'
    pair = loss_layer("ContrastiveLoss", "fa", "fb", "label", options="contrastive_loss_param { margin: 2 }")
    (chosen,) = choose(slices, inner_product("fa", "a", 2), inner_product("fb", "b", 2), pair, sample=(2, 3, 3))
    assert (chosen.task, chosen.outputs, chosen.target, chosen.margin) == ("embedding", ("fa", "fb"), "label", 2.0)


def shared(top, bottom, name="w"):
    layer = inner_product(top, bottom, 2)
    return layer[: layer.rindex("}")] + f'param {{ name: "{name}" }} param {{ name: "{name}_b" }} }}'


@pytest.mark.parametrize(("second", "task"), [("w", "embedding"), ("v", "regression")])
def test_two_ends_made_by_the_same_weights_are_a_pair_without_a_loss(second, task):
    slices = 'layer { name: "s" type: "Slice" bottom: "data" top: "a" top: "b" slice_param { slice_dim: 1 } }'
    (chosen,) = choose(slices, shared("fa", "a"), shared("fb", "b", second), sample=(2, 3, 3))
    assert chosen.task == task
    if task == "embedding":
        assert (chosen.outputs, chosen.target, chosen.is_target_fed) == (("fa", "fb"), "label", True)
        assert 'decided by outputs "fa" and "fb", made by the same weights' in chosen.text()
        (no_label,) = choose(slices, shared("fa", "a"), shared("fb", "b"), sample=(2, 3, 3), label=(4,))
        with pytest.raises(NetError, match=r"no similarities .*, so blob 'fa' and 'fb' cannot be scored"):
            require_target(no_label)


def test_vectors_without_a_loss_are_refused_with_the_tasks_that_score_vectors():
    (chosen,) = choose(PRODUCT)
    with pytest.raises(NetError, match=r"If 'ip' has 7 scores of classes, give task=classification; .*task=embedding"):
        require_target(chosen)
    for task in ("classification", "embedding"):
        (chosen,) = choose(PRODUCT, wish=TaskWish(task))
        assert (chosen.task, chosen.outputs, require_target(chosen)) == (task, ("ip",), "label")


def test_of_losses_against_one_target_the_heaviest_stands_for_all_and_of_equal_ones_the_last():
    help_in_training = loss_layer("SoftmaxWithLoss", "ip2", "label", name="aux", options="loss_weight: 0.3")
    assert [result.output for result in choose(PRODUCT, inner_product("ip2", "data", 7), LOSS, help_in_training)] == [
        "ip"
    ]
    assert [
        result.output
        for result in choose(
            PRODUCT, inner_product("ip2", "data", 7), LOSS, loss_layer("SoftmaxWithLoss", "ip2", "label", name="b")
        )
    ] == ["ip2"]


def columns(*weights):
    """Return a net whose two labels are a class and a number, each with a loss of its own."""
    slices = 'layer { name: "s" type: "Slice" bottom: "label" top: "kind" top: "age" slice_param { slice_dim: 1 } }'
    return (
        slices, PRODUCT, inner_product("years", "data", 1),
        loss_layer("SoftmaxWithLoss", "ip", "kind", options=f"loss_weight: {weights[0]}"),
        loss_layer("EuclideanLoss", "years", "age", name="l2", options=f"loss_weight: {weights[1]}"),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("weights", "tasks"),
    [
        ((1, 0.5), ["classification", "regression"]),
        ((1, 1), ["classification", "regression"]),
        ((1, 3), ["regression", "classification"]),
        ((0, 1), ["regression"]),
    ],
)
def test_several_labels_are_several_results_the_heaviest_first(weights, tasks):
    chosen = choose(*columns(*weights), label=(2,))
    assert [result.task for result in chosen[: len(tasks)]] == tasks
    assert {result.target for result in chosen} <= {"kind", "age"}


def test_a_loss_of_no_weight_counts_only_where_there_is_no_other():
    assert [
        result.task
        for result in choose(
            inner_product("ip", "data", 1), loss_layer("EuclideanLoss", "ip", "label", options="loss_weight: 0")
        )
    ] == ["regression"]


def test_a_deploy_net_shows_its_end_with_nothing_to_compare_with():
    (chosen,) = choose(inner_product("ip", "data", 3))
    assert (chosen.task, chosen.output, chosen.target) == ("regression", "ip", None)


def test_labels_cropped_to_the_scores_are_not_computed_by_the_net():
    (chosen,) = choose(
        'layer { name: "c" type: "Convolution" bottom: "data" top: "c"'
        " convolution_param { num_output: 2 kernel_size: 2 } }",
        'layer { name: "cut" type: "Crop" bottom: "label" bottom: "c" top: "cut" crop_param { axis: 2 } }',
        loss_layer("SoftmaxWithLoss", "c", "cut"),
        label=(1, 3, 3),
    )
    assert (chosen.task, chosen.target, chosen.is_target_fed) == ("segmentation", "cut", False)


def test_labels_that_the_net_computes_are_refused():
    with pytest.raises(NetError, match=r'its labels "guess" are computed by the net; allowed: a top of a data layer$'):
        choose(
            PRODUCT,
            'layer { name: "am" type: "ArgMax" bottom: "ip" top: "guess" }',
            loss_layer("SoftmaxWithLoss", "ip", "guess"),
        )


def test_a_net_of_data_alone_shows_nothing():
    with pytest.raises(NetError, match=r"shows no result, its outputs are .*; needed: a loss layer"):
        choose(FLAT)


def test_the_task_of_the_user_reads_the_same_blobs_another_way():
    (chosen,) = choose(
        FLAT, inner_product("ip", "data", 6), loss_layer("EuclideanLoss", "ip", "flat"), wish=TaskWish("regression")
    )
    assert (chosen.task, chosen.output, chosen.target) == ("regression", "ip", "flat")
    with pytest.raises(ConfigError, match=r"^task=embedding: the net shows classification of blob"):
        choose(PRODUCT, LOSS, wish=TaskWish("embedding"))


def test_the_task_of_the_user_comes_first_among_several():
    assert [result.task for result in choose(*columns(1, 1), label=(2,), wish=TaskWish("regression"))] == [
        "regression",
        "classification",
    ]


def test_blobs_of_the_user():
    wish = task_wish("regression", " ip , ", "label")
    assert wish == TaskWish("regression", ("ip",), "label")
    (chosen,) = choose(inner_product("ip", "data", 1), LOSS, wish=wish)
    assert (chosen.task, chosen.output, chosen.target, chosen.found_by) == ("regression", "ip", "label", "the options")
    (chosen,) = choose(*columns(1, 1), label=(2,), wish=task_wish("auto", "years", None))
    assert (chosen.task, chosen.target) == ("regression", "age")


@pytest.mark.parametrize(
    ("wish", "finding"),
    [
        (TaskWish(outputs=("iq",)), r'no blob "iq" in net "n"; known: data, label, ip, loss'),
        (TaskWish(outputs=("data",)), r"output_blob=data: the net does not say what it is for"),
        (TaskWish("regression", ("ip",), "ip"), r"target_blob=ip: the net learns it"),
        (
            TaskWish("embedding", ("ip", "data", "label")),
            r"output_blob has 3 names; embedding needs one blob, or the two",
        ),
        (TaskWish("regression", ("ip",), "data"), r'target "data" \(4, 1, 2, 3\) does not fit "ip" \(4, 7\)'),
        (TaskWish("segmentation", ("ip",), "label"), r"allowed for segmentation: \(N, classes, height, width\)"),
    ],
)
def test_a_wish_that_does_not_fit_is_refused_with_what_does(wish, finding):
    with pytest.raises((ConfigError, NetError), match=finding):
        choose(PRODUCT, LOSS, wish=wish)


def test_any_blob_may_be_compared_as_vectors_by_the_classes_of_neighbours():
    (chosen,) = choose(PRODUCT, LOSS, wish=task_wish("embedding", "ip", "label"))
    assert (chosen.task, chosen.outputs, chosen.target, chosen.activation) == ("embedding", ("ip",), "label", "none")


def test_the_choice_in_words():
    assert choose_task(net_with_data(PRODUCT, LOSS)).text() == (
        'classification of blob "ip" through a softmax, target "label"; decided by layer "loss" (SoftmaxWithLoss)'
    )


@pytest.mark.parametrize(("task", "expected"), [("classification", "labels"), ("regression", "expected answers")])
def test_a_result_without_a_target_names_its_blob_and_the_remedy(task, expected):
    chosen = ChosenTask(task, ("ip",), None, "the options")
    message = (
        f"the options: the net has no {expected}, so blob 'ip' cannot be scored; the data layer needs a second top "
        f"with the {expected}, or the option target_blob names a blob with the {expected}"
    )
    with pytest.raises(NetError, match=f"^{message}$"):
        require_target(chosen)

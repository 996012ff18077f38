"""Saliency maps of a classification's worst mistakes for the report: why the net predicts the wrong class."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from caffe_import.errors import NetError
from caffe_import.net.layer_registry import Shape
from caffe_import.net.reshaped_net import reshaped
from caffe_import.tf_graph.score_gradients import ScoreGradientFunction
from deepspark_ops.config.shared_options.saliency import DEFAULT_SQUARES
from deepspark_ops.evaluate.saliency.maps import (
    Map,
    grad_cam,
    gradient_times_input,
    occluded,
    occlusion_map,
    overlay,
    squares_on,
)
from deepspark_ops.evaluate.scores import Mistake
from deepspark_ops.evaluate.task_pages.examples import Example
from deepspark_ops.evaluate.tasks.choice import ChosenTask
from deepspark_ops.evaluate.trained_net import TrainedNet
from deepspark_ops.shards.thumbnail import to_picture

Array = npt.NDArray[Any]
Feeds = Mapping[str, npt.NDArray[np.float32]]


def mistake_maps(
    trained: TrainedNet,
    chosen: ChosenTask,
    answers: Callable[[Feeds], Mapping[str, Array]],
    mistakes: Sequence[Mistake],
) -> list[Example]:
    """Return the maps of each mistake as pictures beside the picture; empty if the samples are no pictures.

    Gradients are of a net of batch size 1: the activations of a whole batch may not fit into memory.

    Raises:
        DataError: A shard is missing or damaged.
    """
    source = next(iter(trained.samples.layers[0].tops))
    if not mistakes or to_picture(trained.samples.read(mistakes[0].index, 1).feeds[source][0]) is None:
        return []
    try:
        net = trained.with_batch_size(1)
    except NetError:  # the net computes several samples together, and an answer has no pixels of its own
        return []
    gradients_of: dict[Shape, ScoreGradientFunction] = {}
    examples = []
    for mistake in mistakes:
        feeds = trained.samples.read(mistake.index, 1).feeds
        single = {name: values[:1] for name, values in feeds.items()}
        shape = single[source].shape
        if shape not in gradients_of:
            sized_net = reshaped(net, {name: values.shape for name, values in single.items()})
            gradients_of[shape] = ScoreGradientFunction(sized_net, source=source, result=chosen.output)
        computed = gradients_of[shape](trained.params, single, np.array([mistake.predicted]))
        maps = {"gradient times input": gradient_times_input(computed.source[0], single[source][0])}
        if computed.feature_maps is not None and computed.feature_gradients is not None:
            maps["Grad-CAM"] = grad_cam(computed.feature_maps[0], computed.feature_gradients[0])
        maps["occlusion"] = _occlusion(answers, chosen, feeds, source, mistake)
        picture = to_picture(single[source][0])
        assert picture is not None  # as the first picture
        drawn = [(name, overlay(picture, saliency)) for name, saliency in maps.items()]
        examples.append(Example(mistake.index, (), np.zeros(0), (("sample", picture), *drawn)))
    return examples


def _occlusion(
    answers: Callable[[Feeds], Mapping[str, Array]],
    chosen: ChosenTask,
    feeds: Feeds,
    source: str,
    mistake: Mistake,
) -> Map:
    """Return the fall of the predicted class's probability under squares on the net's input."""
    batch_size, _, height, width = feeds[source].shape
    squares = squares_on(0, 0, height, width, across=DEFAULT_SQUARES)
    scores: list[float] = []
    for copies in occluded(feeds[source][0], squares, at_once=batch_size):
        filled = np.concatenate([copies, np.repeat(copies[-1:], batch_size - len(copies), axis=0)])
        probabilities = answers({**feeds, source: filled})[chosen.output]
        scores += probabilities[: len(copies), mistake.predicted].tolist()
    return occlusion_map(mistake.probability, scores, squares, (height, width))

"""Small nets on their way into a bundle, as a format's ``write`` gets them."""

from __future__ import annotations

from functools import cache

import numpy as np

from caffe_import.data.transform import TransformOptions
from caffe_import.files.prototxt import parse_net
from caffe_import.net.fillers import initial_vector
from caffe_import.tf_graph.predict import compile_forward
from deepspark_ops.evaluate.score_blob import find_score_blob
from deepspark_ops.export.convert.drawn_samples import DrawnInput, DrawnSamples
from deepspark_ops.export.deploy_net import build_deploy_net
from deepspark_ops.export.formats.caffe import build_deploy
from deepspark_ops.export.formats.exported_model import ExportedModel
from deepspark_ops.export.served_input import find_served_inputs
from deepspark_ops.export.tf_saved_model import ServedModel


def params_of(net, seed=0):
    """Return parameters of which none is at rest: statistics are positive and counted for 1.5 batches."""
    vector = initial_vector(net, seed)
    rng = np.random.default_rng(seed)
    for entry in net.params.entries:
        if entry.kind == "statistic":
            values = rng.uniform(0.5, 1.5, entry.size) if entry.size > 1 else np.full(1, 1.5)
            vector[entry.offset : entry.stop] = values
    return vector


def exported_model(text, folder, n_samples=5, transform=None, stored=None):
    """Return a deploy net with parameters and drawn samples, and what the importer's graph gives for them.

    Args:
        text: Prototxt; its one input is "data", its probabilities are "prob".
        folder: Where a format writes.
        n_samples: Samples.
        transform: Of its images; default: none is done.
        stored: Shape of a stored sample; default: what the net takes.
    """
    message = parse_net(text)
    (shape,) = (layer.input_param.shape[0].dim for layer in message.layer if layer.type == "Input")
    net = build_deploy(message, n_samples)
    is_image = len(shape) == 4 and shape[1] in (1, 3)
    transform = transform or (TransformOptions(scale=1 / 64, mean_values=(100.0,)) if is_image else None)
    drawn = DrawnInput({"data": (n_samples, *shape[1:])}, stored or tuple(shape[1:]), transform)
    samples = DrawnSamples((drawn,))
    scores = find_score_blob(net)
    deploy, probability = build_deploy_net(message, net, scores, {"data"})
    params = params_of(net)
    batch = samples.read(0, n_samples)
    inputs = find_served_inputs(samples, ["data"])

    def build(batch_size):
        return build_deploy(deploy, batch_size)

    @cache
    def served():
        return ServedModel(build, params, inputs, probability, trial=batch.feeds)

    expected = compile_forward(net, n_threads=1, outputs=(probability,))(params, batch.feeds)[probability]
    model = ExportedModel(
        folder=folder,
        deploy=deploy,
        build=build,
        params=params,
        inputs=inputs,
        probability=probability,
        n_classes=scores.n_classes,
        batch=batch,
        n_threads=1,
        served=served,
    )
    return model, expected.reshape(n_samples, -1)

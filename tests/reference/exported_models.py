"""Small nets on the way into a bundle, as input of a format's ``write``."""

from __future__ import annotations

from functools import cache

import numpy as np

from caffe_import.data.transform import TransformOptions
from caffe_import.files.prototxt import parse_net
from caffe_import.net.initial_vector import initial_vector
from caffe_import.tf_graph.predict import compile_forward
from deepspark_ops.evaluate.tasks.choice import choose_tasks
from deepspark_ops.export.deploy_net import build_deploy, build_deploy_net, deploy_params
from deepspark_ops.export.drawn_samples import DrawnInput, DrawnSamples
from deepspark_ops.export.formats.exported_model import ExportedModel
from deepspark_ops.export.served_input import deploy_batch, find_served_inputs, settled_batch
from deepspark_ops.export.served_output import served_outputs, served_tasks
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


def exported_model(text, folder, n_samples=5, transform=None, stored=None, table=None):
    """Return a net with parameters and drawn samples on its way into a bundle, and what the importer's graph gives.

    Args:
        text: Prototxt; its data is "data", further inputs are targets.
        folder: Where a format writes.
        n_samples: Samples.
        transform: Of its images; default: none is done.
        stored: Shape of a stored sample; default: what the net takes.
        table: How a table's features were standardised.

    Returns:
        The model and output -> (n_samples, ...).
    """
    message = parse_net(text)
    shapes = {layer.top[0]: tuple(layer.input_param.shape[0].dim) for layer in message.layer if layer.type == "Input"}
    shape = shapes["data"]
    net = build_deploy(message, n_samples)
    is_image = len(shape) == 4 and shape[1] in (1, 3)
    transform = transform or (TransformOptions(scale=1 / 64, mean_values=(100.0,)) if is_image else None)
    drawn = DrawnInput({"data": (n_samples, *shape[1:])}, stored or tuple(shape[1:]), transform)
    targets = [
        DrawnInput({blob: (n_samples, *shape[1:])}, shape[1:], None) for blob, shape in shapes.items() if blob != "data"
    ]
    samples = DrawnSamples((drawn, *targets))
    samples.table = table
    tasks = served_tasks(net, choose_tasks(net))
    deploy_net = build_deploy_net(message, net, tasks, set(shapes))
    deploy, outputs = deploy_net.message, served_outputs(tasks, deploy_net.outputs)
    params = params_of(net)
    batch = samples.read(0, n_samples)
    inputs = find_served_inputs(samples, deploy_net.inputs)
    batch = settled_batch(batch, deploy_net.inputs, inputs)

    def build(batch_size):
        return build_deploy(deploy, batch_size)

    @cache
    def served(*, is_portable=False):
        return ServedModel(build, deploy_values, inputs, outputs, trial=batch.feeds, is_portable=is_portable)

    feeds = {blob: values if blob == "data" else values * 0 for blob, values in batch.feeds.items()}
    blobs = compile_forward(net, n_threads=1, outputs=[task.output for task in tasks])(params, feeds)
    expected = {output.name: output.expected(blobs[output.chosen.output]) for output in outputs}
    deploy_values = deploy_params(net.params, params, build_deploy(deploy, 1).params)
    batch = deploy_batch(batch, deploy_net.inputs)
    model = ExportedModel(
        folder=folder,
        deploy=deploy,
        build=build,
        params=deploy_values,
        inputs=inputs,
        outputs=outputs,
        batch=batch,
        n_threads=1,
        served=served,
    )
    return model, expected

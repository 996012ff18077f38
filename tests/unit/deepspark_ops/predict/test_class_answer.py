import numpy as np
import pyarrow as pa

from deepspark_ops.config.commands.predict import PredictConfig
from deepspark_ops.export.manifest import InputContract, OutputBlob, parse_manifest
from deepspark_ops.predict.class_answer import result_columns, served_answers
from deepspark_ops.predict.columns import answer_columns, output_schema
from deepspark_ops.predict.samples import BundleForm, SampleForm
from tests.reference.bundles import make_bundle

OUTPUT = OutputBlob(name="scores", blob="prob", task="classification", shape=(-1, 2), n_classes=2)


def input_of(name, shape, dtype, axes):
    channels = "RGB" if shape[-1] == 3 else ""
    return SampleForm.of(
        InputContract(name=name, shape=shape, axes=axes, dtype=dtype, channels=channels, preprocessing=())
    )


def test_each_input_gets_its_own_values_and_samples_of_a_size_go_together():
    form = BundleForm(
        (input_of("left", (-1, -1, -1, 3), "uint8", "N, H, W, C"), input_of("right", (-1, 1), "float32", "N, axis 1"))
    )
    calls = []

    def serve(arguments):
        calls.append({name: values.shape for name, values in arguments.items()})
        red = arguments["left"][:, 0, 0, 0].astype(np.float32)
        return {"scores": np.stack([red, arguments["right"][:, 0]], axis=1)}

    def sample(red, right, size):
        image = np.zeros((3, size, size), np.uint8)
        image[2] = red
        return image, np.float32([right])

    samples = [sample(10, 1, 2), sample(20, 2, 4), sample(30, 3, 2)]
    scores = served_answers(serve, samples, form, [OUTPUT])["scores"]
    assert scores.tolist() == [[10, 1], [20, 2], [30, 3]]
    assert calls == [{"left": (2, 2, 2, 3), "right": (2, 1)}, {"left": (1, 4, 4, 3), "right": (1, 1)}]


def test_columns_are_of_every_result(tmp_path):
    manifest = read_bundle(
        tmp_path,
        {"name": "tags", "blob": "prob", "task": "multi_label", "shape": (-1, 3), "n_classes": 3},
        {"name": "price", "blob": "price", "task": "regression", "shape": (-1, 1), "n_classes": 0},
        {"name": "again", "blob": "again", "task": "reconstruction", "shape": (-1, 1, 2), "n_classes": 0},
        labels=("red", "round", "new"),
    )
    answers = {
        "tags": np.float32([[0.75, 0.25, 1], [0.5, 0, 0]]),
        "price": np.float32([[2.5], [3]]),
        "again": np.float32([[[1, 2]], [[3, 4]]]),
    }
    columns = result_columns(answers, manifest, top_k=5)
    assert columns["predicted"] == [[0, 2], []]  # one half is no yes
    assert columns["predicted_names"] == [["red", "new"], []]
    assert columns["price"] == [2.5, 3]
    assert [row.tolist() for row in columns["again"]] == [[1, 2], [3, 4]]
    schema = output_schema(PredictConfig(bundle=tmp_path, input=tmp_path, output="o.parquet"), manifest)
    assert set(answer_columns(schema)) == columns.keys()
    assert schema.field("price").type == pa.float32()


def read_bundle(folder, *outputs, labels):
    manifest = parse_manifest(make_bundle(folder / "bundle", labels=labels, n_classes=len(labels)))
    return manifest.model_copy(update={"outputs": tuple(OutputBlob.model_validate(output) for output in outputs)})

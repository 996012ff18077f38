import numpy as np

from deepspark_ops.export.manifest import InputContract, OutputContract
from deepspark_ops.predict.class_answer import served_scores
from deepspark_ops.predict.samples import BundleForm, SampleForm

OUTPUT = OutputContract(scores="scores", classes="classes", n_classes=2, labels=())


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
    found = served_scores(serve, samples, form, OUTPUT)
    assert found.tolist() == [[10, 1], [20, 2], [30, 3]]
    assert calls == [{"left": (2, 2, 2, 3), "right": (2, 1)}, {"left": (1, 4, 4, 3), "right": (1, 1)}]

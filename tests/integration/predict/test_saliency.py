"""Saliency maps of a served bundle, of nets whose gradients are a line of numpy."""

import base64

import cv2
import numpy as np
import pytest
from starlette.testclient import TestClient

from caffe_import.files.caffemodel import write_caffemodel
from caffe_import.files.prototxt import read_net
from caffe_import.net.net_spec import build_net_spec
from deepspark_ops.config.commands.serve import ServeConfig
from deepspark_ops.config.convert import ConvertConfig
from deepspark_ops.evaluate.saliency.maps import overlay
from deepspark_ops.export.manifest import OutputBlob, read_manifest
from deepspark_ops.serve.app import make_app
from deepspark_ops.serve.guard import Limits
from deepspark_ops.serve.saliency import BundleSaliency, Question
from deepspark_ops.serve.service import Service
from deepspark_ops.serve.start import load_served
from tests.reference.layer_text import inner_product, input_layer, layer_text, loss_layer

pytestmark = pytest.mark.tf

SIDE = 6
PROBABILITIES = layer_text("Softmax", "prob", "ip")
CONVOLUTION = layer_text(
    "Convolution", "conv", "data", options="convolution_param { num_output: 2 kernel_size: 1 bias_term: false }"
)
LINEAR = input_layer("data", 3, SIDE, SIDE) + inner_product("ip", "data", 3, more="bias_term: false") + PROBABILITIES
FEATURES = (
    input_layer("data", 1, SIDE, SIDE) + CONVOLUTION + inner_product("ip", "conv", 3, more="bias_term: false")
    + PROBABILITIES
)  # fmt: skip
TWO_RESULTS = (
    input_layer("data", 3, SIDE, SIDE)
    + input_layer("drawn")
    + layer_text("Threshold", "label", "drawn")
    + input_layer("years", 1)
    + inner_product("ip", "data", 3, more="bias_term: false")
    + inner_product("age", "data", 1, more="bias_term: false")
    + loss_layer("SoftmaxWithLoss", "ip", "label", options="loss_weight: 2")
    + loss_layer("EuclideanLoss", "age", "years", name="off")
)
MEAN, SCALE = (10.0, 20.0, 30.0), 0.0078125
N_PIXELS = SIDE * SIDE


def convert(folder, text, **options):
    """Write a bundle of a net with random weights, and return the bundle and the weights."""
    from deepspark_ops.export.convert.__main__ import main  # TensorFlow

    folder.mkdir(exist_ok=True)
    (folder / "net.prototxt").write_text(f'name: "n"\n{text}')
    net = build_net_spec(read_net(folder / "net.prototxt"), phase="TEST")
    params = np.random.default_rng(3).normal(0, 0.1, net.params.n_params).astype(np.float32)
    write_caffemodel(folder / "w.caffemodel", net, params)
    config = ConvertConfig(
        net=folder / "net.prototxt", weights=folder / "w.caffemodel", output=folder / "bundle",
        formats="caffe,saved_model", check_samples=2, **options,
    )  # fmt: skip
    (folder / "convert.json").write_text(config.model_dump_json())
    main(folder / "convert.json")
    return folder / "bundle", params


def ask_saliency(bundle, picture, query, **options):
    config = ServeConfig(bundle=bundle, threads=1, batch_wait_ms=0, batch_size=16, **options)
    service = Service.of(load_served(config), config)
    png = cv2.imencode(".png", picture)[1].tobytes()
    with TestClient(make_app(service, config, Limits(100_000, 4)), base_url="http://127.0.0.1:8000") as client:
        answer = client.post(f"/v1/saliency?{query}", content=png, headers={"content-type": "image/png"})
        return answer, client.get("/v1/model").json()["saliency"]


def pictures(channels):
    shape = (SIDE, SIDE, channels) if channels > 1 else (SIDE, SIDE)
    return np.random.default_rng(5).integers(0, 256, shape).astype(np.uint8)


@pytest.fixture(scope="module")
def colour(tmp_path_factory):
    means = ", ".join(map(str, MEAN))
    return convert(tmp_path_factory.mktemp("colour"), LINEAR, mean_values=means, scale=SCALE)


def probabilities(picture, weights):
    """Return the answer of ``LINEAR`` to a picture (H, W, 3), BGR."""
    fed = (picture.astype(np.float64) - MEAN) * SCALE
    scores = weights.reshape(3, -1) @ fed.transpose(2, 0, 1).reshape(-1)
    return np.exp(scores) / np.exp(scores).sum()


def test_gradient_times_input_of_a_linear_net_is_its_weights_times_the_values(colour):
    bundle, params = colour
    picture = pictures(3)
    answer, unavailable = ask_saliency(bundle, picture, "method=gradient&class=1")
    assert answer.status_code == 200, answer.text
    fed = ((picture.astype(np.float64) - MEAN) * SCALE).transpose(2, 0, 1)
    expected = (params.reshape(3, 3, SIDE, SIDE)[1] * fed).sum(axis=0)
    assert np.array(answer.json()["map"]) == pytest.approx(expected, rel=1e-3, abs=1e-5)
    drawn = cv2.imdecode(np.frombuffer(base64.b64decode(answer.json()["picture"]), np.uint8), cv2.IMREAD_COLOR)
    assert np.abs(drawn.astype(int) - overlay(picture, expected)).max() <= 1
    assert (answer.json()["class"], answer.json()["output"]) == (1, "scores")
    assert answer.json()["score"] == pytest.approx(probabilities(picture, params)[1], rel=1e-4)
    assert unavailable == {
        "gradient": "",
        "grad_cam": "the net has no convolution with a map of several pixels before this score",
        "occlusion": "",
    }


def test_occlusion_is_the_fall_of_the_probability_under_each_square(colour):
    bundle, params = colour
    picture = pictures(3)
    answer, _ = ask_saliency(bundle, picture, "method=occlusion", occlusion_squares=3)
    chosen = int(probabilities(picture, params).argmax())
    assert answer.json()["class"] == chosen
    falls, counts = np.zeros((SIDE, SIDE)), np.zeros((SIDE, SIDE))
    for row in range(SIDE - 1):  # squares of 2 x 2 in steps of 1
        for column in range(SIDE - 1):
            copy = picture.copy()
            copy[row : row + 2, column : column + 2] = np.rint(picture.mean(axis=(0, 1)))
            fall = probabilities(picture, params)[chosen] - probabilities(copy, params)[chosen]
            falls[row : row + 2, column : column + 2] += fall
            counts[row : row + 2, column : column + 2] += 1
    assert np.array(answer.json()["map"]) == pytest.approx(falls / counts, rel=1e-2, abs=1e-5)


def test_grad_cam_of_a_grey_picture_by_hand(tmp_path):
    bundle, params = convert(tmp_path, FEATURES)
    picture = pictures(1)
    answer, unavailable = ask_saliency(bundle, picture, "method=grad_cam&class=2")
    kernel, weights = params[:2], params[2:].reshape(3, 2, SIDE, SIDE)
    expected = np.zeros((SIDE, SIDE))
    for row, column in np.ndindex(SIDE, SIDE):
        for channel in range(2):
            expected[row, column] += weights[2, channel].mean() * kernel[channel] * picture[row, column]
    assert np.array(answer.json()["map"]) == pytest.approx(np.maximum(expected, 0), rel=1e-3, abs=1e-5)
    assert set(unavailable.values()) == {""}


def test_a_further_output_has_maps_of_its_own(tmp_path):
    bundle, params = convert(tmp_path, TWO_RESULTS)
    picture = pictures(3)
    answer, _ = ask_saliency(bundle, picture, "output=age")
    expected = (params[-3 * N_PIXELS :].reshape(3, SIDE, SIDE) * picture.transpose(2, 0, 1)).sum(axis=0)
    assert np.array(answer.json()["map"]) == pytest.approx(expected, rel=1e-3, abs=1e-3)
    refused, _ = ask_saliency(bundle, picture, "output=height")
    assert (refused.status_code, "expected an output with a score of a sample: scores, age" in refused.text) == (
        422,
        True,
    )


def test_of_a_crop_the_map_is_of_the_centre(colour):
    bundle, params = colour
    manifest = read_manifest(bundle)
    crop = f"cut out the central {SIDE} x {SIDE} pixels"
    free = manifest.inputs[0].model_copy(update={"shape": (-1, -1, -1, 3), "preprocessing": (crop, "multiply by 0.5")})
    saliency = BundleSaliency(manifest.model_copy(update={"inputs": (free,)}), ServeConfig(bundle=bundle, threads=1))
    pixels = np.random.default_rng(8).integers(0, 256, (3, SIDE + 3, SIDE + 4)).astype(np.uint8)
    output = OutputBlob(name="scores", blob="prob", task="classification", shape=(-1, 3), n_classes=3)
    question = Question((pixels,), output, 0, 0.5)
    saliency_map = np.array(saliency.gradients("gradient", question)["map"])
    centre = pixels[:, 1 : 1 + SIDE, 2 : 2 + SIDE]
    assert saliency_map == pytest.approx(
        (params.reshape(3, 3, SIDE, SIDE)[0] * centre * 0.5).sum(axis=0), rel=1e-3, abs=1e-3
    )
    copies = np.concatenate([np.stack([part for (part,) in batch]) for batch in saliency.copies(question)])
    outside = np.ones(pixels.shape[1:], bool)
    outside[1 : 1 + SIDE, 2 : 2 + SIDE] = False
    assert np.array_equal(copies[:, :, outside], np.repeat(pixels[None], len(copies), axis=0)[:, :, outside])
    assert (copies != pixels).any(axis=(1, 2, 3)).all()

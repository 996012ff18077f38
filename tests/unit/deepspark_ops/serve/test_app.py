"""The server's addresses, by starlette's client: no port, no TensorFlow."""

import base64
import threading
from contextlib import ExitStack
from types import SimpleNamespace

import cv2
import numpy as np
import pytest
from starlette.testclient import TestClient

from deepspark_ops.predict.samples import SampleForm
from deepspark_ops.serve.app import make_app
from deepspark_ops.serve.guard import LOOPBACK_NAMES, Limits
from deepspark_ops.serve.service import Service, warm_up
from deepspark_ops.shards.preprocessing import ImagePreprocessing
from tests.unit.deepspark_ops.serve.fake_model import LABELS, FakeModel, image_input, number_input, serve_config

BRIGHT = np.zeros((2, 3, 3), np.uint8)
BRIGHT[..., 2] = 204  # blue, 0.8 of 255
PNG = cv2.imencode(".png", np.ascontiguousarray(BRIGHT[..., ::-1]))[1].tobytes()
WAIT_S = 60.0


@pytest.fixture
def served(tmp_path):
    """Return a function that serves a model and returns the client."""
    with ExitStack() as stack:

        def serve(*inputs, model=None, limits=None, **options):
            served_model = model or FakeModel(tmp_path, *inputs)
            config = serve_config(served_model, **options)
            limits = limits or Limits(100_000, 8, hosts=LOOPBACK_NAMES)
            app = make_app(Service.of(served_model, config), config, limits)
            client = TestClient(app, base_url="http://127.0.0.1:8000", raise_server_exceptions=False)
            return stack.enter_context(client)

        yield serve


def test_pictures_arrays_and_base64_get_the_same_rows(served):
    client = served()
    expected = {
        "predicted": 1,
        "predicted_name": LABELS[1],
        "probability": pytest.approx(0.8),
        "top_classes": [1, 0],
        "top_names": [LABELS[1], LABELS[0]],
        "top_probabilities": [pytest.approx(0.8), pytest.approx(0.2)],
        "scores": [pytest.approx(0.2), pytest.approx(0.8)],
    }
    encoded = {"b64": base64.b64encode(PNG).decode()}
    for answer in [
        client.post("/v1/predict", json={"instances": [BRIGHT.tolist(), encoded]}),
        client.post("/v1/predict", files=[("file", ("a.png", PNG)), ("file", ("b.png", PNG))]),
    ]:
        assert (answer.status_code, answer.json()) == (200, {"predictions": [expected, expected]})
    answer_with_top1 = client.post(
        "/v1/predict?top_k=1&scores=false", content=PNG, headers={"content-type": "image/png"}
    ).json()
    assert answer_with_top1["predictions"][0]["top_classes"] == [1]
    assert "scores" not in answer_with_top1["predictions"][0]


def test_an_answer_has_a_warning_of_images_of_another_range(served):
    contract = image_input().contract
    images = ImagePreprocessing(dtype="uint8", sample_shape=(3, 2, 3), pixel_range=(0.0, 255.0))
    client = served(SampleForm.of(contract.model_copy(update={"images": images})))
    for scale, n_images in ((1, 8), (16, 7), (16, 8)):
        answer = client.post("/v1/predict", json={"instances": [(BRIGHT // scale).tolist()] * n_images}).json()
        assert len(answer["predictions"]) == n_images
        assert ("warnings" in answer) == (scale == 16 and n_images == 8)
    assert answer["warnings"][0].startswith("8 images: pixels are 0 to 12, those of the training images were 0 to 255")


def test_requests_without_an_answer_get_a_status(served):
    client = served()
    for answer, status, text in [
        (client.post("/v1/predict", json={"instances": []}), 422, "found an empty list"),
        (client.post("/v1/predict", json={"instances": [[1]]}), 422, 'input "images": found shape (1), expected uint8'),
        (client.post("/v1/predict", json={}), 400, "found an object with keys (none), expected"),
        (client.post("/v1/predict", files={"file": b"no image"}), 422, "8 bytes that are no image"),
        (client.post("/v1/predict", content=b"x", headers={"content-type": "text/plain"}), 415, 'type "text/plain"'),
        (client.post("/v1/predict", content=b"x", headers={"content-type": "multipart/form-data"}), 400, "boundary"),
        (client.post("/v1/predict?top_k=0", json={"instance": BRIGHT.tolist()}), 422, "top_k='0'"),
        (client.post("/v1/predict", json={"instances": [BRIGHT.tolist()] * 5000}), 413, "expected at most 100,000"),
        (client.get("/v1/predict"), 405, "Method Not Allowed"),
        (client.get("/docs"), 404, "Not Found"),
    ]:
        assert answer.status_code == status, answer.text
        assert text in answer.json()["error"]


def test_a_body_of_unknown_length_is_bounded_too(served):
    def chunks():
        for _ in range(300):
            yield b" " * 1000

    answer = served().post("/v1/predict", content=chunks(), headers={"content-type": "application/json"})
    assert (answer.status_code, "expected at most 100,000" in answer.json()["error"]) == (413, True)


def test_health_metrics_and_the_model(served):
    client = served()
    assert client.get("/health").json() == {"status": "ok"}
    client.post("/v1/predict", json={"instances": [BRIGHT.tolist()] * 3})
    client.get("/nowhere")
    metrics = client.get("/metrics")
    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    for line in ['total{path="/v1/predict",code="200"} 1', 'errors_total{path="other"} 1', "samples_total 3"]:
        assert line in metrics.text
    about = client.get("/v1/model").json()
    assert (about["net"], about["classes"], about["takes_pictures"]) == ("n", list(LABELS), True)
    assert about["inputs"][0]["shape"] == [-1, 2, 3, 3]
    assert about["digest"].startswith("sha256:")


def test_the_page_loads_nothing_from_elsewhere(served):
    client = served()
    page = client.get("/")
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; img-src blob:;")
    assert "unsafe" not in policy
    assert page.headers["x-content-type-options"] == "nosniff"
    for text in (page.text, client.get("/page.css").text, client.get("/page.js").text):
        assert "http" not in text
        assert " style=" not in text
        assert "innerHTML" not in text


def test_another_host_or_site_is_refused(served):
    client = served()
    assert client.get("/v1/model", headers={"host": "evil.example:8000"}).status_code == 421
    assert client.get("/v1/model", headers={"host": "localhost"}).status_code == 200
    assert client.get("/v1/model", headers={"host": "[::1]:8000"}).status_code == 200
    assert client.get("/v1/model", headers={"host": "192.168.0.7:8000"}).status_code == 200
    assert client.get("/v1/model", headers={"host": "1.2.3.4.evil.example"}).status_code == 421
    assert client.get("/v1/model", headers={"host": ""}).status_code == 421


OWN_HOST = "127.0.0.1:8000"


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"sec-fetch-site": "cross-site"}, 403),
        ({"sec-fetch-site": "same-site"}, 403),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({"sec-fetch-site": "none"}, 200),
        ({}, 200),
        ({"origin": f"http://{OWN_HOST}"}, 200),
        ({"origin": f"https://{OWN_HOST}"}, 200),
        ({"origin": "http://evil.example"}, 403),
        ({"origin": "http://127.0.0.1:9000"}, 403),
        ({"origin": "null"}, 403),
        ({"origin": ""}, 403),
        ({"origin": "http://evil.example", "host": "evil.example"}, 421),
        ({"origin": "http://evil.example:8000", "host": "evil.example:8000"}, 421),
        ({"origin": "https://proxy.example", "host": OWN_HOST}, 200),
        ({"origin": "https://proxy.example.evil.example", "host": OWN_HOST}, 403),
        ({"origin": "https://proxy.example", "host": "PROXY.example"}, 200),
    ],
)
def test_what_a_page_of_another_site_sends_is_refused(served, headers, status):
    client = served(limits=Limits(100_000, 8, hosts=LOOPBACK_NAMES | {"proxy.example"}))
    answer = client.post("/v1/predict", json={"instance": BRIGHT.tolist()}, headers=headers)
    assert answer.status_code == status, answer.text


def test_a_page_elsewhere_does_not_have_the_token(served):
    client = served(limits=Limits(100_000, 8, token="s3cret"))
    foreign = {"origin": "http://evil.example", "host": "evil.example"}
    body = {"json": {"instance": BRIGHT.tolist()}}
    assert client.post("/v1/predict", **body, headers=foreign).status_code == 401
    behind_a_proxy = foreign | {"authorization": "Bearer s3cret"}
    assert client.post("/v1/predict", **body, headers=behind_a_proxy).status_code == 200


def test_millions_of_lists_are_refused_before_they_are_read(served, monkeypatch):
    read = []
    monkeypatch.setattr("deepspark_ops.serve.request.json", SimpleNamespace(loads=read.append))
    client = served(limits=Limits(1 << 24, 8))
    for piece in (b"[]", b"{}"):
        body = b'{"instances":[' + b",".join([piece] * 4_000_000) + b"]}"
        answer = client.post("/v1/predict", content=body, headers={"content-type": "application/json"})
        text = "4,000,002 lists and objects, expected at most 1,000,000; send fewer instances in a request, or images"
        assert (answer.status_code, text in answer.json()["error"]) == (413, True), answer.text
    assert read == []


def test_a_token_is_wanted_for_all_but_page_and_health(served):
    client = served(limits=Limits(100_000, 8, token="s3cret"))
    assert [client.get(path).status_code for path in ("/", "/page.js", "/health")] == [200] * 3
    for path in ("/v1/model", "/metrics"):
        answer = client.get(path)
        assert (answer.status_code, answer.headers["www-authenticate"]) == (401, "Bearer")
        assert "found no token" in answer.json()["error"]
        assert client.get(path, headers={"authorization": "Bearer other"}).status_code == 401
        assert client.get(path, headers={"authorization": "Bearer s3cret"}).status_code == 200


def test_a_full_queue_is_told_to_come_back(served, tmp_path):
    model = FakeModel(tmp_path)
    begun, may_go = threading.Event(), threading.Event()
    answers_of = model.answers

    def held(samples):
        begun.set()
        assert may_go.wait(WAIT_S)
        return answers_of(samples)

    model.answers = held
    client = served(model=model, limits=Limits(100_000, 1))
    answers = []
    body = {"json": {"instance": BRIGHT.tolist()}}
    thread = threading.Thread(target=lambda: answers.append(client.post("/v1/predict", **body)))
    thread.start()
    assert begun.wait(WAIT_S)
    refused = client.post("/v1/predict", **body)
    assert (refused.status_code, refused.headers["retry-after"]) == (503, "1")
    assert client.get("/health").status_code == 200
    may_go.set()
    thread.join(WAIT_S)
    assert answers[0].status_code == 200
    assert client.post("/v1/predict", **body).status_code == 200


@pytest.mark.parametrize(
    ("scores", "text"),
    [(lambda samples: np.full((len(samples), 2), np.nan), "not finite"), (lambda samples: 1 / 0, "ZeroDivisionError")],
)
def test_a_fault_of_the_net_is_no_end_of_the_server(served, tmp_path, scores, text):
    client = served(model=_with_scores(tmp_path, scores))
    for _ in range(2):
        answer = client.post("/v1/predict", json={"instance": BRIGHT.tolist()})
        assert (answer.status_code, text in answer.json()["error"]) == (500, True)
    assert client.get("/health").status_code == 200


def _with_scores(folder, scores):
    model = FakeModel(folder)
    model.answers = lambda samples: {"scores": scores(samples)}
    return model


def test_a_request_that_takes_too_long_is_given_up(served, tmp_path):
    may_go = threading.Event()
    model = _with_scores(tmp_path, lambda samples: may_go.wait(WAIT_S) and np.ones((len(samples), 2), np.float32))
    answer = served(model=model, timeout_s=0.05).post("/v1/predict", json={"instance": BRIGHT.tolist()})
    may_go.set()
    assert (answer.status_code, "no answer within 0.05 s" in answer.json()["error"]) == (504, True)


def test_numbers_and_the_warm_up(served, tmp_path):
    model = FakeModel(tmp_path, number_input())
    warm_up(model)
    warm_up(FakeModel(tmp_path / "free", image_input(shape=(-1, -1, -1, 3), crop_size=5)))
    client = served(model=model)
    assert client.get("/v1/model").json()["takes_pictures"] is False
    assert client.post("/v1/predict", json={"instance": [255, 0, 0, 0]}).status_code == 200
    assert "expected JSON" in client.post("/v1/predict", files={"file": PNG}).json()["error"]


def test_results_without_classes_have_the_names_of_their_outputs(served, tmp_path):
    model = FakeModel(tmp_path, number_input())
    outputs = [
        {"name": "price", "blob": "price", "task": "regression", "shape": (-1, 1), "n_classes": 0},
        {"name": "code", "blob": "code", "task": "embedding", "shape": (-1, 2), "n_classes": 0},
    ]
    output = {"scores": "price", "classes": "", "n_classes": 0, "labels": ()}
    plain = model.manifest.model_dump() | {"format_version": 5, "outputs": outputs, "output": output}
    model.manifest = type(model.manifest).model_validate(plain)
    model.answers = lambda samples: {
        "price": np.float32([[parts[0].sum()] for parts in samples]),
        "code": np.float32([parts[0][:2] for parts in samples]),
    }
    client = served(model=model)
    assert [output["task"] for output in client.get("/v1/model").json()["outputs"]] == ["regression", "embedding"]
    answer = client.post("/v1/predict?scores=false", json={"instances": [[1, 2, 3, 4], [0, 5, 0, 0]]})
    assert answer.json()["predictions"] == [{"price": 10.0, "code": [1.0, 2.0]}, {"price": 5.0, "code": [0.0, 5.0]}]


def test_a_map_by_occlusion_of_a_picture(served):
    """The score of class 1 is the mean of the blue channel: a square of the mean colour changes it by hand."""
    client = served(occlusion_squares=1)
    picture = BRIGHT.copy()
    picture[0, 0, 2] = 84
    png = cv2.imencode(".png", np.ascontiguousarray(picture[..., ::-1]))[1].tobytes()
    answer = client.post("/v1/saliency?method=occlusion&class=1", content=png, headers={"content-type": "image/png"})
    assert answer.status_code == 200
    fall = picture[..., 2].mean() / 255 - 184 / 255  # one square over the whole picture, of the rounded mean
    saliency = answer.json()
    assert saliency["map"] == [[pytest.approx(fall, abs=1e-4)] * 3] * 2
    assert (saliency["class_name"], saliency["score"]) == (LABELS[1], pytest.approx(184 / 255))
    drawn = cv2.imdecode(np.frombuffer(base64.b64decode(saliency["picture"]), np.uint8), cv2.IMREAD_COLOR)
    assert drawn.shape == (2, 3, 3)
    assert 'total{path="/v1/saliency",code="200"} 1' in client.get("/metrics").text


def test_a_class_without_a_name_has_its_number_as_text(served, tmp_path):
    model = FakeModel(tmp_path)
    output = model.manifest.output.model_copy(update={"labels": ()})
    model.manifest = model.manifest.model_copy(update={"output": output})
    client = served(model=model)
    head = {"content-type": "image/png"}
    answer = client.post("/v1/saliency?method=occlusion&class=1", content=PNG, headers=head).json()
    assert (answer["class"], answer["class_name"]) == (1, "1")
    assert "top_names" not in client.post("/v1/predict", content=PNG, headers=head).json()["predictions"][0]


def test_maps_that_the_bundle_cannot_have_say_why(served):
    def post(client, query):
        return client.post(f"/v1/saliency?{query}", files=[("file", ("a.png", PNG))])

    client = served(occlusion_squares=0)
    reasons = client.get("/v1/model").json()["saliency"]
    assert reasons["gradient"].startswith("the bundle has no deploy.prototxt")
    for method in ("gradient", "grad_cam", "occlusion"):
        answer = post(client, f"method={method}")
        assert (answer.status_code, answer.json()["error"]) == (422, f"method={method}: {reasons[method]}")
    for query, text in [
        ("method=magic", "method='magic'"),
        ("class=2", "class=2: expected a number from 0 to 1"),
        ("class=-1", "class='-1'"),
        ("output=age", "output=age: is no output; expected an output with a score of a sample: scores"),
    ]:
        answer = post(client, query)
        assert (answer.status_code, text in answer.json()["error"]) == (422, True)
    answer = client.post("/v1/saliency", files=[("file", ("a.png", PNG)), ("file", ("b.png", PNG))])
    assert (answer.status_code, "found 2 pictures" in answer.json()["error"]) == (422, True)


def test_a_bundle_of_numbers_has_no_maps(served):
    client = served(number_input())
    assert set(client.get("/v1/model").json()["saliency"].values()) == {"the bundle does not take a single picture"}
    answer = client.post("/v1/saliency", json={"instances": [[1, 2, 3, 4]]})
    assert (answer.status_code, "does not take a single picture" in answer.json()["error"]) == (422, True)


def test_maps_have_the_limits_of_predictions(served, tmp_path):
    limits = Limits(2_000, 0, token="secret", hosts=LOOPBACK_NAMES)
    client = served(limits=limits)
    head = {"content-type": "image/png"}
    bearer = {**head, "authorization": "Bearer secret"}
    assert client.post("/v1/saliency", content=PNG, headers=head).status_code == 401
    assert client.post("/v1/saliency", content=b"x" * 2_001, headers=bearer).status_code == 413
    assert client.post("/v1/saliency", content=PNG, headers=bearer).status_code == 503
    foreign = {**head, "sec-fetch-site": "cross-site"}
    client = served(model=FakeModel(tmp_path / "other"))
    assert client.post("/v1/saliency", content=PNG, headers=foreign).status_code == 403

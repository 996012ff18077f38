"""The server as a process of its own: a real port, the real net, many callers at once, a clean end."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import cv2
import numpy as np
import pytest

from deepspark_ops.export.tf_saved_model import load_saved_model
from tests.integration.small_run import CLASS_NAMES

pytestmark = pytest.mark.tf


def ask(url, body=None, kind="application/json"):
    request = urllib.request.Request(url, data=body, headers={"Content-Type": kind} if body else {})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read()) if url.endswith(("predict", "model", "health")) else answer.read().decode()


def test_a_server_answers_as_the_saved_model_and_ends_well(exported, tmp_path):
    _, images, _, bundle, folder = exported
    command = [str(Path(sys.executable).with_name("deepspark")), "serve", str(bundle), "--port", "0", "--threads", "1"]
    options = ["--batch-wait-ms", "50", "--queue-size", "100", "--max-image-pixels", "1000000"]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        first, *production = [server.stdout.readline() for _ in range(4)]
        assert f"net patches of {bundle} on http://127.0.0.1:" in first, (tmp_path / "log").read_text()
        url = first.split(" on ")[1].split()[0]
        assert ask(f"{url}/health") == {"status": "ok"}
        assert ask(f"{url}/v1/model")["classes"] == list(CLASS_NAMES)

        rgb = np.ascontiguousarray(images[:, ::-1].transpose(0, 2, 3, 1))
        expected = load_saved_model(bundle / "saved_model")({"images": rgb})["scores"]
        bodies = [json.dumps({"instances": rgb[row : row + 1].tolist()}).encode() for row in range(20)]
        with ThreadPoolExecutor(20) as pool:
            answers = list(pool.map(lambda body: ask(f"{url}/v1/predict", body), bodies))
        scores = np.array([answer["predictions"][0]["scores"] for answer in answers])
        np.testing.assert_allclose(scores, expected[:20], rtol=1e-5, atol=1e-7)
        picture = ask(f"{url}/v1/predict", (folder / "0" / "000.png").read_bytes(), "image/png")
        np.testing.assert_allclose(picture["predictions"][0]["scores"], expected[0], rtol=1e-5, atol=1e-7)

        metrics = ask(f"{url}/metrics")
        calls = int(metrics.split("deepspark_graph_call_samples_count ")[1].split()[0])
        assert "deepspark_samples_total 21" in metrics
        assert calls < 21  # some went together

        huge = cv2.imencode(".png", np.zeros((1001, 1000), np.uint8))[1].tobytes()
        for body, kind, message in [
            (b'{"instances": [[1]]}', "application/json", "found shape (1)"),
            (huge, "image/png", "MAX_IMAGE_PIXELS"),
        ]:
            with pytest.raises(urllib.error.HTTPError) as caught:
                ask(f"{url}/v1/predict", body, kind)
            assert caught.value.code == 422
            assert message in caught.value.read().decode()
        assert ask(f"{url}/health") == {"status": "ok"}

        server.send_signal(signal.SIGTERM)
        output = server.communicate(timeout=60)[0]
    finally:
        server.kill()
        server.wait()
        server.stdout.close()
    assert server.returncode == 0, (tmp_path / "log").read_text()
    assert "tensorflow/serving" in production[1]
    assert output == "serve: ended\n"
    assert "Traceback" not in (tmp_path / "log").read_text()

"""A real server process with clients that stop in the middle of a request, and honest ones beside them."""

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import ExitStack, closing, contextmanager

import numpy as np
import pytest

UPLOAD_TIMEOUT_S = 20.0
N_SLOW = 70
BODY = json.dumps({"instance": np.zeros((2, 3, 3), int).tolist()}).encode()
HEADERS = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
WAIT_S = 60


@contextmanager
def serving(folder, upload_timeout_s):
    command = [sys.executable, "-m", "tests.integration.predict.fake_server", str(folder), str(upload_timeout_s)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def ask(url, body=None):
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"} if body else {})
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return answer.read().decode()


def slow_clients(stack, url, start):
    """Return connections that have sent this, and send no more."""
    address = ("127.0.0.1", int(url.rpartition(":")[2]))
    clients = [stack.enter_context(closing(socket.create_connection(address, WAIT_S))) for _ in range(N_SLOW)]
    for client in clients:
        client.sendall(start)
    return clients


def read_to_end(client):
    answer = b""
    while part := client.recv(1 << 16):
        answer += part
    return answer


@pytest.mark.parametrize("start", [HEADERS + b"\r\n{", HEADERS + b"Expect: 100-continue\r\n\r\n", HEADERS])
def test_slow_clients_keep_nobody_out(tmp_path, start):
    """They stop after the headers and one byte, after the headers, or within the headers."""
    with serving(tmp_path, UPLOAD_TIMEOUT_S) as url, ExitStack() as stack:
        port = int(url.rpartition(":")[2])
        slow = [
            stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), WAIT_S))) for _ in range(N_SLOW)
        ]
        for client in slow:
            client.sendall(start)
        for _ in range(20):
            assert len(json.loads(ask(f"{url}/v1/predict", BODY))["predictions"]) == 1
            assert json.loads(ask(f"{url}/health")) == {"status": "ok"}
        metrics = ask(f"{url}/metrics")
    assert 'deepspark_requests_total{path="/v1/predict",code="200"} 20' in metrics
    assert 'code="503"' not in metrics


def test_slow_clients_are_given_up(tmp_path):
    with serving(tmp_path, 2.0) as url, ExitStack() as stack:
        port = int(url.rpartition(":")[2])
        slow = [
            stack.enter_context(closing(socket.create_connection(("127.0.0.1", port), WAIT_S))) for _ in range(N_SLOW)
        ]
        for client in slow:
            client.sendall(HEADERS + b"\r\n{")
        answers = [read_to_end(client) for client in slow]
        assert {answer.split(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 408 Request Timeout"}
        of_room = [b"other requests of the same client needed the room" in answer for answer in answers]
        late = [b"1 bytes of the body were here after 2 s" in answer for answer in answers]
        assert (of_room.count(True), late.count(True)) == (N_SLOW - 32, 32)  # 64 places, half for one address
        assert len(json.loads(ask(f"{url}/v1/predict", BODY))["predictions"]) == 1


def test_a_page_of_another_site_reaches_nothing(tmp_path):
    foreign = {"Host": "evil.example", "Origin": "http://evil.example", "Content-Type": "application/json"}
    with serving(tmp_path, UPLOAD_TIMEOUT_S) as url:
        for headers, status in [(foreign, 421), ({**foreign, "Host": url.removeprefix("http://")}, 403)]:
            request = urllib.request.Request(f"{url}/v1/predict", data=BODY, headers=headers)
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=WAIT_S)
            with caught.value as answer:
                assert answer.code == status

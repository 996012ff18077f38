"""A real server process with clients that stop in the middle of a request, and honest ones beside them."""

import http.client
import json
import socket
import subprocess
import sys
import time
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


def read_until(client, end):
    """Return what the server sends up to ``end``: headers and body may come apart."""
    answer = b""
    while not answer.endswith(end):
        part = client.recv(1 << 16)
        assert part, f"the server closed after {answer}"
        answer += part
    return answer


def drip(client, line):
    """Send a line a tenth of a second, for ever, until the server answers or closes; return the answer."""
    client.settimeout(0.1)
    began = time.monotonic()
    while time.monotonic() - began < WAIT_S:
        try:
            client.sendall(line)
            if answer := client.recv(1 << 16):
                return answer
        except TimeoutError:
            continue
        except ConnectionError:
            return b""
        return b""
    pytest.fail(f"the server still reads headers after {WAIT_S} s")


@pytest.mark.parametrize("start", [b"", b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"])
def test_headers_that_never_end_are_given_up(tmp_path, start):
    """The first headers of a connection, or those of a further request."""
    with serving(tmp_path, 2.0) as url, ExitStack() as stack:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        client = stack.enter_context(closing(socket.create_connection(address, WAIT_S)))
        if start:
            client.sendall(start)
            assert read_until(client, b'{"status":"ok"}').startswith(b"HTTP/1.1 200 OK")
        client.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        answer = drip(client, b"X-Slow: 1\r\n")
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert b"the headers were not whole after 2 s; send the request faster" in answer
        assert json.loads(ask(f"{url}/health")) == {"status": "ok"}


def test_a_connection_without_a_byte_is_closed_and_large_headers_are_refused(tmp_path):
    with serving(tmp_path, 2.0) as url, ExitStack() as stack:
        address = ("127.0.0.1", int(url.rpartition(":")[2]))
        silent, endless = (stack.enter_context(closing(socket.create_connection(address, WAIT_S))) for _ in range(2))
        endless.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X-Large: 1\r\n" * 6_000)
        assert endless.recv(1 << 16).startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
        assert read_to_end(silent) == b""


def test_a_slow_body_is_no_slow_header(tmp_path):
    """Headers came at once; the body has a deadline of its own, and the connection serves a further request."""
    with serving(tmp_path, 3.0) as url, closing(http.client.HTTPConnection(url.removeprefix("http://"))) as client:
        for _ in range(2):
            client.putrequest("POST", "/v1/predict")
            client.putheader("Content-Type", "application/json")
            client.putheader("Content-Length", str(len(BODY)))
            client.endheaders()
            for part in (BODY[:5], BODY[5:]):
                time.sleep(1.0)  # two requests last longer than the deadline of headers
                client.send(part)
            answer = client.getresponse()
            assert (answer.status, len(json.loads(answer.read())["predictions"])) == (200, 1)


def test_a_page_of_another_site_reaches_nothing(tmp_path):
    foreign = {"Host": "evil.example", "Origin": "http://evil.example", "Content-Type": "application/json"}
    with serving(tmp_path, UPLOAD_TIMEOUT_S) as url:
        for headers, status in [(foreign, 421), ({**foreign, "Host": url.removeprefix("http://")}, 403)]:
            request = urllib.request.Request(f"{url}/v1/predict", data=BODY, headers=headers)
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=WAIT_S)
            with caught.value as answer:
                assert answer.code == status

"""A real server process with clients that stop in the middle of a request, beside honest clients."""

import http.client
import json
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import ExitStack, closing, contextmanager

import numpy as np
import pytest

PATIENT_S, HASTY_BODY_S, HASTY_S = 60.0, 5.0, 2.0
"""Time limits of bodies and headers of the servers; all slow clients of a test come within a body's limit."""
N_SLOW = 70
BODY = json.dumps({"instance": np.zeros((2, 3, 3), int).tolist()}).encode()
HEADERS = b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n"
WAIT_S = 60


@contextmanager
def serving(folder, body_timeout_s, header_timeout_s):
    limits = [str(body_timeout_s), str(header_timeout_s)]
    command = [sys.executable, "-m", "tests.integration.predict.fake_server", str(folder), *limits]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


@pytest.fixture(scope="module")
def patient_server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("patient"), PATIENT_S, PATIENT_S) as url:
        yield url


@pytest.fixture(scope="module")
def hasty_server(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("hasty"), HASTY_BODY_S, HASTY_S) as url:
        yield url


def ask(url, body=None):
    request = urllib.request.Request(url, data=body, headers={"Content-Type": "application/json"} if body else {})
    with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
        return answer.read().decode()


def connection_to(url):
    return closing(socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), WAIT_S))


def slow_clients(stack, url, start):
    """Return connections that have sent this, and send no more."""
    clients = []
    for _ in range(N_SLOW):
        clients.append(stack.enter_context(connection_to(url)))
        clients[-1].sendall(start)
    return clients


def n_answered(url):
    """Return how many predictions the server has answered; it has refused nobody."""
    metrics = ask(f"{url}/metrics")
    assert 'code="503"' not in metrics
    counts = re.findall(r'deepspark_requests_total\{path="/v1/predict",code="200"\} (\d+)', metrics)
    return int(counts[0]) if counts else 0


def read_to_end(client):
    answer = b""
    while part := client.recv(1 << 16):
        answer += part
    return answer


@pytest.mark.parametrize("start", [HEADERS + b"\r\n{", HEADERS + b"Expect: 100-continue\r\n\r\n", HEADERS])
def test_slow_clients_keep_nobody_out(patient_server, start):
    """Clients stop after the headers and one byte, after the headers, or within the headers."""
    url = patient_server
    n_before = n_answered(url)
    with ExitStack() as stack:
        slow_clients(stack, url, start)
        for _ in range(20):
            assert len(json.loads(ask(f"{url}/v1/predict", BODY))["predictions"]) == 1
            assert json.loads(ask(f"{url}/health")) == {"status": "ok"}
        assert n_answered(url) == n_before + 20


def test_slow_clients_are_given_up(hasty_server):
    url = hasty_server
    with ExitStack() as stack:
        answers = [read_to_end(client) for client in slow_clients(stack, url, HEADERS + b"\r\n{")]
        assert {answer.split(b"\r\n")[0] for answer in answers} == {b"HTTP/1.1 408 Request Timeout"}
        of_room = [b"other requests of the same client needed the room" in answer for answer in answers]
        late = [b"1 bytes of the body were here after 5 s" in answer for answer in answers]
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
def test_headers_that_never_end_are_given_up(hasty_server, start):
    """The first headers of a connection, or those of a further request."""
    url = hasty_server
    with connection_to(url) as client:
        if start:
            client.sendall(start)
            assert read_until(client, b'{"status":"ok"}').startswith(b"HTTP/1.1 200 OK")
        client.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\n")
        answer = drip(client, b"X-Slow: 1\r\n")
        assert answer.startswith(b"HTTP/1.1 408 Request Timeout\r\n")
        assert b"the headers were not whole after 2 s; send the request faster" in answer
        assert json.loads(ask(f"{url}/health")) == {"status": "ok"}


def test_a_connection_without_a_byte_is_closed_and_large_headers_are_refused(hasty_server):
    with connection_to(hasty_server) as silent, connection_to(hasty_server) as endless:
        endless.sendall(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X-Large: 1\r\n" * 6_000)
        assert endless.recv(1 << 16).startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n")
        assert read_to_end(silent) == b""


def test_a_slow_body_is_no_slow_header(tmp_path):
    """Headers came at once; the body has a deadline of its own, and the connection serves a further request."""
    with (
        serving(tmp_path, PATIENT_S, HASTY_S) as url,
        closing(http.client.HTTPConnection(url.removeprefix("http://"))) as client,
    ):
        for _ in range(2):
            client.putrequest("POST", "/v1/predict")
            client.putheader("Content-Type", "application/json")
            client.putheader("Content-Length", str(len(BODY)))
            client.endheaders()
            for part in (BODY[:5], BODY[5:]):
                time.sleep(0.3 * HASTY_S)  # two requests last longer than the deadline of headers
                client.send(part)
            answer = client.getresponse()
            assert (answer.status, len(json.loads(answer.read())["predictions"])) == (200, 1)


def test_a_page_of_another_site_reaches_nothing(patient_server):
    foreign = {"Host": "evil.example", "Origin": "http://evil.example", "Content-Type": "application/json"}
    for headers, status in [(foreign, 421), ({**foreign, "Host": patient_server.removeprefix("http://")}, 403)]:
        request = urllib.request.Request(f"{patient_server}/v1/predict", data=BODY, headers=headers)
        with pytest.raises(urllib.error.HTTPError) as caught:
            urllib.request.urlopen(request, timeout=WAIT_S)
        with caught.value as answer:
            assert answer.code == status

"""A real browser for tests: Chromium without a window, spoken to by its DevTools protocol over a WebSocket.

Playwright and Selenium bring 40 MB and a driver each. A few calls are enough here, and websockets comes with uvicorn, a
dependency of Airflow.
"""

from __future__ import annotations

import itertools
import json
import shutil
import subprocess
import tempfile
import time
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from websockets.sync.client import ClientConnection, connect

START_S = 60.0
_POLL_S = 0.1


class Page:
    """One tab. Used by one thread.

    Attributes:
        troubles: What the console showed at level error, uncaught exceptions among it.
    """

    def __init__(self, socket: ClientConnection, session: str) -> None:
        self.troubles: list[str] = []
        self._socket = socket
        self._session = session
        self._numbers = itertools.count(1)
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Call a method of the protocol and return its result."""
        number = next(self._numbers)
        message = {"id": number, "sessionId": self._session, "method": method, "params": params}
        self._socket.send(json.dumps(message))
        while True:
            answer = json.loads(self._socket.recv(timeout=60))
            if answer.get("id") == number:
                assert "error" not in answer, (method, answer)
                return answer["result"]
            self._note(answer)

    def _note(self, event: dict[str, Any]) -> None:
        params = event.get("params", {})
        if event.get("method") == "Runtime.exceptionThrown":
            self.troubles.append(json.dumps(params["exceptionDetails"])[:500])
        elif event.get("method") == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.troubles.append(json.dumps(params["args"])[:500])
        elif event.get("method") == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.troubles.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")

    def evaluate(self, expression: str) -> Any:
        """Return the value of an expression of JavaScript; a promise is waited for."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, (expression, answer)
        return answer["result"].get("value")

    def wait_until(self, expression: str, timeout_s: float = 120.0) -> Any:
        """Wait until an expression is true, and return its value; true for an element."""
        deadline = time.monotonic() + timeout_s
        awaited = f"Promise.resolve({expression}).then(value => value?.nodeType ? true : value)"  # a node has no value
        while True:
            with suppress(AssertionError):  # while one document goes and the next comes
                if value := self.evaluate(awaited):
                    return value
            if time.monotonic() > deadline:
                msg = f"not within {timeout_s:g} s: {expression}; the page: {self.text()[:2000]}; {self.troubles}"
                raise AssertionError(msg)
            time.sleep(_POLL_S)

    def goto(self, url: str) -> None:
        """Open an address and wait until its document is loaded."""
        self.call("Page.navigate", url=url)
        self.wait_until("document.readyState === 'complete'")

    def text(self) -> str:
        """Return what the page says."""
        return str(self.evaluate("document.body ? document.body.innerText : ''"))

    def fill(self, selector: str, text: str) -> None:
        """Type into a field; the text takes the place of what is there."""
        field = f"document.querySelector({selector!r})"
        self.wait_until(f"{field} && ({field}.focus(), {field}.select(), true)")
        self.call("Input.insertText", text=text)

    def choose(self, selector: str, value: str) -> None:
        """Choose an option of a ``select`` by its value."""
        field = f"document.querySelector({selector!r})"
        options = f"[...({field} || {{options: []}}).options].map(option => option.value)"
        self.wait_until(f"{options}.includes({value!r})")
        self.evaluate(f"{field}.value = {value!r}; {field}.dispatchEvent(new Event('change', {{bubbles: true}}))")

    def click(self, selector: str) -> None:
        """Click on an element."""
        self.wait_until(f"document.querySelector({selector!r}) && (document.querySelector({selector!r}).click(), true)")

    def attach(self, selector: str, path: Path) -> None:
        """Choose a file in a field of files."""
        node = self.call("Runtime.evaluate", expression=f"document.querySelector({selector!r})")["result"]["objectId"]
        self.call("DOM.setFileInputFiles", objectId=node, files=[str(path)])

    def press(self, key: str) -> None:
        """Press a key on whatever has the focus; ``key`` as in KeyboardEvent.key."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)

    def resize(self, width: int, height: int) -> None:
        """Take another size, in CSS pixels."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)

    def prefer(self, scheme: str) -> None:
        """Prefer ``light`` or ``dark``."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path: Path) -> None:
        """Write a PNG of what is to be seen."""
        path.write_bytes(b64decode(self.call("Page.captureScreenshot", format="png")["data"]))


def find_chromium() -> str | None:
    """Return the browser of this machine, None if it has none."""
    return next(
        (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
    )


@contextmanager
def browser_page() -> Iterator[Page]:
    """Run a browser with one page for the length of a ``with`` block."""
    command = find_chromium()
    assert command is not None, "this test needs a browser: apt-get install chromium"
    # Chromium's helper processes may write into its profile a moment longer.
    with tempfile.TemporaryDirectory(prefix="browser-", ignore_cleanup_errors=True) as folder:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0"]
        process = subprocess.Popen(
            [command, *options, f"--user-data-dir={folder}", "about:blank"],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            port, path = _address(Path(folder, "DevToolsActivePort"), process)
            with connect(f"ws://127.0.0.1:{port}{path}", max_size=None) as socket:
                yield _new_page(socket)
        finally:
            process.terminate()
            process.wait()


def _address(file: Path, process: subprocess.Popen[bytes]) -> tuple[str, str]:
    deadline = time.monotonic() + START_S
    while not (file.exists() and len(lines := file.read_text().splitlines()) == 2):
        assert process.poll() is None, f"the browser ended with code {process.returncode}"
        assert time.monotonic() < deadline, f"the browser did not start within {START_S:g} s"
        time.sleep(_POLL_S)
    return lines[0], lines[1]


def _new_page(socket: ClientConnection) -> Page:
    def call(number: int, method: str, **params: Any) -> dict[str, Any]:
        socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while (answer := json.loads(socket.recv(timeout=60))).get("id") != number:
            continue
        return answer["result"]

    target = call(-1, "Target.createTarget", url="about:blank")["targetId"]
    return Page(socket, call(-2, "Target.attachToTarget", targetId=target, flatten=True)["sessionId"])

"""Notifiers get filled templates; no failure of a notifier reaches the task."""

from __future__ import annotations

import email
import json
import logging
import signal
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk import BaseNotifier, BaseOperator
from airflow.sdk._shared.secrets_masker import redact

from deepspark_ops.operators.notices import send
from deepspark_ops.operators.notices.send import failure_notices, notify, notify_failed, setting_problem
from deepspark_ops.operators.notices.setting import SETTING
from deepspark_ops.operators.tasks.stage_run import TaskEnd

pytestmark = pytest.mark.airflow

NAME = f"{__name__}.FileNotifier"
TEXT = "{{ deepspark.event }}|{{ deepspark.dag }}|{{ deepspark.run }}|{{ deepspark.reason }}|{{ deepspark.link }}"
SITE = "http://airflow.example.com/base"
CONTEXT = {"ti": SimpleNamespace(dag_id="d", run_id="r:1", task_id="t")}


class FileNotifier(BaseNotifier):
    """Adds a line to a file."""

    template_fields = ("text",)

    def __init__(self, path: str, text: str = TEXT, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.path = path
        self.text = text

    def notify(self, context: Any) -> None:
        with Path(self.path).open("a") as file:
            file.write(f"{self.text}|{context['deepspark'].task}\n")


class FailingNotifier(BaseNotifier):
    """Fails as somebody else's code may."""

    def __init__(self, error: str = "ValueError", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.error = error

    def notify(self, context: Any) -> None:
        raise {"ValueError": ValueError, "SystemExit": SystemExit}[self.error]("no such channel")


class HangingNotifier(BaseNotifier):
    """Waits for a server that does not answer; the minute of a notifier is over at once."""

    def notify(self, context: Any) -> None:
        assert 0.0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 60.0
        signal.setitimer(signal.ITIMER_REAL, 0.01)
        threading.Event().wait(60)


@pytest.fixture
def notice_file(tmp_path: Path) -> Path:
    return tmp_path / "told.txt"


@pytest.fixture
def use(tmp_path: Path, notice_file: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Name notifiers in the setting; by default a notifier that writes into ``notice_file``."""
    sys.modules.setdefault(__name__, sys.modules[FileNotifier.__module__])
    monkeypatch.setattr(send, "site_url", lambda: SITE)

    def write(*entries: dict[str, Any]) -> None:
        file = tmp_path / "notifiers.json"
        file.write_text(json.dumps(entries or [{"notifier": NAME, "arguments": {"path": str(notice_file)}}]))
        monkeypatch.setenv(SETTING, str(file))

    return write


def entry(name: str, **more: Any) -> dict[str, Any]:
    return {"notifier": f"{__name__}.{name}", **more}


def test_templates_get_event_dag_run_reason_and_link(use: Callable[..., None], notice_file: Path) -> None:
    use()
    notify(CONTEXT, "promoted", "promoted: +1 <point>")
    notify(CONTEXT, "approval", "waits", page="answer")
    assert notice_file.read_text().splitlines() == [
        f"promoted|d|r:1|promoted: +1 <point>|{SITE}/deepspark/runs/d/r%3A1/report|t",
        f"approval|d|r:1|waits|{SITE}/dags/d/runs/r%3A1/tasks/t/required_actions|t",
    ]
    assert "deepspark" not in CONTEXT


def test_a_notifier_is_told_of_its_events_alone(use: Callable[..., None], notice_file: Path) -> None:
    arguments = {"path": str(notice_file), "text": "{{ deepspark.event }}"}
    use(entry("FileNotifier", arguments=arguments, events=["failed", "kept"]))
    for event in ("failed", "promoted", "kept", "approval"):
        notify(CONTEXT, event, "why")  # type: ignore[arg-type]
    assert notice_file.read_text().splitlines() == ["failed|t", "kept|t"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (TaskEnd("lenet.prototxt:3: unknown field", 2), "lenet.prototxt:3: unknown field"),
        (ValueError("why"), "why"),
        (None, "task t failed"),
    ],
)
def test_a_failed_task_tells_its_message(use: Callable[..., None], notice_file: Path, error: Any, reason: str) -> None:
    use()
    notify_failed({**CONTEXT, "exception": error})
    assert notice_file.read_text() == f"failed|d|r:1|{reason}|{SITE}/deepspark/runs/d/r%3A1/training|t\n"


@pytest.mark.parametrize(
    ("failing", "why"),
    [
        (entry("FailingNotifier"), "ValueError: no such channel"),
        (entry("FailingNotifier", arguments={"error": "SystemExit"}), "SystemExit: no such channel"),
        (entry("FileNotifier", arguments={"where": "x"}), "TypeError: "),
        (entry("FileNotifier", arguments={"path": "p", "text": "{{ nonsense("}), "TemplateSyntaxError: "),
        (entry("NoNotifier"), "ConfigError: DEEPSPARK_NOTIFIERS: there is no notifier"),
        ({"notifier": "no_such.module.Notifier"}, "(ModuleNotFoundError: No module named 'no_such')"),
    ],
)
def test_an_error_of_a_notifier_is_a_line_and_other_notifiers_run(
    use: Callable[..., None], notice_file: Path, caplog: pytest.LogCaptureFixture, failing: dict[str, Any], why: str
) -> None:
    use(failing, entry("FileNotifier", arguments={"path": str(notice_file), "text": "told"}))
    notify(CONTEXT, "kept", "why")
    assert notice_file.read_text() == "told|t\n"
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert line.startswith(f"notifier {failing['notifier']} was not told kept: ")
    assert why in line


def test_a_secret_that_stands_in_the_setting_all_the_same_is_in_no_log(use: Callable[..., None]) -> None:
    arguments = {"api_key": "s3cret-9f3a", "to": "team@example.com"}
    use(entry("FailingNotifier", arguments=arguments))
    notify(CONTEXT, "kept", "why")
    assert redact("key s3cret-9f3a of team@example.com") == "key *** of team@example.com"


def test_a_hanging_notifier_is_given_up(
    use: Callable[..., None], notice_file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    of_pytest = signal.setitimer(signal.ITIMER_REAL, 0)  # pytest-timeout's; a process has one alarm
    use(entry("HangingNotifier"), entry("FileNotifier", arguments={"path": str(notice_file), "text": "told"}))
    old_handler = signal.getsignal(signal.SIGALRM)
    notify(CONTEXT, "kept", "why")
    assert notice_file.read_text() == "told|t\n"
    assert "was not told kept: TimeoutError: no end after 60 s" in caplog.text
    assert (signal.getsignal(signal.SIGALRM), signal.getitimer(signal.ITIMER_REAL)) == (old_handler, (0.0, 0.0))
    signal.setitimer(signal.ITIMER_REAL, *of_pytest)


def test_a_wrong_setting_fails_nothing_and_is_said(
    use: Callable[..., None], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    use({"notifier": "a.A", "args": "s3cret"})
    notify(CONTEXT, "kept", "why")
    assert "nobody is told that the event is kept: DEEPSPARK_NOTIFIERS=" in caplog.text
    caplog.clear()
    for _ in range(3):  # once for each DAG file that a process reads
        assert failure_notices() == {"on_failure_callback": notify_failed}
    assert caplog.text.count("notifications do not work: DEEPSPARK_NOTIFIERS=") == 1
    assert "s3cret" not in caplog.text


def test_dags_get_the_callback_where_somebody_is_to_be_told(
    use: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(SETTING, raising=False)
    assert (failure_notices(), setting_problem()) == ({}, None)
    use()
    assert setting_problem() is None
    operator = BaseOperator(task_id="t", default_args=failure_notices())
    assert operator.on_failure_callback == [notify_failed]
    use({"notifier": "json.decoder"})
    assert setting_problem() == "notifications do not work: DEEPSPARK_NOTIFIERS: json.decoder is no class; " + (
        "a notifier is a subclass of airflow.sdk.BaseNotifier"
    )


class MailServer(socketserver.StreamRequestHandler):
    """Takes mails as RFC 5321 says, as far as Python's client asks."""

    mails: list[str]

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline().strip().upper():
            if line == b"DATA":
                self.wfile.write(b"354 go on\r\n")
                lines = iter(self.rfile.readline, b".\r\n")
                self.mails.append(b"".join(lines).decode())
            self.wfile.write(b"221 bye\r\n" if line == b"QUIT" else b"250 ok\r\n")
            if line == b"QUIT":
                return


@pytest.fixture
def mail_server() -> Iterator[tuple[int, list[str]]]:
    mails: list[str] = []
    handler = type("Handler", (MailServer,), {"mails": mails})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        yield server.server_address[1], mails
        server.shutdown()


def test_airflows_own_mail_notifier_sends_the_reason(
    use: Callable[..., None], mail_server: tuple[int, list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    port, mails = mail_server
    connection = {
        "conn_type": "smtp",
        "host": "127.0.0.1",
        "port": port,
        "extra": {"disable_ssl": True, "disable_tls": True},
    }
    monkeypatch.setenv("AIRFLOW_CONN_TEAM_MAIL", json.dumps(connection))
    arguments = {
        "smtp_conn_id": "team_mail",
        "from_email": "airflow@example.com",
        "to": "team@example.com",
        "subject": "{{ deepspark.dag }}: {{ deepspark.event }}",
        "html_content": "{{ deepspark.reason }} <a href='{{ deepspark.link }}'>report</a>",
    }
    use({"notifier": "airflow.providers.smtp.notifications.smtp.SmtpNotifier", "arguments": arguments})
    notify(CONTEXT, "kept", "kept production: nobody approved within 24 h")
    (mail,) = mails
    assert "Subject: d: kept" in mail
    assert "To: team@example.com" in mail
    (body,) = email.message_from_string(mail).get_payload()
    text = body.get_payload(decode=True).decode()
    link = f"<a href='{SITE}/deepspark/runs/d/r%3A1/report'>report</a>"
    assert text.strip() == f"kept production: nobody approved within 24 h {link}"

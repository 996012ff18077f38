from __future__ import annotations

import pytest

from deepspark_ops.tracking.configured import client_variables, is_configured, redacted


@pytest.mark.parametrize(("uri", "is_there"), [(None, False), ("", False), ("  ", False), ("http://h:5000", True)])
def test_tracking_is_on_where_mlflows_own_variable_names_a_server(uri: str | None, is_there: bool) -> None:
    assert is_configured({} if uri is None else {"MLFLOW_TRACKING_URI": uri}) is is_there


def test_the_clients_waits_are_short_unless_the_user_says_otherwise() -> None:
    assert client_variables({})["MLFLOW_HTTP_REQUEST_TIMEOUT"] == "10"
    assert "MLFLOW_HTTP_REQUEST_TIMEOUT" not in client_variables({"MLFLOW_HTTP_REQUEST_TIMEOUT": "90"})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("request to https://ada:p@ss@h:5000/api failed", "request to https://***@h:5000/api failed"),
        ("Bearer abcdefgh refused", "Bearer *** refused"),
        ("key AKIA/xyz+1 is wrong", "key *** is wrong"),
        ("http://h:5000/x@y is no address of a user", "http://h:5000/x@y is no address of a user"),
        ("pw is too short to be looked for", "pw is too short to be looked for"),
    ],
)
def test_no_secret_of_the_environment_is_in_a_message(text: str, expected: str) -> None:
    secrets = {
        "MLFLOW_TRACKING_TOKEN": "abcdefgh",
        "AWS_SECRET_ACCESS_KEY": "AKIA/xyz+1",
        "MLFLOW_TRACKING_PASSWORD": "pw",
        "MLFLOW_EXPERIMENT_NAME": "request",
    }
    assert redacted(text, secrets) == expected

"""Credentials of object stores from Airflow's connections, as environment variables of the stores' clients.

pyarrow, Hadoop and Spark read these variables themselves, so no credential is in an argument list, a config or a log.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from tempfile import NamedTemporaryFile
from typing import Any, Final

from airflow.sdk import Connection
from airflow.sdk.log import mask_secret

from deepspark_ops.errors import ConfigError
from deepspark_ops.operators.provider.airflow_names import AirflowNotFoundException

Variables = dict[str, str | None]
"""Name -> value of an environment variable; None removes the variable."""


@dataclass(frozen=True)
class StoreKind:
    """A kind of object store.

    Attributes:
        schemes: Schemes of the store's addresses.
        connection_type: Type of Airflow's connection.
        default: Name of Airflow's default connection.
        refused: Extra fields of the connection that the variables cannot express, with the remedy.
        variables: Returns the variables of a connection and its extra fields; the stack removes temporary files.
    """

    schemes: tuple[str, ...]
    connection_type: str
    default: str
    refused: Mapping[str, str]
    variables: Callable[[Any, Mapping[str, Any], ExitStack], Variables]


def _aws(connection: Any, extra: Mapping[str, Any], stack: ExitStack) -> Variables:
    del stack
    key = connection.login or extra.get("aws_access_key_id")
    secret = connection.password or extra.get("aws_secret_access_key")
    if bool(key) != bool(secret):
        msg = "has an access key or a secret key alone; give both (login and password) or none"
        raise ConfigError(msg)
    variables: Variables = {}
    if key or extra.get("profile_name"):
        variables |= {
            "AWS_ACCESS_KEY_ID": key,
            "AWS_SECRET_ACCESS_KEY": secret,
            "AWS_SESSION_TOKEN": extra.get("aws_session_token"),
            "AWS_PROFILE": extra.get("profile_name"),
        }
    if region := extra.get("region_name"):
        variables |= {"AWS_REGION": region, "AWS_DEFAULT_REGION": region}
    of_s3 = (extra.get("service_config") or {}).get("s3") or {}
    if endpoint := of_s3.get("endpoint_url") or extra.get("endpoint_url"):
        variables |= {"AWS_ENDPOINT_URL": endpoint, "AWS_ENDPOINT_URL_S3": None}
    return variables


def _google(connection: Any, extra: Mapping[str, Any], stack: ExitStack) -> Variables:
    del connection
    key_file = extra.get("key_path")
    if key := extra.get("keyfile_dict"):
        file = stack.enter_context(NamedTemporaryFile("w", prefix="deepspark-", suffix=".json"))  # mode 600
        file.write(key if isinstance(key, str) else json.dumps(key))
        file.flush()
        key_file = file.name
    return {"GOOGLE_APPLICATION_CREDENTIALS": key_file} if key_file else {}


def _azure(connection: Any, extra: Mapping[str, Any], stack: ExitStack) -> Variables:
    del stack
    key = connection.password or extra.get("shared_access_key")
    return {"AZURE_STORAGE_ACCOUNT": connection.login, "AZURE_STORAGE_KEY": key} if connection.login and key else {}


_ROLE: Final = "a profile_name with the role in the AWS config file of each host"
_ACCOUNT: Final = "the account's name as login and its key as password"
KINDS: Final = (
    StoreKind(
        ("s3", "s3a"), "aws", "aws_default",
        {"role_arn": _ROLE, "assume_role_method": _ROLE, "config_kwargs": "settings in the AWS config file"}, _aws,
    ),
    StoreKind(
        ("gs",), "google_cloud_platform", "google_cloud_default",
        dict.fromkeys(("key_secret_name", "credential_config_file", "impersonation_chain"), "key_path or keyfile_dict"),
        _google,
    ),
    StoreKind(
        ("abfs", "abfss"), "wasb", "wasb_default",
        dict.fromkeys(("connection_string", "sas_token", "tenant_id", "managed_identity_client_id"), _ACCOUNT), _azure,
    ),
)  # fmt: skip


@dataclass(frozen=True)
class StoreAccess:
    """The variables of some connections.

    Attributes:
        connections: Names of the connections that have variables.
        variables: The variables of all.
    """

    connections: tuple[str, ...]
    variables: Variables


@contextmanager
def store_access(texts: Iterable[str], conn_id: str | None) -> Iterator[StoreAccess]:
    """Give this process and the child processes the credentials of the stores in some texts.

    Args:
        texts: Arguments and paths of a task. An address in a store asks for the default connection of the store.
        conn_id: A connection that replaces the default connection of its kind of store, and is used without an address,
            too: lists on the disk may name objects. None or an empty text: default connections only.

    Raises:
        ConfigError: There is no such connection, its type is of no store, or a field of it cannot be used.
    """
    with ExitStack() as stack:
        access = _read(set(_schemes(texts)), conn_id or None, stack)
        previous = {name: os.environ.get(name) for name in access.variables}
        stack.callback(_set_variables, previous)
        _set_variables(access.variables)
        yield access


def _schemes(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        yield from re.findall(r"(?<![\w+.-])([a-z0-9]+)://", text)


def _read(schemes: set[str], conn_id: str | None, stack: ExitStack) -> StoreAccess:
    named = None if conn_id is None else _connection(conn_id)
    types = [kind.connection_type for kind in KINDS]
    if conn_id is not None and (named is None or named.conn_type not in types):
        problem = "there is no such connection" if named is None else f"its type is {named.conn_type}"
        msg = f"store_conn_id={conn_id}: {problem}; it must name an Airflow connection of type {', '.join(types)}"
        raise ConfigError(msg)
    connections: dict[str, Variables] = {}
    for kind in KINDS:
        is_named = named is not None and named.conn_type == kind.connection_type
        if not is_named and not schemes & set(kind.schemes):
            continue
        connection = named if is_named else _connection(kind.default)
        if connection is not None and (variables := _variables(kind, connection, stack)):
            connections[str(connection.conn_id)] = variables
    merged = {name: value for variables in connections.values() for name, value in variables.items()}
    return StoreAccess(tuple(connections), merged)


def _connection(conn_id: str) -> Any:
    try:
        return Connection.get(conn_id)
    except AirflowNotFoundException:
        return None


def _variables(kind: StoreKind, connection: Any, stack: ExitStack) -> Variables:
    label = f"Airflow connection {connection.conn_id}"
    try:
        plain = json.loads(connection.extra or "{}")
    except ValueError:
        plain = None
    if not isinstance(plain, dict):
        msg = f"{label}: extra is no JSON object"
        raise ConfigError(msg)
    # Older connections of Google and Azure have names like extra__wasb__sas_token.
    prefix = f"extra__{kind.connection_type}__"
    extra = {name.removeprefix(prefix): value for name, value in plain.items() if value not in (None, "")}
    lines = [f"{label}: {name} is not supported; give {kind.refused[name]}" for name in extra if name in kind.refused]
    if lines:
        raise ConfigError("\n".join(lines))
    try:
        variables = kind.variables(connection, extra, stack)
    except ConfigError as error:
        msg = f"{label}: {error}"
        raise ConfigError(msg) from None
    for name, value in variables.items():
        if value and re.search("SECRET|TOKEN|KEY$", name):
            mask_secret(value)
    return variables


def _set_variables(variables: Variables) -> None:
    for name, value in variables.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value

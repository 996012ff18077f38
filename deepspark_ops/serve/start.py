"""``deepspark serve``: load a bundle, open a port, answer until SIGTERM or Ctrl-C."""

from __future__ import annotations

import errno
import gc
import ipaddress
import os
import signal
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING

from caffe_import.file_access.regular_file import regular_text
from deepspark_ops.config.commands.serve import ServeConfig
from deepspark_ops.devices.host_cores import host_cores
from deepspark_ops.errors import ConfigError

if TYPE_CHECKING:
    from deepspark_ops.predict.loaded_bundle import LoadedBundle
    from deepspark_ops.serve.guard import App

TOKEN_VARIABLE = "DEEPSPARK_SERVE_TOKEN"
_STOP_S = 30
_BACKLOG = 2_048
Say = Callable[[str], None]


def limit_image_pixels(n_pixels: int) -> None:
    """Let OpenCV refuse larger images by the header. OpenCV reads the limit on import: call the function before."""
    os.environ.setdefault("OPENCV_IO_MAX_IMAGE_PIXELS", str(n_pixels))


def serve(config: ServeConfig, *, say: Say, warn: Say) -> None:
    """Serve a bundle until SIGTERM or Ctrl-C, in the main thread.

    Args:
        config: Bundle, address and limits.
        say: Called with the address, and with the command of TensorFlow Serving.
        warn: Called with a warning about an address that other hosts reach.

    Raises:
        DeepSparkError, CaffeImportError: A mistake of the user: no bundle, a used port, no such device.
    """
    for number in (signal.SIGTERM, signal.SIGINT):  # a shell starts background jobs with SIGINT ignored
        signal.signal(number, signal.default_int_handler)
    limit_image_pixels(config.max_image_pixels)
    token = read_token(config.token_file, os.environ)
    with open_port(config.host, config.port) as opened:
        try:
            _serve(config, token, opened, say, warn)
        except KeyboardInterrupt:  # the waiting requests have answers
            say("serve: ended")


def _serve(config: ServeConfig, token: str, opened: socket.socket, say: Say, warn: Say) -> None:
    # Heavy imports, which --help does not need.
    from deepspark_ops.export.manifest import find_bundle
    from deepspark_ops.serve.app import make_app
    from deepspark_ops.serve.guard import LOOPBACK_NAMES, Limits
    from deepspark_ops.serve.production_server import serving_commands
    from deepspark_ops.serve.service import Service, warm_up

    config = config.model_copy(update={"bundle": find_bundle(config.bundle)})
    model = load_served(config)
    warm_up(model)
    for remark in model.form.remarks:
        warn(remark)
    is_local = is_loopback(config.host)
    if not is_local:
        guarded = "callers need the token" if token else f"anybody who reaches it may call: set {TOKEN_VARIABLE}"
        warn(f"host={config.host}: other machines reach this server, without encryption; {guarded}")
    names = None if token else LOOPBACK_NAMES | host_names(config)
    limits = Limits(config.max_upload, config.queue_size, token, names, config.upload_timeout_s)
    gc.collect()
    gc.freeze()  # the graph's objects stay; the collector would visit the objects for each large request
    app = make_app(Service.of(model, config), config, limits)
    commands = serving_commands(config.bundle, model.manifest.net)
    say(
        f"serve: net {model.manifest.net} of {config.bundle} on {address(opened)} ({model.device});"
        " GET / is a page for pictures, POST /v1/predict takes JSON; Ctrl-C ends it\n"
        "serve: for production there is TensorFlow Serving, which takes the same JSON:\n"
        f"  {commands['docker']}\n"
        f"  {commands['program']}"
    )
    run_server(app, opened, header_timeout_s=config.upload_timeout_s)


def run_server(app: App, opened: socket.socket, *, header_timeout_s: float) -> None:
    """Answer on a listening socket until SIGTERM or Ctrl-C, in the main thread.

    Args:
        app: Answers requests.
        opened: The socket.
        header_timeout_s: Time for all headers of a request.
    """
    import uvicorn

    from deepspark_ops.serve.header_deadline import protocol_with_deadline

    server = uvicorn.Config(
        app, http=protocol_with_deadline(header_timeout_s), log_level="warning", access_log=False, server_header=False,
        timeout_graceful_shutdown=_STOP_S, timeout_keep_alive=_STOP_S, backlog=_BACKLOG,
    )  # fmt: skip
    uvicorn.Server(server).run(sockets=[opened])


def load_served(config: ServeConfig) -> LoadedBundle:
    """Load the bundle of a server.

    Raises:
        DeepSparkError: The bundle does not exist, or a file of the bundle is missing or changed.
        DeviceError: The device does not exist.
    """
    from deepspark_ops.export.manifest import read_manifest
    from deepspark_ops.predict.loaded_bundle import choose_device, load_bundle
    from deepspark_ops.predict.samples import form_of_config

    manifest = read_manifest(config.bundle)
    form = form_of_config(config, manifest, config.bundle)
    device = choose_device(config.devices, n_threads=config.threads or host_cores())
    return load_bundle(config.bundle, manifest, form, device)


def read_token(file: Path | None, environment: Mapping[str, str]) -> str:
    """Return the token that callers must send; empty for no token.

    Raises:
        ConfigError: The file cannot be read, or is empty.
    """
    if file is None:
        return environment.get(TOKEN_VARIABLE, "").strip()
    try:
        token = regular_text(file).strip()
    except (OSError, UnicodeDecodeError) as error:
        msg = f"token_file={file}: {getattr(error, 'strerror', None) or error}"
        raise ConfigError(msg) from error
    if not token:
        msg = f"token_file={file}: is empty; write a token of your choice into it, e.g. of: openssl rand -hex 24"
        raise ConfigError(msg)
    return token


def open_port(host: str, port: int) -> socket.socket:
    """Return a listening socket.

    Raises:
        ConfigError: This machine has no such address, or another program uses the port.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except socket.gaierror as error:
        hint = "127.0.0.1 is this machine alone, 0.0.0.0 all its addresses"
        msg = f"host={host}: no such address: {error.strerror}; {hint}"
        raise ConfigError(msg) from error
    except OSError as error:
        is_used = error.errno == errno.EADDRINUSE
        remedy = (
            "another program listens there; give another port, 0 for any that is free" if is_used else error.strerror
        )
        msg = f"host={host}, port={port}: {remedy}"
        raise ConfigError(msg) from error


def host_names(config: ServeConfig) -> frozenset[str]:
    """Return the server's names besides this machine's loopback names, in small letters."""
    names = [] if config.host_names is None else config.host_names.split(",")
    if not is_loopback(config.host):
        names += [config.host, gethostname()]
    return frozenset(name.lower() for name in names)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address.

    Example:
        >>> is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
        (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address(opened: socket.socket) -> str:
    """Return the URL of a listening socket."""
    host, port = opened.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

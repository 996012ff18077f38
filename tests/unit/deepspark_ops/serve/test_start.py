import socket
from pathlib import Path

import pytest

from deepspark_ops.config.commands.serve import ServeConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.serve import start
from deepspark_ops.serve.production_server import serving_commands
from deepspark_ops.serve.start import TOKEN_VARIABLE, address, host_names, open_port, read_token
from tests.reference.bundles import make_bundle


def test_a_token_is_in_a_file_or_the_environment(tmp_path):
    assert read_token(None, {}) == ""
    assert read_token(None, {TOKEN_VARIABLE: " abc\n"}) == "abc"
    (tmp_path / "token").write_text("from file\n")
    assert read_token(tmp_path / "token", {TOKEN_VARIABLE: "abc"}) == "from file"
    (tmp_path / "empty").touch()
    with pytest.raises(ConfigError, match="is empty; write a token"):
        read_token(tmp_path / "empty", {})
    with pytest.raises(ConfigError, match="No such file"):
        read_token(tmp_path / "none", {})


def test_ports():
    with open_port("127.0.0.1", 0) as opened:
        assert address(opened) == f"http://127.0.0.1:{opened.getsockname()[1]}"
        with pytest.raises(ConfigError, match="another program listens there"):
            open_port("127.0.0.1", opened.getsockname()[1])
    with pytest.raises(ConfigError, match="host="):
        open_port("no.such.host.invalid", 0)
    if socket.has_ipv6:
        with open_port("::1", 0) as opened:
            assert address(opened).startswith("http://[::1]:")


def test_tensorflow_serving_is_named_with_whole_commands(tmp_path):
    bundle = tmp_path / "my bundle"
    commands = serving_commands(bundle, "LeNet 5")
    assert f"-v '{bundle}/saved_model:/models/LeNet_5/1:ro' -e MODEL_NAME=LeNet_5" in commands["docker"]
    assert f"cp -r '{bundle}/saved_model' serving/LeNet_5/1 &&" in commands["program"]


def test_names_of_the_server():
    bundle = Path("bundle")
    assert host_names(ServeConfig(bundle=bundle, host_names="Proxy.example,b")) == {"proxy.example", "b"}
    names = host_names(ServeConfig(bundle=bundle, host="0.0.0.0", host_names="b"))
    assert names == {"b", "0.0.0.0", socket.gethostname().lower()}
    with pytest.raises(ValueError, match="host_names"):
        ServeConfig(bundle=bundle, host_names="http://proxy")


def test_a_run_stands_for_its_bundle(tmp_path, monkeypatch):
    def load(config):
        raise ConfigError(f"loads {config.bundle}")

    monkeypatch.setattr(start, "load_served", load)
    monkeypatch.setattr(start.signal, "signal", lambda *_: None)
    bundle = make_bundle(tmp_path / "run" / "bundle")
    for folder in (bundle, bundle.parent):
        with pytest.raises(ConfigError, match=f"^loads {bundle}$"):
            start.serve(ServeConfig(bundle=folder, port=0), say=print, warn=print)

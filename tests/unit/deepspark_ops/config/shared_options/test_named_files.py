"""Folders and modules as options, as JSON and as a file list have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepspark_ops.config.base import parse_config, with_paths_from
from deepspark_ops.config.shared_options.named_files import NamedFiles
from deepspark_ops.config.train import TrainConfig
from deepspark_ops.errors import ConfigError


@pytest.mark.parametrize("folders", ["a,b", ["a", "b"], ["a, b"], [Path("a"), Path("b")], ("a", "", "b")])
def test_folders_come_as_a_list_or_a_text(folders: object) -> None:
    assert parse_config(NamedFiles, {"allowed_root": folders}).allowed_root == (Path("a"), Path("b"))


def test_a_run_keeps_them_with_absolute_folders() -> None:
    values = {"solver": "s", "run_dir": "r", "named_files": {"allowed_root": ["a"], "python_layers": "m.n,o"}}
    config = with_paths_from(parse_config(TrainConfig, values), Path("/w"))
    assert config.named_files.allowed_root == (Path("/w/a"),)
    assert config.named_files.python_layers == ("m.n", "o")
    assert TrainConfig.model_validate_json(config.model_dump_json()) == config


def test_a_modules_name_is_checked() -> None:
    with pytest.raises(ConfigError, match="'a b' is no name of a module; allowed: names like "):
        parse_config(NamedFiles, {"python_layers": "a b"})

from pathlib import Path

import pytest

from deepspark_ops.config.base import parse_config, with_paths_from
from deepspark_ops.config.commands.predict import FeaturesConfig, PredictConfig
from deepspark_ops.errors import ConfigError

BUNDLE = {"bundle": "b", "input": "i"}


@pytest.mark.parametrize("output", ["p.csv", "s3://bucket/p.JSON", "p.h5"])
def test_an_output_named_like_another_format_is_refused(output):
    with pytest.raises(ConfigError, match=r"the answers are Parquet; allowed: a name that ends in \.parquet"):
        parse_config(PredictConfig, {**BUNDLE, "output": output})
    with pytest.raises(ConfigError, match="the answers are Parquet"):
        parse_config(FeaturesConfig, {**BUNDLE, "output": output, "blobs": "fc7"})


@pytest.mark.parametrize("output", ["p.parquet", "p", "answers.2026-11-28", "table:shop.csv"])
def test_other_names_are_taken(output):
    assert str(parse_config(PredictConfig, {**BUNDLE, "output": output}).output) == output


def test_tables_of_the_catalog_and_folders_in_archives_are_no_paths_of_the_present_folder():
    texts = {"bundle": "b", "input": "table:shop.photos", "output": "table:shop.answers"}
    config = with_paths_from(parse_config(PredictConfig, texts), Path("/here"))
    assert (str(config.bundle), str(config.input), str(config.output)) == ("/here/b", *list(texts.values())[1:])
    values = {"bundle": "b", "input": "a.tar::l.txt", "root_folder": "images", "output": "p"}
    config = with_paths_from(parse_config(PredictConfig, values), Path("/here"))
    assert (str(config.input), str(config.root_folder)) == ("/here/a.tar::l.txt", "images")

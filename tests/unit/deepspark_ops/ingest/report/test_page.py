"""The page of a dataset: content, comparison with the version before, and nothing foreign."""

import re

import numpy as np
import pytest

from deepspark_ops.config.ingest import IngestConfig
from deepspark_ops.ingest.report.page import add_report, histogram_svg, profile_before, render_report
from deepspark_ops.shards.manifest import manifest_path
from tests.reference.ingest_in_process import ingest
from tests.reference.raw_sources import write_images
from tests.reference.table_files import a_table, ingest_parts, write_table


@pytest.fixture
def config(tmp_path):
    source = write_images(tmp_path / "raw", 60)
    names = ["<cat>", "dog", "emu"]
    lines = [f"img/{i}.png {names[i % 3]}" for i in range(60)]
    source.write_text("\n".join(lines[:40]) + "\n")
    config = IngestConfig(source=source, output=tmp_path / "out", samples_per_shard=20)
    ingest(config, tmp_path / "work")
    source.write_text("\n".join([*lines[:40], *(f"img/{i}.png <cat>" for i in range(40, 60))]) + "\n")
    (source.parent / "img" / "41.png").write_bytes((source.parent / "img" / "40.png").read_bytes())
    return config


def test_a_second_version_is_compared_with_the_first(tmp_path, config):
    first = render_report(config.output, None)
    assert "Since the version before" not in first
    assert 'class="before"' not in first
    old_profile = profile_before(config.output, None)
    ingest(config, tmp_path / "work", goes_on=True)
    add_report(config.output, old_profile)
    page = (config.output / "report.html").read_text()
    assert "Version 2 of" in page
    assert old_profile.digest[:19] in page
    assert "&lt;cat&gt;" in page
    assert "<cat>" not in page
    index = float(re.search(r"population stability index (\d\.\d+)", page)[1])
    assert index > 0.02
    assert page.count('<polyline class="before"') == 2  # mean and spread; all images have one size
    assert "has the content of train record" in page or "has the content of test record" in page
    assert page.count("data:image/png;base64,") == 3
    assert not any(address in page for address in ("http://", "https://", 'src="/', "@import", "<script"))


def test_no_report_is_a_warning_and_no_dataset_has_no_profile(tmp_path, config, caplog):
    assert profile_before(tmp_path / "gone", None) is None
    manifest_path(config.output, "test").write_text("{")
    add_report(config.output, None)
    assert not (config.output / "report.html").exists()
    assert "ingest: no report of the dataset" in caplog.text


def test_a_histogram_has_bars_of_the_shares_and_a_line_for_before():
    svg = histogram_svg("a < b", np.array([0.0, 1.0, 2.0]), np.array([30.0, 10.0]), np.array([10.0, 30.0]))
    heights = [float(text) for text in re.findall(r'class="now"[^>]*height="([\d.]+)"', svg)]
    assert heights == [120.0, 40.0]
    assert '<polyline class="before" points="0.00,80.00 160.00,80.00 160.00,0.00 320.00,0.00"/>' in svg
    assert "<title>0 to 1: 75.0 %, before 25.0 %</title>" in svg
    assert 'aria-label="a &lt; b"' in svg


def test_a_tables_columns_are_shown_as_they_came(tmp_path):
    table = a_table(60)
    source = write_table(tmp_path / "t.parquet", table)
    config = IngestConfig(source=source, output=tmp_path / "out", feature_columns="f*", label_column="price")
    manifests = ingest_parts(config, [table], tmp_path / "work")
    page = render_report(tmp_path / "out", None)
    assert "<h2>Classes</h2>" not in page
    assert "values to be predicted" in page
    for name, mean in zip(("f0", "f1", "f2"), manifests["train"].table.mean, strict=True):
        assert f'<code>{name}</code></td><td class="number">{mean:,.5g}</td>' in page
    assert "training rows have no value; missing=mean" in page

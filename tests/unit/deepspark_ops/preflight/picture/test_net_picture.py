import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest

from caffe_import.files.datum import encode_datum
from deepspark_ops.config.check import CheckConfig
from deepspark_ops.errors import ConfigError
from deepspark_ops.preflight.inspect_solver import inspect_solver
from deepspark_ops.preflight.picture.net_layout import lay_out
from deepspark_ops.preflight.picture.net_picture import net_svg, write_picture
from deepspark_ops.shards.files.lmdb_shard import sample_key, write_lmdb_shard
from tests.paths import FIXTURES

NETS = FIXTURES / "nets"
SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("imagenet")
    image = np.zeros((3, 256, 256), np.uint8)
    for name in ("imagenet_train_lmdb", "imagenet_test_lmdb"):
        write_lmdb_shard(folder / name, [(sample_key(k, "x"), encode_datum(image, k)) for k in range(2)])
    for net in ("googlenet", "resnet50"):
        (folder / f"{net}.prototxt").write_text(
            f'net: "{NETS}/{net}.prototxt" base_lr: 0.01 lr_policy: "fixed" max_iter: 100 snapshot_prefix: "x"'
        )
    return folder


@pytest.fixture(scope="module")
def googlenet(folder):
    return inspect_solver(CheckConfig(solver=folder / "googlenet.prototxt"))


def boxes(svg):
    drawn = {}
    for group in ElementTree.fromstring(svg).iter(f"{SVG}g"):
        rect, *texts = list(group)
        drawn[texts[0].text] = (
            *(float(rect.get(name)) for name in ("x", "y", "width", "height")),
            [text.text for text in texts],
        )
    return drawn


def test_box_says_name_type_shape_and_what_works_in_place(googlenet):
    drawn = boxes(net_svg(googlenet.nets[0]))
    assert drawn["conv1/7x7_s2"][4] == ["conv1/7x7_s2", "Convolution 32x64x112x112", "+ ReLU"]
    assert drawn["loss1/fc"][4] == ["loss1/fc", "InnerProduct 32x1024", "+ ReLU, Dropout"]
    assert drawn["loss2/loss"][4] == ["loss2/loss", "SoftmaxWithLoss", "reads label"]
    in_place = [layer for layer in googlenet.nets[0].layers if layer.tops == layer.bottoms]
    assert len(drawn) == len(googlenet.nets[0].layers) - len(in_place)


def test_no_box_covers_another(googlenet):
    drawn = list(boxes(net_svg(googlenet.nets[0])).values())
    for index, (x, y, width, height, _) in enumerate(drawn):
        for other_x, other_y, other_width, other_height, _ in drawn[:index]:
            is_apart = (
                x + width < other_x or other_x + other_width < x or y + height < other_y or other_y + other_height < y
            )
            assert is_apart


def test_data_run_from_top_to_bottom(googlenet):
    net = googlenet.nets[0]
    drawn = boxes(net_svg(net))
    makers = {}
    for layer in net.layers:
        if layer.name in drawn:
            for blob in layer.bottoms:
                maker = drawn[makers[blob]]
                assert maker[1] + maker[3] < drawn[layer.name][1]
            makers.update(dict.fromkeys(layer.tops, layer.name))


def test_picture_of_googlenet_fits_a_page_in_width(googlenet):
    assert float(ElementTree.fromstring(net_svg(googlenet.nets[0])).get("width")) < 1600


def test_box_lies_between_what_it_joins():
    layout = lay_out([50, 50, 50, 50], [(0, 1), (0, 2), (1, 3), (2, 3)])
    (top, _), (left_x, _), (right, _), (bottom, rank) = layout.centers
    assert right - left_x >= 50
    assert top == pytest.approx((left_x + right) / 2)
    assert bottom == pytest.approx(top)
    assert rank == 2
    assert layout.n_ranks == 3


def test_long_edge_goes_around_the_boxes_that_it_passes():
    layout = lay_out([50, 80, 50], [(0, 1), (1, 2), (0, 2)])
    ((x, rank),) = layout.routes[2]
    assert rank == 1
    assert abs(x - layout.centers[1][0]) > 40


def test_nothing_to_draw():
    assert lay_out([], []).n_ranks == 0


def test_names_are_escaped_and_the_file_is_written(folder, googlenet, tmp_path):
    net = googlenet.nets[0]
    layers = (net.layers[0].model_copy(update={"name": 'a<b>&"c"'}), *net.layers[1:])
    report = googlenet.model_copy(update={"nets": (net.model_copy(update={"layers": layers}),)})
    write_picture(report, tmp_path / "net.svg")
    assert 'a<b>&"c"' in boxes((tmp_path / "net.svg").read_text())


def test_picture_that_cannot_be_written_is_a_wrong_option(googlenet, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be written"):
        write_picture(googlenet, tmp_path / "file" / "net.svg")


@pytest.mark.slow  # starts processes
def test_check_with_picture_takes_two_seconds_and_no_tensorflow(folder):
    net = "resnet50"
    script = f"""
import sys, time
from deepspark_ops.command import cli
sys.argv = ["deepspark", "check", "{net}.prototxt", "--svg", "{net}.svg", "--json"]
try:
    cli.main()
except SystemExit as done:
    assert done.code in (0, None), done.code
loaded = [m for m in sys.modules if m.split(".")[0] in ("tensorflow", "keras", "pyspark", "airflow")]
assert not loaded, loaded
assert time.process_time() < 2, time.process_time()
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=folder, stdout=subprocess.DEVNULL)
    assert ElementTree.parse(folder / f"{net}.svg").getroot().tag == f"{SVG}svg"

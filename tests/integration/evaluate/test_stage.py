import json
import re
import subprocess
import sys

import cv2
import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest

from caffe_import.errors import WeightsError
from caffe_import.files.caffemodel import read_caffemodel, write_caffemodel
from caffe_import.files.mean_file import read_mean
from deepspark_ops.config.evaluate import EvaluateConfig
from deepspark_ops.config.export import ExportConfig
from deepspark_ops.errors import ConfigError, DataError
from deepspark_ops.evaluate.comparison.mistake_pictures import open_mistake_pictures
from deepspark_ops.evaluate.evaluation_folder import read_evaluation
from deepspark_ops.evaluate.metrics import read_metrics
from deepspark_ops.evaluate.saliency.maps import overlay
from deepspark_ops.evaluate.saliency.mistake_maps import mistake_maps
from deepspark_ops.evaluate.stage import run_evaluate
from deepspark_ops.evaluate.tasks.choice import choose_tasks
from deepspark_ops.evaluate.tf_predict import compile_answers
from deepspark_ops.evaluate.trained_net import open_trained_net
from deepspark_ops.export.bundle import write_bundle
from deepspark_ops.export.tf_saved_model import load_saved_model
from deepspark_ops.run_label.label import RunLabel, write_label
from deepspark_ops.shards.manifest import mean_path
from tests.integration.small_run import CLASS_NAMES, NET, make_dataset, make_run, make_samples, write_split
from tests.reference.slow_scores import slow_scores, slow_softmax

pytestmark = pytest.mark.tf

# A single layer of weights: a loop in this file can compute the net.
LINEAR = (
    NET[: NET.index('layer { name: "conv"')]
    + """
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 3 weight_filler { type: "gaussian" std: 0.01 } } }
"""
    + NET[NET.index('layer { name: "accuracy"') :]
)


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    root = tmp_path_factory.mktemp("dataset")
    return root, make_dataset(root)


@pytest.fixture(scope="module")
def run(tmp_path_factory, dataset):
    return make_run(tmp_path_factory.mktemp("linear"), dataset[0], net=LINEAR)


def slow_probabilities(images, mean, weights, bias):
    """Centre crop of 12 x 12 out of 14 x 16, minus the mean, times 1/128, times the weights: value by value."""
    rows = []
    for image in images:
        values = [
            (float(image[c, y + 1, x + 2]) - float(mean[c, y + 1, x + 2])) / 128
            for c in range(3)
            for y in range(12)
            for x in range(12)
        ]
        logits = [
            sum(w * v for w, v in zip(row, values, strict=True)) + b for row, b in zip(weights, bias, strict=True)
        ]
        rows.append(slow_softmax(logits))
    return rows


@pytest.mark.parametrize("batch_size", [7, 53, 100])  # two shards of 27 and 26: a batch of 7 crosses the border
def test_scores_equal_a_slow_loop_over_every_sample_once(run, dataset, tmp_path, batch_size):
    root, samples = dataset
    images, labels = samples["test"]
    metrics = run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path, batch_size=batch_size)).metrics

    weights, bias = read_caffemodel(run.snapshot("patches", 40, "caffemodel"))["ip"]
    rows = slow_probabilities(images, read_mean(mean_path(root)), weights.tolist(), bias.tolist())
    expected = slow_scores(rows, labels.tolist())
    assert metrics.n_samples == 53
    assert metrics.top1 == pytest.approx(expected["top1"])
    assert 0.4 < metrics.top1 < 1  # neither chance nor perfect, so that the matrix says something
    assert metrics.top5 is None
    assert metrics.loss == pytest.approx(expected["loss"], rel=1e-5)  # float32, 432-term dot
    assert [list(row) for row in metrics.confusion] == expected["confusion"]
    assert [mistake.index for mistake in metrics.mistakes] == [index for index, *_ in expected["mistakes"]][:24]
    for report, label in zip(metrics.classes, range(3), strict=True):
        assert report.support == int((labels == label).sum())
        assert report.name == CLASS_NAMES[label]


@pytest.mark.parametrize("split", ["train", "validation"])
def test_another_split_reads_its_samples_with_the_test_transform(run, dataset, tmp_path, split):
    root, samples = dataset
    if split == "validation":
        write_split(root, split, *samples.setdefault(split, make_samples(40, seed=3)))
    images, labels = samples[split]
    metrics = run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path, split=split)).metrics
    weights, bias = read_caffemodel(run.snapshot("patches", 40, "caffemodel"))["ip"]
    rows = slow_probabilities(images, read_mean(mean_path(root)), weights.tolist(), bias.tolist())
    assert (metrics.n_samples, metrics.scored.split) == (len(labels), split)
    assert metrics.loss == pytest.approx(slow_scores(rows, labels.tolist())["loss"], rel=1e-5)


def test_a_moved_run_is_scored_and_exported_from_its_own_files(dataset, tmp_path):
    run = make_run(tmp_path / "first", dataset[0], net=LINEAR, n_steps=1)
    before = run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path / "before")).metrics
    moved = run.root.rename(tmp_path / "moved")
    assert run_evaluate(EvaluateConfig(run_dir=moved)).metrics.loss == before.loss
    bundle = write_bundle(ExportConfig(run_dir=moved, formats="caffe"), on_step=str)
    assert bundle.folder.parent == moved


def test_files_are_complete_and_bound_by_digests(run, tmp_path):
    evaluation = run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path / "out", worst=5))
    names = ["metrics.json", "mistakes.zip", "report.html", "samples.h5", "samples.parquet"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == names
    metrics = read_metrics(evaluation.metrics_path)
    assert metrics == evaluation.metrics
    assert metrics.scored.iteration == 40
    assert metrics.scored.score_blob == "ip"
    assert metrics.scored.weights_digest.startswith("sha256:")
    page = evaluation.report_path.read_text()
    opened = page[page.index('<section class="samples"') : page.index("</section>", page.index('class="samples"'))]
    maps = 4 * 3  # a mistake, gradient times input and occlusion
    assert page.count("data:image/png;base64,") == 5 + maps + opened.count("<figure ")
    groups = dict(re.findall(r'<h3 id="([a-z0-9-]+)".*?\((\d+) of \d+ samples?', opened))
    for name, n_shown in groups.items():
        assert len(re.findall(rf'<figure class="[^"]*\b{name}(?![0-9-])[^"]*"><img ', opened)) == int(n_shown)
        assert f'href="#{name}"' in page
    cells = [(row, at) for row, counts in enumerate(metrics.confusion) for at, n in enumerate(counts) if n]
    bars = [at for at, item in enumerate(metrics.calibration.bins) if item.count]
    assert {*groups} == {
        *(f"cell-{row}-{at}" for row, at in cells),
        *(f"class-{label}" for label in range(3)),
        *(f"confidence-{at}" for at in bars),
    }
    assert "red &lt;left&gt;" in page
    assert "red <left>" not in page
    assert "Training loss" in page
    assert not any(address in page for address in ("http://", "https://", 'src="/', "@import"))


def test_dataset_digest_depends_on_samples_alone(run, dataset, tmp_path):
    digests = {
        run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path, batch_size=size)).metrics.scored.dataset_digest
        for size in (9, 53)
    }
    other = run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path, split="train")).metrics.scored.dataset_digest
    assert len(digests) == 1
    assert other not in digests


def test_samples_file_has_each_answer_and_what_the_sample_holds(run, dataset, tmp_path):
    images, labels = dataset[1]["test"]
    metrics = run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path, batch_size=7)).metrics
    samples = read_evaluation(tmp_path).samples
    assert samples.answers.index.tolist() == list(range(53))
    np.testing.assert_array_equal(samples.answers.label, labels)
    assert (samples.answers.rank == 0).mean() == pytest.approx(metrics.top1)
    assert samples.answers.loss.mean() == pytest.approx(metrics.loss)
    assert len(set(samples.content.tolist())) == len({image.tobytes() for image in images})
    run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path, batch_size=53))
    np.testing.assert_array_equal(read_evaluation(tmp_path).samples.content, samples.content)
    assert metrics.speed is not None
    assert (metrics.speed.batch_size, metrics.speed.images_per_s > 0) == (7, True)


def test_report_compares_with_production_on_the_same_samples(run, tmp_path):
    weights = tmp_path / "zero.caffemodel"
    with open_trained_net(run.root, weights=None, dataset=None, split="test", batch_size=5) as trained:
        write_caffemodel(weights, trained.net, np.zeros(trained.net.params.n_params, np.float32))
    production = tmp_path / "production"
    run_evaluate(EvaluateConfig(run_dir=run.root, weights=weights, output=production))
    config = EvaluateConfig(run_dir=run.root, output=tmp_path / "own", production=production, worst=0)
    production_samples = production / "samples.h5"
    evaluation = run_evaluate(config.model_copy(update={"production_samples": production_samples}))
    page = evaluation.report_path.read_text()
    assert "Against production" in page
    assert "Production was promoted on these very samples." in page
    gallery = page[page.index("Against production") : page.index("Confusion matrix")]
    assert gallery.count("data:image/png;base64,") == 12  # all weights 0: what this run gets right is gained


def test_pictures_of_the_mistakes_are_kept(run, dataset, tmp_path):
    images, _ = dataset[1]["test"]
    run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path, worst=0))
    samples = read_evaluation(tmp_path).samples
    archive = open_mistake_pictures(tmp_path, samples)
    wrong = samples.answers.index[samples.answers.rank > 0].tolist()
    assert sorted(archive.numbers) == wrong != []
    for index, picture in archive.read(wrong).items():
        pixels = cv2.imdecode(np.frombuffer(picture.content, np.uint8), cv2.IMREAD_UNCHANGED)
        np.testing.assert_array_equal(pixels, np.moveaxis(images[index], 0, 2))


def test_rows_and_slices_say_what_the_figures_say(run, dataset, tmp_path):
    root, samples = dataset
    images, labels = samples["test"]
    config = EvaluateConfig(run_dir=run.root, output=tmp_path, batch_size=10, slices="class,folder,shard", scores=True)
    metrics = run_evaluate(config).metrics
    table = pq.read_table(tmp_path / "samples.parquet")
    rows = table.to_pylist()
    weights, bias = read_caffemodel(run.snapshot("patches", 40, "caffemodel"))["ip"]
    expected = slow_probabilities(images, read_mean(mean_path(root)), weights.tolist(), bias.tolist())
    assert [row["index"] for row in rows] == list(range(53))
    assert [row["label"] for row in rows] == labels.tolist()
    assert [row["name"] for row in rows] == [f"{at:08d}_x" for at in range(53)]
    for row, shares in zip(rows, expected, strict=True):
        np.testing.assert_allclose(row["scores"], shares, atol=1e-5)
        assert row["predicted"] == int(np.argmax(shares))
        assert row["probability"] == pytest.approx(max(shares), abs=1e-5)
        assert row["label_probability"] == pytest.approx(shares[row["label"]], abs=1e-5)
        assert row["loss"] == pytest.approx(-np.log(shares[row["label"]]), abs=1e-4)
        assert (row["rank"] == 0) == (row["predicted"] == row["label"])
    content = read_evaluation(tmp_path).samples.content
    assert [row["content"] for row in rows] == content.tolist()
    assert table.schema.metadata[b"deepspark.weights"].decode() == metrics.scored.weights_digest

    slices = {(row.column, row.value): row for row in metrics.slices}
    assert list(slices) == [
        *(("class", name) for name in sorted(CLASS_NAMES)),
        ("folder", "."),
        *(("shard", f"test-0000{at}.lmdb") for at in range(2)),
    ]
    for report in metrics.classes:
        assert slices["class", report.name].main.value == report.accuracy
        assert slices["class", report.name].n_samples == report.support
    assert slices["folder", "."].main.value == metrics.top1
    right = [row["rank"] == 0 for row in rows]
    assert slices["shard", "test-00000.lmdb"].main.value == pytest.approx(np.mean(right[:27]))
    assert slices["shard", "test-00001.lmdb"].n_samples == 26
    assert "<h2>By folder</h2>" in (tmp_path / "report.html").read_text()
    assert [path for path in tmp_path.parent.iterdir() if path.name.startswith(".samples")] == []


def test_unknown_slice_is_refused_with_those_there_are(run, tmp_path):
    with pytest.raises(ConfigError) as caught:
        run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path / "out", slices="class,colour"))
    assert str(caught.value) == ("slices=colour: these samples have no such property; known: class, folder, shard")
    assert not (tmp_path / "out").exists()


def test_mirror_does_not_make_scores_random(run, tmp_path):
    config = EvaluateConfig(run_dir=run.root, output=tmp_path)
    assert run_evaluate(config).metrics.loss == run_evaluate(config).metrics.loss


def test_weights_of_another_net_are_refused_and_nothing_is_written(run, dataset, tmp_path):
    other = make_run(tmp_path / "other", dataset[0], net=NET.replace('name: "ip"', 'name: "fc"'), n_steps=1)
    weights = other.snapshot("patches", 1, "caffemodel")
    with pytest.raises(WeightsError) as caught:
        run_evaluate(EvaluateConfig(run_dir=run.root, weights=weights, output=tmp_path / "out"))
    assert str(caught.value) == (
        f'{weights}: no weights for layer "ip" of net "patches"; layers in the file: "conv", "fc"; '
        "is it the file of another net?"
    )
    assert not (tmp_path / "out").exists()


def test_a_net_of_data_alone_is_refused_with_what_is_needed(dataset, run, tmp_path):
    with pytest.raises(
        ConfigError, match=r'^no blob "ipp" in net "patches"; known: data, label, ip, .*did you mean "ip"'
    ):
        run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path, output_blob="ipp"))
    assert not list(tmp_path.iterdir())


def test_truncated_shard_is_named(dataset, run, tmp_path):
    make_dataset(tmp_path / "copy")
    data = next((tmp_path / "copy" / "test").glob("*.lmdb")) / "data.mdb"
    data.write_bytes(data.read_bytes()[:5000])
    with pytest.raises(DataError) as caught:
        run_evaluate(EvaluateConfig(run_dir=run.root, dataset=tmp_path / "copy", output=tmp_path / "out"))
    assert str(data.parent) in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_process_tells_its_mistake_last(tmp_path):
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"run_dir": str(tmp_path / "none")}))
    completed = subprocess.run(
        [sys.executable, "-m", "deepspark_ops.evaluate", str(config)], capture_output=True, text=True, check=False
    )
    assert completed.returncode == 2
    assert completed.stderr.splitlines()[-1].startswith(f"ERROR: run_dir={tmp_path}/none: no such folder")
    assert "Traceback" not in completed.stderr


OWN_SOURCE = """
name: "own"
layer {{ name: "data" type: "HDF5Data" top: "features" top: "class" include {{ phase: TRAIN }}
  hdf5_data_param {{ source: "{folder}/train.txt" batch_size: 8 }} }}
layer {{ name: "data" type: "HDF5Data" top: "features" top: "class" include {{ phase: TEST }}
  hdf5_data_param {{ source: "{folder}/test.txt" batch_size: 8 }} }}
layer {{ name: "ip" type: "InnerProduct" bottom: "features" top: "ip"
  inner_product_param {{ num_output: 3 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "class" top: "loss" }}
"""


@pytest.fixture(scope="module")
def vectors(tmp_path_factory):
    """A run on the net's own HDF5 files, without a dataset; returns the run and samples by split."""
    folder = tmp_path_factory.mktemp("own")
    samples = {}
    for split, n, seed in (("train", 64, 1), ("test", 21, 2)):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, 3, n)
        features = rng.normal(size=(n, 5)).astype(np.float32)
        features[np.arange(n), labels] += 1
        with h5py.File(folder / f"{split}.h5", "w") as file:
            file["features"], file["class"] = features, labels.astype(np.float32)
        (folder / f"{split}.txt").write_text(f"{folder}/{split}.h5\n")
        samples[split] = features, labels
    return make_run(folder / "r", net=OWN_SOURCE.format(folder=folder)), samples


@pytest.mark.parametrize("split", ["train", "test"])
def test_net_with_sources_is_scored_on_the_requested_split(vectors, tmp_path, split):
    run, samples = vectors
    features, labels = samples[split]
    metrics = run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path, split=split)).metrics
    weights, bias = read_caffemodel(run.snapshot("patches", 40, "caffemodel"))["ip"]
    rows = [slow_softmax((weights @ row + bias).tolist()) for row in features]
    expected = slow_scores(rows, labels.tolist())
    assert [list(row) for row in metrics.confusion] == expected["confusion"]
    assert metrics.loss == pytest.approx(expected["loss"], rel=1e-5)
    assert metrics.scored.dataset.endswith(f"{split}.txt")


def test_vectors_have_no_pictures(vectors, tmp_path):
    page = run_evaluate(EvaluateConfig(run_dir=vectors[0].root, output=tmp_path)).report_path.read_text()
    assert "<img" not in page
    assert not (tmp_path / "mistakes.zip").exists()
    assert "Confusion matrix" in page


def test_vectors_are_exported_as_they_are(vectors, tmp_path):
    run, samples = vectors
    bundle = write_bundle(
        ExportConfig(run_dir=run.root, output=tmp_path / "bundle", formats="saved_model"), on_step=str
    )
    (contract,) = bundle.manifest.inputs
    assert (contract.name, contract.shape, contract.dtype) == ("features", (-1, 5), "float32")
    assert contract.preprocessing == ()
    assert bundle.manifest.origin.datasets == {}
    serve = load_saved_model(bundle.folder / "saved_model")
    classes = serve({"features": samples["test"][0]})["classes"]
    metrics = run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path / "e")).metrics
    assert (classes == samples["test"][1]).mean() == pytest.approx(metrics.top1)


def test_the_maps_of_the_worst_mistakes_of_a_linear_net_are_of_its_weights(run, dataset, tmp_path):
    """Crop, mean and scale by hand; the batch of 7 is not the batch of the gradients."""
    root, samples = dataset
    metrics = run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path, batch_size=7, saliency=2)).metrics
    page = (tmp_path / "report.html").read_text()
    section = page[page.index("Pixels behind the worst mistakes") :]
    assert section.count('<div class="side-by-side">') == min(2, len(metrics.mistakes)) == 2
    assert "From left to right: sample, gradient times input, occlusion." in section  # there is no convolution
    weights, _ = read_caffemodel(run.snapshot("patches", 40, "caffemodel"))["ip"]
    mean = read_mean(mean_path(root))[:, 1:13, 2:14]
    with open_trained_net(run.root, weights=None, dataset=None, split="test", batch_size=7) as trained:
        chosen = choose_tasks(trained.net)[0]
        answers = compile_answers(trained.net, trained.params, [chosen], n_threads=1)
        for mistake in metrics.mistakes[:2]:
            (example,) = mistake_maps(trained, chosen, answers, [mistake])
            values = (samples["test"][0][mistake.index][:, 1:13, 2:14] - mean) / 128
            by_hand = (weights[mistake.predicted].reshape(3, 12, 12) * values).sum(axis=0)
            drawn = dict(example.pictures)
            expected = overlay(drawn["sample"], by_hand)
            assert np.abs(drawn["gradient times input"].astype(int) - expected).max() <= 1
            falls, counts = np.zeros((12, 12)), np.zeros((12, 12))
            for row, column in np.ndindex(11, 11):  # squares of 2 x 2 in steps of 1
                copy = values.copy()
                copy[:, row : row + 2, column : column + 2] = values.mean(axis=(1, 2))[:, None, None]
                fed = {"data": np.repeat(copy[None].astype(np.float32), 7, axis=0)}
                fall = mistake.probability - answers({**fed, "label": np.zeros(7, np.float32)})["ip"][0]
                falls[row : row + 2, column : column + 2] += fall[mistake.predicted]
                counts[row : row + 2, column : column + 2] += 1
            off = drawn["occlusion"].astype(int) - overlay(drawn["sample"], falls / counts)
            assert np.abs(off).max() <= 3


def test_the_report_has_the_name_of_the_run_in_lists(run, tmp_path):
    def head():
        page = run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path)).report_path.read_text()
        return page[page.index("<title>") : page.index("</header>")]

    assert "<title>patches, 1 worker, 40 minibatches: " in head()  # the default name
    write_label(run.root, RunLabel(name="red or green", tags=("paper",)))
    try:
        assert '<h1>red or green <span class="tag">paper</span></h1>' in head()
    finally:
        write_label(run.root, RunLabel())


def test_without_maps_the_report_has_no_such_section(run, tmp_path):
    run_evaluate(EvaluateConfig(run_dir=run.root, output=tmp_path, saliency=0))
    assert "Pixels behind" not in (tmp_path / "report.html").read_text()

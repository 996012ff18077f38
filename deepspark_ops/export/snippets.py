"""Code that loads a bundle, with the names and shapes of this one: for the pages of a model, and for its card."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import prod
from pathlib import Path

from caffe_import.files.prototxt import read_net
from caffe_import.proto import caffe_pb2
from deepspark_ops.export.deploy_net import opencv_names
from deepspark_ops.export.manifest import (
    DEPLOY_NAME,
    KERAS_NAME,
    LABELS_NAME,
    ONNX_NAME,
    SAVED_MODEL_NAME,
    TFLITE_FLOAT16_NAME,
    TFLITE_INT8_NAME,
    TFLITE_NAME,
    WEIGHTS_NAME,
    BundleManifest,
    InputContract,
    OutputBlob,
)

_AS_IT_IS = "cv2.IMREAD_UNCHANGED"
_TFLITE = {"": TFLITE_NAME, ", float16": TFLITE_FLOAT16_NAME, ", int8": TFLITE_INT8_NAME}


def snippets(bundle: Path, manifest: BundleManifest, place: str | None = None) -> dict[str, str]:
    """Return what loads the bundle's model -> code, for each format that the bundle has.

    Args:
        bundle: The folder.
        manifest: Its manifest.
        place: The folder as the code names it; default: ``bundle``.

    Raises:
        CaffeImportError: The deploy net is damaged.
    """
    known: dict[str, tuple[str, Callable[[Path, BundleManifest, str | None], str]]] = {
        "TensorFlow": (f"{SAVED_MODEL_NAME}/saved_model.pb", tensorflow_snippet),
        "OpenCV or Caffe": (WEIGHTS_NAME, caffe_snippet),
        "Keras": (KERAS_NAME, keras_snippet),
        "ONNX": (ONNX_NAME, onnx_snippet),
    }
    known |= {f"TensorFlow Lite{kind}": (file, partial(tflite_snippet, file=file)) for kind, file in _TFLITE.items()}
    found = {name: code(bundle, manifest, place) for name, (file, code) in known.items() if file in manifest.files}
    if "TensorFlow" in found:
        found["Spark"] = spark_snippet(bundle, manifest, place)
    return found


def image_snippet(contract: InputContract) -> str:
    """Return Python that makes a sample of an input out of an image file, as ingestion made the training samples.

    Args:
        contract: An input that takes images, for whose training images it is known what was done.
    """
    images = contract.images
    assert images is not None, "nobody knows what was done"
    flags = "IMREAD_GRAYSCALE" if images.gray else "IMREAD_COLOR" if images.decode_color else "IMREAD_UNCHANGED"
    largest, size = images.max_pixel, (images.width, images.height)
    scaled = f"((picture.astype(np.uint32) * 510 + {largest}) // {2 * largest}).astype(np.uint8)"
    compressed = [
        f"    if not np.array_equal(cv2.imread(file, {_AS_IT_IS}), picture):  # compressed again",
        '        suffix = ".jpg" if file.lower().endswith((".jpg", ".jpeg")) else ".png"',
        f"        picture = cv2.imdecode(cv2.imencode(suffix, picture)[1], {_AS_IT_IS})",
    ]
    turned = "picture[..., ::-1]" if contract.channels == "RGB" else "picture.reshape(*picture.shape[:2], -1)"
    lines = [
        "import cv2",
        "import numpy as np",
        "",
        "",
        "def sample_of(file):  # H, W, C",
        f"    picture = cv2.imread(file, cv2.{flags})",
        *([f"    picture = {scaled}"] if largest != 255 else []),
        *([f"    picture = cv2.resize(picture, {size})"] if images.height else []),
        *(compressed if images.encoded else []),
        f"    return np.ascontiguousarray({turned}, np.{contract.dtype})",
    ]
    return "\n".join(lines)


def spark_snippet(bundle: Path, manifest: BundleManifest, place: str | None = None) -> str:
    """Return Python that answers a column of a Spark frame by the bundle, of zeros; arguments as ``snippets``.

    Raises:
        CaffeImportError: The deploy net is damaged.
    """
    cells, kinds, names = [], [], []
    for at, contract in enumerate(manifest.inputs):
        shape = _filled(contract, bundle)[1:]
        names.append("sample" if len(manifest.inputs) == 1 else f"input_{at}")
        if contract.takes_images and contract.shape[-1] in (1, 3):
            # any image file
            cells.append(f'cv2.imencode(".png", np.zeros({shape}, np.uint8))[1].tobytes()')
            kinds.append("binary")
        else:
            cells.append(f"[0.0] * {prod(shape)}")
            kinds.append("array<float>")
    columns = ", ".join(f"{name} {kind}" for name, kind in zip(names, kinds, strict=True))
    given = ", ".join(f'"{name}"' for name in names)
    lines = [
        *(("import cv2", "import numpy as np") if "binary" in kinds else ()),
        "from pyspark.sql import SparkSession",
        "",
        'from deepspark_ops.predict.spark_udf import predict_udf  # pip install "deepspark[spark,tables,train]"',
        "",
        f"bundle = {(place or str(bundle))!r}  # a folder that driver and workers see under this path",
        "spark = SparkSession.builder.getOrCreate()",
        *(["# images are the bytes of any image file, or its path"] if "binary" in kinds else []),
        f'rows = spark.createDataFrame([({", ".join(cells)},)], "{columns}")',
        f'answer = rows.select(predict_udf(bundle)({given}).alias("answer")).first().answer',
        f"# {_answer_fields(manifest)}; answer.error says why a row could not be used",
    ]
    return "\n".join(lines)


def _answer_fields(manifest: BundleManifest) -> str:
    """Return in words where the results of an answer are."""
    found: list[str] = []
    for at, one in enumerate(manifest.results()):
        if at == 0 and one.task == "classification":
            found += ["predicted", *(["predicted_name"] if manifest.output.labels else []), "probability", "scores"]
        else:
            found.append(one.name)
        if at == 0 and one.task == "multi_label":
            found.append("predicted")
    return ", ".join(f"answer[{name!r}]" for name in found)  # of a name no more than its characters


def tensorflow_snippet(bundle: Path, manifest: BundleManifest, place: str | None = None) -> str:
    """Return Python that runs the SavedModel once, on zeros; arguments as ``snippets``.

    Raises:
        CaffeImportError: The deploy net is damaged.
    """
    return _run_once(
        bundle,
        manifest,
        place,
        imports=("import numpy as np", "import tensorflow as tf"),
        load=[f'model = tf.saved_model.load(f"{{bundle}}/{SAVED_MODEL_NAME}")'],
        run=lambda given: [f'answer = model.signatures["serving_default"](**{given})'],
        value="tf.constant({})",
        taken="answer[{}].numpy()",
    )


def tflite_snippet(bundle: Path, manifest: BundleManifest, place: str | None = None, *, file: str = TFLITE_NAME) -> str:
    """Return Python that runs a TensorFlow Lite file once, on zeros; arguments as ``snippets``.

    Raises:
        CaffeImportError: The deploy net is damaged.
    """
    return _run_once(
        bundle,
        manifest,
        place,
        imports=("import numpy as np", "import tensorflow as tf"),
        load=[
            "# On a device without TensorFlow: from ai_edge_litert.interpreter import Interpreter",
            f'model = tf.lite.Interpreter(model_path=f"{{bundle}}/{file}")',
        ],
        run=lambda given: [f'answer = model.get_signature_runner("serving_default")(**{given})'],
    )


def keras_snippet(bundle: Path, manifest: BundleManifest, place: str | None = None) -> str:
    """Return Python that runs the Keras file once, on zeros; arguments as ``snippets``.

    Raises:
        CaffeImportError: The deploy net is damaged.
    """
    return _run_once(
        bundle,
        manifest,
        place,
        imports=("import keras", "import numpy as np"),
        load=[f'model = keras.saving.load_model(f"{{bundle}}/{KERAS_NAME}", compile=False)'],
        run=lambda given: [f"answer = model.predict_on_batch({given})"],
    )


def onnx_snippet(bundle: Path, manifest: BundleManifest, place: str | None = None) -> str:
    """Return Python that runs the ONNX file once in onnxruntime, on zeros; arguments as ``snippets``.

    Raises:
        CaffeImportError: The deploy net is damaged.
    """
    return _run_once(
        bundle,
        manifest,
        place,
        imports=("import numpy as np", "import onnxruntime"),
        load=[f'model = onnxruntime.InferenceSession(f"{{bundle}}/{ONNX_NAME}")'],
        run=lambda given: [
            "outputs = [one.name for one in model.get_outputs()]",
            f"answer = dict(zip(outputs, model.run(outputs, {given}), strict=True))",
        ],
    )


def _run_once(
    bundle: Path,
    manifest: BundleManifest,
    place: str | None,
    *,
    imports: Sequence[str],
    load: Sequence[str],
    run: Callable[[str], Sequence[str]],
    value: str = "{}",
    taken: str = "answer[{}]",
) -> str:
    """Return Python that loads a model that takes samples as they are, and runs it on zeros.

    Args:
        bundle: As of ``snippets``.
        manifest: Likewise.
        place: Likewise.
        imports: Lines that import what ``load`` and ``run`` need.
        load: Lines that make ``model``.
        run: From a dictionary of the inputs, as text, to the lines that make ``answer``.
        value: What an input's value is in that dictionary, with the variable in the place of {}.
        taken: How an output is taken, with its name in the place of {}.

    Raises:
        CaffeImportError: The deploy net is damaged.
    """
    names = [_variable(contract.name, at) for at, contract in enumerate(manifest.inputs)]
    given = ", ".join(
        f"{contract.name!r}: {value.format(name)}" for name, contract in zip(names, manifest.inputs, strict=True)
    )
    lines = [
        *_imports(manifest, *imports),
        f"bundle = {(place or str(bundle))!r}",
        *load,
        *_zeros(bundle, manifest, names),
        *run(f"{{{given}}}"),
        *_taken(manifest, taken),
    ]
    return "\n".join(lines)


def caffe_snippet(bundle: Path, manifest: BundleManifest, place: str | None = None) -> str:
    """Return Python that runs the deploy net once by OpenCV, on zeros, with the lines for Caffe beside.

    Arguments as ``snippets``.

    Raises:
        CaffeImportError: The deploy net is damaged.
    """
    deploy = read_net(bundle / DEPLOY_NAME)
    inputs = [(layer.top[0], tuple(layer.input_param.shape[0].dim)) for layer in _inputs(deploy)]
    names = [_variable(blob, at) for at, (blob, _) in enumerate(inputs)]
    steps = [
        step
        for contract in manifest.inputs
        for step in (*(contract.images.in_words() if contract.images else ()), *contract.preprocessing)
    ]
    lines = [
        *_imports(manifest, "import cv2  # OpenCV 4: later ones do not read Caffe's files", "import numpy as np"),
        f"bundle = {(place or str(bundle))!r}",
        f'files = f"{{bundle}}/{DEPLOY_NAME}", f"{{bundle}}/{WEIGHTS_NAME}"',
        "net = cv2.dnn.readNetFromCaffe(*files)  # with Caffe: caffe.Net(*files, caffe.TEST)",
    ]
    if steps:
        lines.append(f"# The net takes what was prepared: {_one_line('; '.join(steps))}.")
    for name, (blob, shape) in zip(names, inputs, strict=True):
        axes = ("N, C, H, W" if len(shape) == 4 else "N first") + ", blue first" * _is_bgr(shape)
        lines.append(f"{name} = np.zeros({shape}, np.float32)  # {axes}")
        lines.append(f"net.setInput({name}, {blob!r})  # with Caffe: net.blobs[{blob!r}].data[...] = {name}")
    results = manifest.results()
    blobs = [one.blob if manifest.outputs else deploy.layer[-1].top[0] for one in results]
    makers = [*opencv_names(deploy, blobs).values()]
    lines.append(f"answer = dict(zip({blobs!r}, net.forward({makers!r}), strict=True))  # with Caffe: net.forward()")
    for name, one, blob in zip(_result_names(manifest), results, blobs, strict=True):
        lines.append(f"{name} = answer[{blob!r}]  # {_result_text(one)}")
    if manifest.is_classifier:
        lines.append("classes = scores.reshape(len(scores), -1).argmax(axis=1)")
    return "\n".join([*lines, *_labels(manifest)])


def _taken(manifest: BundleManifest, taken: str) -> list[str]:
    """Return a line for each output, ``taken`` with its name in the place of {}, and what reads the labels."""
    names = _result_names(manifest)
    lines = [
        f"{name} = {taken.format(repr(one.name))}  # {_result_text(one)}"
        for name, one in zip(names, manifest.results(), strict=True)
    ]
    if manifest.output.classes:
        lines.append(f"classes = {taken.format(repr(manifest.output.classes))}  # int64 (N,)")
    return [*lines, *_labels(manifest)]


def _result_names(manifest: BundleManifest) -> list[str]:
    """Return a variable for each output: ``scores`` for that of a classifier, else its own name if it can be."""
    given = {"answer", "classes", "labels", "Path", "np", "tf", "keras", "cv2", "onnxruntime", "outputs"}
    given |= {_variable(contract.name, at) for at, contract in enumerate(manifest.inputs)}
    names = []
    for at, one in enumerate(manifest.results()):
        own = _variable(one.name, at)
        is_free = own == one.name and own not in given
        names.append("scores" if at == 0 and manifest.is_classifier else own if is_free else f"output_{at}")
    return names


def _result_text(one: OutputBlob) -> str:
    return f"float32 ({', '.join(['N', *(str(extent) for extent in one.shape[1:])])}), {one.task.replace('_', ' ')}"


def _inputs(deploy: caffe_pb2.NetParameter) -> list[caffe_pb2.LayerParameter]:
    return [layer for layer in deploy.layer if layer.type == "Input"]


def _is_bgr(shape: Sequence[int]) -> bool:
    return len(shape) == 4 and shape[1] == 3


def _variable(name: str, at: int) -> str:
    return name if name.isidentifier() and name not in {"bundle", "model", "net", "files"} else f"input_{at}"


def _zeros(bundle: Path, manifest: BundleManifest, names: Sequence[str]) -> list[str]:
    return [
        f"{name} = np.zeros({_filled(contract, bundle)}, np.{contract.dtype})  # {_text(contract)}"
        for name, contract in zip(names, manifest.inputs, strict=True)
    ]


def _filled(contract: InputContract, bundle: Path) -> tuple[int, ...]:
    """Return the shape for one sample; where any size goes, that which the net computes on."""
    if contract.sample_shape is not None:
        return (1, *contract.sample_shape)
    shape = (1, *contract.shape[1:])
    if -1 not in shape:
        return shape
    deploy = read_net(bundle / DEPLOY_NAME)
    blobs = {layer.top[0]: tuple(layer.input_param.shape[0].dim) for layer in _inputs(deploy)}
    _, channels, height, width = blobs.get(contract.name) or next(iter(blobs.values()))
    return 1, height, width, channels


def _text(contract: InputContract) -> str:
    parts = [contract.axes, contract.channels, *(("any H and W",) if -1 in contract.shape[1:] else ())]
    raw = [] if contract.images is None else contract.images.in_words()
    parts += [f"of a raw image: {', '.join(raw)}"] if raw else []
    return _one_line("; ".join(part for part in parts if part))


def _one_line(text: str) -> str:
    return " ".join(text.split())


def _labels(manifest: BundleManifest) -> list[str]:
    if not manifest.output.labels:
        return []
    index = "  # labels[classes[0]]" if manifest.is_classifier else ""
    return [f'labels = Path(bundle, "{LABELS_NAME}").read_text(encoding="utf-8").splitlines(){index}']


def _imports(manifest: BundleManifest, *lines: str) -> list[str]:
    return [*(("from pathlib import Path", "") if manifest.output.labels else ()), *lines, ""]

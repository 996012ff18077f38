"""Code to load a bundle, with the bundle's names and shapes: for the pages and the card of a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Final

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

_UNCHANGED = "cv2.IMREAD_UNCHANGED"


@dataclass(frozen=True)
class Library:
    """Code that runs a file of a bundle.

    Attributes:
        file: File of the bundle.
        imports: Lines that import what ``load`` and ``run`` need.
        load: Lines that set ``model``.
        run: Lines that set ``answer``; {} stands for a dictionary of the inputs.
        value: Code of an input's value in the dictionary; {} stands for the variable.
        output: Code that reads an output; {} stands for its name.
    """

    file: str
    imports: Sequence[str]
    load: Sequence[str]
    run: Sequence[str]
    value: str = "{}"
    output: str = "answer[{}]"


_TENSORFLOW = ("import numpy as np", "import tensorflow as tf")
_TFLITE = {"": TFLITE_NAME, ", float16": TFLITE_FLOAT16_NAME, ", int8": TFLITE_INT8_NAME}
LIBRARIES: Final[Mapping[str, Library | None]] = {
    "TensorFlow": Library(
        f"{SAVED_MODEL_NAME}/saved_model.pb",
        imports=_TENSORFLOW,
        load=[f'model = tf.saved_model.load(f"{{bundle}}/{SAVED_MODEL_NAME}")'],
        run=['answer = model.signatures["serving_default"](**{})'],
        value="tf.constant({})",
        output="answer[{}].numpy()",
    ),
    "OpenCV or Caffe": None,
    "Keras": Library(
        KERAS_NAME,
        imports=("import keras", "import numpy as np"),
        load=[f'model = keras.saving.load_model(f"{{bundle}}/{KERAS_NAME}", compile=False)'],
        run=["answer = model.predict_on_batch({})"],
    ),
    "ONNX": Library(
        ONNX_NAME,
        imports=("import numpy as np", "import onnxruntime"),
        load=[f'model = onnxruntime.InferenceSession(f"{{bundle}}/{ONNX_NAME}")'],
        run=[
            "outputs = [output.name for output in model.get_outputs()]",
            "answer = dict(zip(outputs, model.run(outputs, {}), strict=True))",
        ],
    ),
    **{
        f"TensorFlow Lite{kind}": Library(
            file,
            imports=_TENSORFLOW,
            load=[
                "# On a device without TensorFlow: from ai_edge_litert.interpreter import Interpreter",
                f'model = tf.lite.Interpreter(model_path=f"{{bundle}}/{file}")',
            ],
            run=['answer = model.get_signature_runner("serving_default")(**{})'],
        )
        for kind, file in _TFLITE.items()
    },
}
"""Name -> code; None: the code for Caffe's two files is written line by line, see ``snippet_of``."""


def snippets(bundle: Path, manifest: BundleManifest, shown_path: str | None = None) -> dict[str, str]:
    """Return name of a library -> code that loads the bundle, for each format in the bundle.

    The code has ``shown_path`` as the path of the folder, by default ``bundle``.

    Raises:
        CaffeImportError: The deploy net is damaged.
    """
    codes = {
        name: snippet_of(name, bundle, manifest, shown_path)
        for name, library in LIBRARIES.items()
        if (WEIGHTS_NAME if library is None else library.file) in manifest.files
    }
    if "TensorFlow" in codes:
        codes["Spark"] = spark_snippet(bundle, manifest, shown_path)
    return codes


def snippet_of(name: str, bundle: Path, manifest: BundleManifest, shown_path: str | None = None) -> str:
    """Return Python that runs the bundle's file for one of ``LIBRARIES`` once, on zeros; arguments as for ``snippets``.

    Raises:
        CaffeImportError: The deploy net is damaged.
    """
    library = LIBRARIES[name]
    shown = shown_path or str(bundle)
    return _caffe_snippet(bundle, manifest, shown) if library is None else _run_once(library, bundle, manifest, shown)


def image_snippet(contract: InputContract) -> str:
    """Return Python that converts an image file into a sample of an input, as ingestion made the training samples.

    The preprocessing of the training images must be known.
    """
    images = contract.images
    assert images is not None, "nobody knows what was done"
    flags = "IMREAD_GRAYSCALE" if images.gray else "IMREAD_COLOR" if images.decode_color else "IMREAD_UNCHANGED"
    largest, size = images.max_pixel, (images.width, images.height)
    scaled = f"((picture.astype(np.uint32) * 510 + {largest}) // {2 * largest}).astype(np.uint8)"
    compressed = [
        f"    if not np.array_equal(cv2.imread(file, {_UNCHANGED}), picture):  # compressed again",
        '        suffix = ".jpg" if file.lower().endswith((".jpg", ".jpeg")) else ".png"',
        f"        picture = cv2.imdecode(cv2.imencode(suffix, picture)[1], {_UNCHANGED})",
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


def spark_snippet(bundle: Path, manifest: BundleManifest, shown_path: str | None = None) -> str:
    """Return Python that runs the bundle on a column of a Spark frame, on zeros; arguments as for ``snippets``.

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
    udf_arguments = ", ".join(f'"{name}"' for name in names)
    lines = [
        *(("import cv2", "import numpy as np") if "binary" in kinds else ()),
        "from pyspark.sql import SparkSession",
        "",
        'from deepspark_ops.predict.spark_udf import predict_udf  # pip install "deepspark[spark,tables,train]"',
        "",
        f"bundle = {(shown_path or str(bundle))!r}  # a folder that driver and workers see under this path",
        "spark = SparkSession.builder.getOrCreate()",
        *(["# images are the bytes of any image file, or its path"] if "binary" in kinds else []),
        f'rows = spark.createDataFrame([({", ".join(cells)},)], "{columns}")',
        f'answer = rows.select(predict_udf(bundle)({udf_arguments}).alias("answer")).first().answer',
        f"# {_answer_fields(manifest)}; answer.error says why a row could not be used",
    ]
    return "\n".join(lines)


def _answer_fields(manifest: BundleManifest) -> str:
    """Return in words the fields of an answer."""
    fields: list[str] = []
    for at, output in enumerate(manifest.results()):
        if at == 0 and output.task == "classification":
            fields += ["predicted", *(["predicted_name"] if manifest.output.labels else []), "probability", "scores"]
        else:
            fields.append(output.name)
        if at == 0 and output.task == "multi_label":
            fields.append("predicted")
    return ", ".join(f"answer[{name!r}]" for name in fields)  # of a name no more than its characters


def _run_once(library: Library, bundle: Path, manifest: BundleManifest, shown_path: str) -> str:
    inputs = [(_variable(contract.name, at), contract) for at, contract in enumerate(manifest.inputs)]
    inputs_text = ", ".join(f"{contract.name!r}: {library.value.format(name)}" for name, contract in inputs)
    lines = [
        *_imports(manifest, *library.imports),
        f"bundle = {shown_path!r}",
        *library.load,
        *(
            f"{name} = np.zeros({_filled(contract, bundle)}, np.{contract.dtype})  # {_text(contract)}"
            for name, contract in inputs
        ),
        *(line.format(f"{{{inputs_text}}}") for line in library.run),
        *_output_lines(manifest, library.output),
    ]
    return "\n".join(lines)


def _caffe_snippet(bundle: Path, manifest: BundleManifest, shown_path: str) -> str:
    """Return Python that runs the deploy net once by OpenCV, on zeros, with the corresponding lines for Caffe."""
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
        f"bundle = {shown_path!r}",
        f'files = f"{{bundle}}/{DEPLOY_NAME}", f"{{bundle}}/{WEIGHTS_NAME}"',
        "net = cv2.dnn.readNetFromCaffe(*files)  # with Caffe: caffe.Net(*files, caffe.TEST)",
    ]
    if steps:
        lines.append(f"# The net takes what was prepared: {_one_line('; '.join(steps))}.")
    for name, (blob, shape) in zip(names, inputs, strict=True):
        axes = ("N, C, H, W" if len(shape) == 4 else "N first") + ", blue first" * (len(shape) == 4 and shape[1] == 3)
        lines.append(f"{name} = np.zeros({shape}, np.float32)  # {axes}")
        lines.append(f"net.setInput({name}, {blob!r})  # with Caffe: net.blobs[{blob!r}].data[...] = {name}")
    results = manifest.results()
    blobs = [output.blob if manifest.outputs else deploy.layer[-1].top[0] for output in results]
    makers = [*opencv_names(deploy, blobs).values()]
    lines.append(f"answer = dict(zip({blobs!r}, net.forward({makers!r}), strict=True))  # with Caffe: net.forward()")
    for name, output, blob in zip(_result_names(manifest), results, blobs, strict=True):
        lines.append(f"{name} = answer[{blob!r}]  # {_result_text(output)}")
    if manifest.is_classifier:
        lines.append(f"classes = scores.reshape(-1, {manifest.output.n_classes}).argmax(axis=1)")
    return "\n".join([*lines, *_labels(manifest)])


def _output_lines(manifest: BundleManifest, output_code: str) -> list[str]:
    """Return a line for each output and the lines that read the labels.

    In ``output_code``, {} stands for the output's name.
    """
    names = _result_names(manifest)
    lines = [
        f"{name} = {output_code.format(repr(output.name))}  # {_result_text(output)}"
        for name, output in zip(names, manifest.results(), strict=True)
    ]
    if manifest.output.classes:
        lines.append(f"classes = {output_code.format(repr(manifest.output.classes))}  # int64 (N,)")
    return [*lines, *_labels(manifest)]


def _result_names(manifest: BundleManifest) -> list[str]:
    """Return a variable name for each output.

    ``scores`` for a classifier, else the output's name if it is an identifier.
    """
    reserved_names = {"answer", "classes", "labels", "Path", "np", "tf", "keras", "cv2", "onnxruntime", "outputs"}
    reserved_names |= {_variable(contract.name, at) for at, contract in enumerate(manifest.inputs)}
    names = []
    for at, output in enumerate(manifest.results()):
        own_name = _variable(output.name, at)
        is_free = own_name == output.name and own_name not in reserved_names
        names.append("scores" if at == 0 and manifest.is_classifier else own_name if is_free else f"output_{at}")
    return names


def _result_text(output: OutputBlob) -> str:
    return (
        f"float32 ({', '.join(['N', *(str(extent) for extent in output.shape[1:])])}), {output.task.replace('_', ' ')}"
    )


def _inputs(deploy: caffe_pb2.NetParameter) -> list[caffe_pb2.LayerParameter]:
    return [layer for layer in deploy.layer if layer.type == "Input"]


def _variable(name: str, at: int) -> str:
    return name if name.isidentifier() and name not in {"bundle", "model", "net", "files"} else f"input_{at}"


def _filled(contract: InputContract, bundle: Path) -> tuple[int, ...]:
    """Return the shape for one sample; the net's input extent stands for extents of any size."""
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

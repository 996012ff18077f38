"""``model.keras``: Keras's layers and operations with the preprocessing inside; loading needs no code of DeepSpark."""

from __future__ import annotations

import warnings

from caffe_import.net.batch_size import net_of_any_batch
from deepspark_ops.export.formats.exported_model import NEEDS_ITS_BATCH, CannotHave, ExportedModel, Format, Reading
from deepspark_ops.export.formats.outside_reader import KERAS_READER
from deepspark_ops.export.manifest import KERAS_NAME


def _write(model: ExportedModel) -> None:
    # Keras takes two seconds to load.
    from deepspark_ops.export.formats.keras_layers.model import keras_model

    net = net_of_any_batch(model.build)
    if net is None:
        raise CannotHave(NEEDS_ITS_BATCH)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # saving warns of numpy 2's rules about copies
        keras_model(net, model.params, model.inputs, model.outputs).save(model.folder / KERAS_NAME)


def _read(model: ExportedModel) -> tuple[Reading, ...]:
    return model.read_by(KERAS_READER, "Keras", KERAS_NAME)


FORMAT = Format(files=(KERAS_NAME,), write=_write, read=_read, is_read_apart=True)

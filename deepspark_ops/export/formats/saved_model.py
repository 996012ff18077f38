"""``saved_model/``: TensorFlow's own format, with the preprocessing inside."""

from __future__ import annotations

import numpy as np

from deepspark_ops.export.formats.exported_model import ExportedModel, Format, Reading
from deepspark_ops.export.manifest import SAVED_MODEL_NAME
from deepspark_ops.export.tf_saved_model import load_saved_model, write_saved_model


def _write(model: ExportedModel) -> None:
    write_saved_model(model.folder / SAVED_MODEL_NAME, model.served())


def _read(model: ExportedModel) -> tuple[Reading, ...]:
    serve = load_saved_model(model.folder / SAVED_MODEL_NAME)
    served_answers = serve(model.requests())
    answers = {name: served_answers[name].astype(np.float64) for name in model.output_names}
    return (Reading(SAVED_MODEL_NAME, "TensorFlow", answers),)


FORMAT = Format(files=(SAVED_MODEL_NAME,), write=_write, read=_read)

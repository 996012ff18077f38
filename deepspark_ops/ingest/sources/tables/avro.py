"""Avro container files, or a folder of them: recognised by the first bytes."""

from __future__ import annotations

from deepspark_ops.ingest.files.table_files import first_data_file
from deepspark_ops.ingest.sources.format import Look
from deepspark_ops.ingest.sources.tables.table_format import table_format

_MAGIC = b"Obj\x01"


def _looks_like(look: Look) -> bool:
    if look.kind == "file":
        return look.start.startswith(_MAGIC)
    found = first_data_file(look.path, (".avro",))
    return found is not None and Look(found).start.startswith(_MAGIC)


FORMAT = table_format(_looks_like)

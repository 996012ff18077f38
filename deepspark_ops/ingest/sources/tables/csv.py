"""Text with a header line of column names, or a folder of such files; gzipped or not."""

from __future__ import annotations

from deepspark_ops.ingest.files.archive import is_archive
from deepspark_ops.ingest.files.table_files import first_data_file, is_header_alone, separator_of
from deepspark_ops.ingest.sources.format import Look
from deepspark_ops.ingest.sources.tables.table_format import table_format

_ENDINGS = (".csv", ".tsv", ".csv.gz", ".tsv.gz")


def _looks_like(look: Look) -> bool:
    if look.kind == "folder":
        found = first_data_file(look.path, _ENDINGS)
        return found is not None and _looks_like(Look(found))
    if b"\0" in look.start or is_archive(look.start):
        return False
    text = look.start.decode("utf-8-sig", "replace")
    return separator_of(text) is not None or (look.path.name.lower().endswith(_ENDINGS) and is_header_alone(text))


FORMAT = table_format(_looks_like)

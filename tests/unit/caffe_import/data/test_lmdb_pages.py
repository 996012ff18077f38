import lmdb
import pytest

from caffe_import.data.lmdb_pages import check_pages
from caffe_import.errors import DataSourceError


@pytest.fixture
def database(tmp_path):
    folder = tmp_path / "db"
    with lmdb.open(str(folder), map_size=2**24, lock=False) as environment, environment.begin(write=True) as writing:
        for number in range(200):
            writing.put(f"{number:08d}".encode(), bytes(5000))
    return folder


def overwrite(folder, offset, content):
    data = folder / "data.mdb"
    file_content = bytearray(data.read_bytes())
    file_content[offset : offset + len(content)] = content
    data.write_bytes(file_content)


def test_sound_databases_pass(database):
    check_pages([database, database])
    check_pages([])


def test_a_damaged_page_is_told_and_kills_nobody_else(database):
    size = (database / "data.mdb").stat().st_size
    for page in range(2, size // 4096):
        overwrite(database, 4096 * page, b"\xff" * 4096)
    with pytest.raises(DataSourceError, match=rf"{database}: damaged LMDB: .*; make the database again"):
        check_pages([database])


def test_the_damaged_one_of_several_is_named(database, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    file_content = bytearray((database / "data.mdb").read_bytes())
    file_content[4096 * 2 :] = b"\xff" * (len(file_content) - 4096 * 2)
    (other / "data.mdb").write_bytes(file_content)
    with pytest.raises(DataSourceError) as raised:
        check_pages([database, other])
    assert str(raised.value).startswith(f"{other}: damaged LMDB: ")

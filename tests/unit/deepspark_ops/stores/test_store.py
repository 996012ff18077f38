"""Messages about a store are plain words, without secrets."""

import errno

import pytest

from deepspark_ops.stores.arrow_store import endpoint_of
from deepspark_ops.stores.store import plain_errors

AS_PYARROW = "When getting information for key 'a' in bucket 'b': AWS Error {} during HeadObject operation: {}"


@pytest.mark.parametrize(
    ("code", "text", "number", "reason"),
    [
        ("ACCESS_DENIED", "No response body.", errno.EACCES, "denies access to the credentials of this host"),
        ("NO_SUCH_BUCKET", "The bucket (Request ID: x)", errno.ENOENT, "no such bucket"),
        ("NETWORK_CONNECTION", "curlCode: 7, x; Details: Failed to connect", errno.ECONNREFUSED, "Failed to connect$"),
        ("SLOW_DOWN", "Reduce your rate (Request ID: abc)", errno.EIO, "SLOW_DOWN to HeadObject: Reduce your rate$"),
    ],
)
def test_the_reason_is_short_and_the_address_is_named(code, text, number, reason):
    with pytest.raises(OSError, match=reason.removesuffix("$")) as caught, plain_errors("s3://b/a"):
        raise OSError(AS_PYARROW.format(code, text))
    assert (caught.value.errno, caught.value.filename) == (number, "s3://b/a")
    assert "Request ID" not in str(caught.value)


def test_errors_of_local_files_stay_as_they_are():
    with pytest.raises(OSError, match="No space") as caught, plain_errors("s3://b/a"):
        raise OSError(errno.ENOSPC, "No space left on device", "/local/file")
    assert caught.value.filename == "/local/file"


def test_the_endpoint_of_s3_goes_before_that_of_all_services():
    both = {"AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b"}
    assert endpoint_of(both) == "http://b"
    assert endpoint_of({"AWS_ENDPOINT_URL": ""}) is None

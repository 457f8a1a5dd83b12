"""A Cloud Storage in memory, run as `emulated.py FILE`, into which it writes its port: the emulator of PyPI, mended.

TensorStore reads and writes an object only as the version that it knows: by `ifGenerationMatch` and
`ifGenerationNotMatch`, and by the header `x-goog-generation` of what it reads
(https://cloud.google.com/storage/docs/request-preconditions). A bucket called `closed` denies everything.
"""

import functools
import socket
import sys
import threading
from http import HTTPStatus
from pathlib import Path

from gcp_storage_emulator.exceptions import NotFound
from gcp_storage_emulator.handlers import objects

LOCK = threading.RLock()


def generation(request, storage, name):
    """The generation of a request's object; "0" without an object."""
    try:
        return storage.get_file_obj(request.params["bucket_name"], name)["generation"]
    except NotFound:
        return "0"


def conditional(handler, name_of):
    """A handler that knows preconditions, and buckets that deny."""

    @functools.wraps(handler)
    def wrapped(request, response, storage, *args, **options):
        if request.params["bucket_name"] == "closed":
            response.status = HTTPStatus.FORBIDDEN
            response.json({"error": {"code": 403, "message": "no access to the bucket"}})
            return
        with LOCK:
            now = generation(request, storage, name_of(request))
            if request.query.get("ifGenerationMatch", [now])[0] != now:
                response.status = HTTPStatus.PRECONDITION_FAILED
                return
            if request.query.get("ifGenerationNotMatch", [None])[0] == now != "0":
                response.status = HTTPStatus.NOT_MODIFIED
                return
            response["x-goog-generation"] = now
            handler(request, response, storage, *args, **options)

    return wrapped


def named(request):
    return request.params.get("object_id") or request.query.get("name", [""])[0]


for verb in ("get", "download", "insert", "delete", "ls"):
    setattr(objects, verb, conditional(getattr(objects, verb), named))

if __name__ == "__main__":
    from gcp_storage_emulator.server import create_server  # which takes the handlers as they are now

    file = Path(sys.argv[1])
    with socket.create_server(("localhost", 0)) as free:
        port = free.getsockname()[1]
    server = create_server("localhost", port, in_memory=True, default_bucket="bucket")
    server.start()
    file.with_name("port.tmp").write_text(str(port))
    file.with_name("port.tmp").replace(file)
    threading.Event().wait()

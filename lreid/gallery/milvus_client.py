"""Connect to Milvus: Milvus Lite in this process, a server of Milvus Lite, or a Milvus server or cluster.

Milvus Lite in this process listens on 127.0.0.1 without a password, and only one process can open its database at a
time. The server of Milvus Lite (``milvus-lite server --host 127.0.0.1``) accepts several processes. However, two
simultaneous writers damage the server's log, and rows that the server has acknowledged are lost after a restart
(version 3.2.2). Only one process at a time may therefore write to a gallery: it first creates a marker, a collection of
a fixed name, and any other writer ends with an error.
"""

from __future__ import annotations

import logging
import os
import re
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lreid.errors import InputError
from lreid.utils.extras import Extra
from lreid.utils.files import lock_open_file

CONNECT, CALL = 5.0, 60.0  # seconds to wait for a connection, and for an answer
TEXT = 65535  # maximum bytes of a text field
REQUEST = 16 << 20  # maximum bytes per insertion; Milvus accepts 64 MB
LEAST_LITE, LEAST_SERVER = (3, 2), (2, 4)
_open: dict[str, Connection] = {}


class Connection:
    """Call methods of a ``MilvusClient``, and shorten the messages of its errors to one line.

    Args:
        uri: address: ``FILE.db`` or ``http://host:port``. The environment variable ``MILVUS_TOKEN`` contains user name
            and password.

    Raises:
        InputError: pymilvus is not installed, the server cannot be reached or is too old, or another process uses the
            database.
    """

    def __init__(self, uri: str):
        self.uri = uri
        self.embedded = not uri.startswith(("http://", "https://"))
        self.pymilvus = import_pymilvus()
        if self.embedded:
            _require_free(Path(uri))
        token = os.environ.get("MILVUS_TOKEN", "")
        options = {"grpc.use_local_subchannel_pool": 1}  # an earlier failure must not delay this connection
        with self._naming_server("cannot be reached; start the server, or correct the address"):
            self.client = self.pymilvus.MilvusClient(
                uri, token=token, timeout=CONNECT, dedicated=True, grpc_options=options
            )
            version = self.client.get_server_version(timeout=CONNECT)
        self.lite = "lite" in version.lower()
        try:
            require_version(version, uri)
        except InputError:
            self.close()
            raise

    def __call__(self, method: str, *args: Any, timeout: float = CALL, **kwargs: Any) -> Any:
        """Call a method of the client and return its answer."""
        with self._naming_server("rows that were acknowledged are kept"):
            return getattr(self.client, method)(*args, timeout=timeout, **kwargs)

    def create(
        self, collection: str, fields: Sequence[str], width: int, index: tuple[str, dict[str, int]], **options: Any
    ) -> None:
        """Create a collection whose rows consist of a key, fields and a vector.

        Args:
            fields: names of the columns; ``path`` and ``text`` contain text, and all others contain integers.
            width: length of the vectors, which are compared by dot product.
            index: type of the vector index, with its parameters.
            options: other arguments of ``create_collection``.
        """
        types = self.pymilvus.DataType
        schema = self.client.create_schema(auto_id=False, enable_dynamic_field=False)
        schema.add_field("key", types.INT64, is_primary=True)
        for field in fields:
            if field in ("path", "text"):
                schema.add_field(field, types.VARCHAR, max_length=TEXT)
            else:
                schema.add_field(field, types.INT64)
        schema.add_field("vector", types.FLOAT_VECTOR, dim=width)
        indexes = self.client.prepare_index_params()
        indexes.add_index("vector", index_type=index[0], metric_type="IP", params=index[1])
        options |= {"schema": schema, "index_params": indexes, "consistency_level": "Bounded"}
        self("create_collection", collection, **options)

    def rows(self, collection: str, fields: list[str]) -> Iterator[dict[str, Any]]:
        """Return all current rows of a collection, in any order."""
        with self._naming_server("reading was interrupted"):
            pages = self.client.query_iterator(
                collection, batch_size=8192, filter="", output_fields=fields, consistency_level="Strong"
            )
            while page := pages.next():
                yield from page
            pages.close()

    def mark(self, name: str) -> None:
        """Create the marker that refuses a second writer of a gallery.

        Raises:
            InputError: there is a marker already.
        """
        if self.embedded:  # no other process can open the database
            return
        marker, token = f"{name}_writer", secrets.token_hex(8)
        if not self("has_collection", marker):
            self.create(marker, (), 2, ("FLAT", {}), properties={"writer": token})
            # If two processes create equal collections at the same time, a server may acknowledge both.
            if self("describe_collection", marker)["properties"].get("writer") == token:
                return
        raise InputError(
            f"{self.uri}: another process is writing to {name}; run this again when it has ended, or, if it was "
            f"killed, drop its marker, the collection {marker}"
        )

    def unmark(self, name: str) -> None:
        """Delete the marker that :meth:`mark` created."""
        if not self.embedded:
            self("drop_collection", f"{name}_writer")

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Mark a gallery during a change, on servers that two simultaneous writers damage."""
        if not self.lite:
            yield
            return
        self.mark(name)
        try:
            yield
        finally:
            self.unmark(name)

    def close(self) -> None:
        """End the connection, so that other processes can open a database of Milvus Lite."""
        _open.pop(self.uri, None)
        self.client.close()
        if self.embedded:
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance.release_server(self.uri)

    @contextmanager
    def _naming_server(self, advice: str) -> Iterator[None]:
        import grpc

        try:
            yield
        except (self.pymilvus.MilvusException, grpc.RpcError, grpc.FutureTimeoutError) as error:
            if not self.embedded:
                _open.pop(self.uri, None)  # a later call then opens a new connection
            text = str(getattr(error, "message", "") or error).strip() or type(error).__name__
            raise InputError(f"{self.uri}: {text.splitlines()[0]}; {advice}") from None


def connect(uri: str) -> Connection:
    """Return this process's connection to a database or server, and open one if there is none."""
    if not uri.startswith(("http://", "https://")):
        uri = os.path.abspath(uri)
    if uri not in _open:
        _open[uri] = Connection(uri)
    return _open[uri]


def import_pymilvus() -> Any:
    """Import pymilvus and silence its log output."""
    pymilvus = Extra("pymilvus", "milvus").load()
    for name in ("pymilvus", "milvus_lite", "grpc._server"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    return pymilvus


def require_version(version: str, where: str) -> None:
    """Refuse server versions that silently ignore options which lreid needs.

    Milvus 2.3.5 ignores ``group_by_field`` and does not report to which collection an alias points. Milvus Lite before
    3.2 has a different file format.
    """
    lite = "lite" in version.lower()
    least = LEAST_LITE if lite else LEAST_SERVER
    match = re.search(r"(\d+)\.(\d+)", version)
    if match is None or tuple(map(int, match.groups())) < least:
        wanted = f"Milvus{' Lite' if lite else ''} {least[0]}.{least[1]} or newer"
        raise InputError(
            f"{where}: runs version {version!r}, but {wanted} is needed; older ones silently ignore parts of a request"
        )


def slices_of(values: Any, size: int) -> Iterator[Any]:
    """Split a sequence into slices of ``size`` elements or fewer."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _require_free(path: Path) -> None:
    """Explain why Milvus Lite may not be able to open a database, because its own error gives no reason."""
    if not path.absolute().parent.is_dir():
        raise InputError(f"{path}: there is no folder {path.absolute().parent}; create it first")
    if path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file, but the database of Milvus Lite 3 is a folder; choose a different name")
    lock = path / "LOCK"
    if not lock.is_file():
        return
    with open(lock) as file:
        if not lock_open_file(file.fileno(), wait=False):
            raise InputError(
                f"{path}: another process has opened this database; wait for its end, or for several processes start "
                "milvus-lite server --host 127.0.0.1 and pass milvus:http://127.0.0.1:PORT"
            )

"""Connect to Milvus: Milvus Lite in this process, a server of Milvus Lite, or a Milvus server or cluster.

Milvus Lite in this process listens on 127.0.0.1 without a password, and only one process can open its database at a
time. The server of Milvus Lite (``milvus-lite server --host 127.0.0.1``) accepts several processes. However, two
simultaneous writers damage the server's log, and rows that the server has acknowledged are lost after a restart
(version 3.2.2). A writer therefore first takes a lock: it creates a collection of a fixed name, which only one process
can do.
"""

from __future__ import annotations

import gc
import logging
import os
import re
import secrets
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lreid.errors import InputError
from lreid.utils.extras import Extra
from lreid.utils.files import hold
from lreid.utils.reading import require_regular

CONNECT, CALL = 5.0, 60.0  # seconds to wait for a connection, and for an answer
PATIENCE, LEASE = 30.0, 90.0  # seconds to wait for a lock; seconds after which the lock of a killed writer lapses
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
        self.token = secrets.token_hex(8)
        self.holders: weakref.WeakValueDictionary[str, Any] = weakref.WeakValueDictionary()
        self.pymilvus = import_pymilvus()
        if self.embedded:
            _require_free(uri)
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
        self, name: str, collection: str, fields: list[str], width: int, index: tuple[str, dict[str, int]]
    ) -> None:
        """Create a collection whose rows consist of a key, fields and a vector.

        Args:
            fields: names of the columns; ``path`` and ``text`` contain text, and all others contain integers.
            width: length of the vectors, which are compared by dot product.
            index: type of the vector index, with its parameters.
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
        with self.writing(name):
            self("create_collection", collection, schema=schema, index_params=indexes, consistency_level="Bounded")

    def rows(self, collection: str, fields: list[str]) -> Iterator[dict[str, Any]]:
        """Return all current rows of a collection, in any order."""
        with self._naming_server("reading was interrupted"):
            pages = self.client.query_iterator(
                collection, batch_size=8192, filter="", output_fields=fields, consistency_level="Strong"
            )
            while page := pages.next():
                yield from page
            pages.close()

    @contextmanager
    def writing(self, name: str) -> Iterator[None]:
        """Create a context for a single writing request; on a server of Milvus Lite, it locks out other writers.

        After an error, the lock is not released but expires, because the last request may still be running.

        Raises:
            InputError: another process does not stop writing.
        """
        if self.embedded or not self.lite:
            yield
            return
        lock = f"{name}_writer"
        self._take(lock)
        yield
        self("drop_collection", lock)

    def reserve(self, name: str, collection: str, holder: Any) -> None:
        """Reserve a collection for the process that builds it.

        The building process repeats this call regularly, so that the reservation of a killed process expires.

        Raises:
            InputError: another process has reserved the collection.
        """
        lock, by = f"{collection}_builder", f"{self.token} {id(holder)}"
        error = InputError(
            f"{self.uri}: another process is building {name}; wait for its end (the reservation of a killed process "
            f"lapses after {LEASE:.0f} seconds), or choose another name"
        )
        if self.embedded:  # so that other processes can open the database
            if self.holders.setdefault(lock, holder) is not holder:
                gc.collect()  # the holder may be a failed builder in this process that was not yet deleted
                if self.holders.setdefault(lock, holder) is not holder:
                    raise error
            return
        lease = {"until": str(time.time() + LEASE), "by": by}
        if self("has_collection", lock):
            properties = self("describe_collection", lock)["properties"]
            left = float(properties.get("until", 0)) - time.time()
            if properties.get("by") == by:
                if left < LEASE / 2:
                    with self.writing(name):
                        self("alter_collection_properties", lock, lease)
                return
            if left > 0:
                raise error
            self("drop_collection", lock)
        try:
            self._create_lock(lock, lease)
        except self.pymilvus.MilvusException:
            raise error from None
        if self("describe_collection", lock)["properties"].get("by") != by:
            raise error

    def release(self, collection: str) -> None:
        """End the reservation that :meth:`reserve` made."""
        lock = f"{collection}_builder"
        if self.embedded:
            self.holders.pop(lock, None)
        else:
            self("drop_collection", lock)

    def close(self) -> None:
        """End the connection, so that other processes can open a database of Milvus Lite."""
        _open.pop(self.uri, None)
        self.client.close()
        if self.embedded:
            from milvus_lite.server_manager import server_manager_instance

            server_manager_instance.release_server(self.uri)

    def _take(self, lock: str) -> None:
        start = time.monotonic()
        while True:
            try:
                self._create_lock(lock, {"until": str(time.time() + LEASE)})
                return
            except self.pymilvus.MilvusException as error:
                reason = error
            try:
                until = float(self.client.describe_collection(lock, timeout=CALL)["properties"]["until"])
                if time.time() > until:
                    self.client.drop_collection(lock, timeout=CALL)
            except (self.pymilvus.MilvusException, KeyError):
                pass  # the lock has just been released
            if time.monotonic() - start > PATIENCE:
                raise InputError(
                    f"{self.uri}: another process is writing ({_line(reason)}); run this again when that process has "
                    f"ended; the lock of a killed process lapses after {LEASE:.0f} seconds"
                )
            time.sleep(0.05)

    def _create_lock(self, lock: str, properties: dict[str, str]) -> None:
        """Create an empty collection; if several processes do so at the same time, only one succeeds."""
        schema = self.client.create_schema(auto_id=False)
        schema.add_field("key", self.pymilvus.DataType.INT64, is_primary=True)
        schema.add_field("vector", self.pymilvus.DataType.FLOAT_VECTOR, dim=2)
        self.client.create_collection(lock, schema=schema, properties=properties, timeout=CALL)

    @contextmanager
    def _naming_server(self, advice: str) -> Iterator[None]:
        import grpc

        try:
            yield
        except (self.pymilvus.MilvusException, grpc.RpcError, grpc.FutureTimeoutError) as error:
            if not self.embedded:
                _open.pop(self.uri, None)  # a later call then opens a new connection
            raise InputError(f"{self.uri}: {_line(error)}; {advice}") from None


def connect(uri: str) -> Connection:
    """Return this process's connection to a database or server, and open one if there is none.

    Raises:
        InputError: see :class:`Connection`.
    """
    if not uri.startswith(("http://", "https://")):
        uri = os.path.abspath(uri)
    if uri not in _open:
        _open[uri] = Connection(uri)
    return _open[uri]


def import_pymilvus() -> Any:
    """Import pymilvus and silence its log output.

    Raises:
        InputError: pymilvus is not installed.
    """
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


def parts_of(values: Any, size: int) -> Iterator[Any]:
    """Split a sequence into slices of ``size`` elements or fewer."""
    for start in range(0, len(values), size):
        yield values[start : start + size]


def _require_free(path: str) -> None:
    """Explain why Milvus Lite may not be able to open a database, because its own error gives no reason."""
    if not Path(path).absolute().parent.is_dir():
        raise InputError(f"{path}: there is no folder {Path(path).absolute().parent}; create it first")
    if Path(path).is_file():
        raise InputError(f"{path}: is a file, but the database of Milvus Lite 3 is a folder; choose a different name")
    require_regular(path)
    lock = Path(path, "LOCK")
    require_regular(lock)
    if not lock.exists():
        return
    with open(lock) as file:
        if not hold(file.fileno(), wait=False):
            raise InputError(
                f"{path}: another process has opened this database; wait for its end, or for several processes start "
                "milvus-lite server --host 127.0.0.1 and pass milvus:http://127.0.0.1:PORT"
            )


def _line(error: Exception) -> str:
    """Return the first line of an error message."""
    text = str(getattr(error, "message", "") or error).strip()
    return text.splitlines()[0] if text else type(error).__name__

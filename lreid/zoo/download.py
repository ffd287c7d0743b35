"""Download files with pooch; a download that breaks or gets a wrong file leaves no file under the final name."""

import logging
import os
import shutil
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import IO

import pooch

from lreid.errors import InputError, short_reason
from lreid.utils.extras import Extra
from lreid.utils.files import make_folder, only_one_process, write_atomically

logger = logging.getLogger("lreid")

DRIVE = "https://drive.google.com/"  # returns confirmation pages before some files; gdown handles these pages
TIMEOUT = 30  # seconds without any data after which an attempt fails
ATTEMPTS = 3  # attempts per address, the further ones after pauses of 1 and 2 seconds


class DownloadFailed(Exception):
    """An address does not return the expected file."""


def cache_folder() -> Path:
    """Return the folder of downloaded weights."""
    return Path(os.environ.get("LREID_ZOO_CACHE") or pooch.os_cache("lreid"))


def download(name: str, addresses: Sequence[str], *, sha256: str) -> Path:
    """Download a file to the cache folder unless it already exists.

    Args:
        name: name of the file in the cache folder and on the mirror ``LREID_ZOO_MIRROR``.
        addresses: addresses with http, https or file, which are tried in this order after the mirror.
        sha256: 64 hexadecimal digits, or their beginning; empty if unknown.

    Raises:
        InputError: no address returns the file, the file cannot be written, or a file of other content has its name.
    """
    file = cache_folder() / name
    if mirror := os.environ.get("LREID_ZOO_MIRROR"):
        addresses = [f"{mirror.rstrip('/')}/{name}", *addresses]
    try:
        make_folder(file.parent)
        with only_one_process(file.parent):
            if not file.exists():
                _from_first(addresses, file, sha256)
            elif not pooch.file_hash(str(file)).startswith(sha256):
                raise InputError(
                    f"{file}: is damaged or a different file (its SHA-256 does not begin with {sha256[:12]}); "
                    "delete it or move it away, then repeat the command"
                )
    except OSError as error:
        raise InputError(
            f"{file}: cannot be written ({error.strerror or error}); free some space or fix the permissions, or set "
            "another folder by LREID_ZOO_CACHE"
        ) from None
    return file


def _from_first(addresses: Sequence[str], file: Path, sha256: str) -> None:
    """Download a file from the first address that returns it."""
    faults = {}
    for address in addresses:
        logger.info("downloading %s", address)
        for attempt in range(ATTEMPTS):
            time.sleep(attempt)
            try:
                write_atomically(file, partial(_fetch, address, sha256))
                return
            except DownloadFailed as error:
                faults[address] = short_reason(error)
    reasons = "; ".join(f"{address}: {reason}" for address, reason in faults.items())
    raise InputError(
        f"{file.name}: cannot be downloaded ({reasons}); repeat the command, set a mirror by LREID_ZOO_MIRROR, or put "
        f"the file at {file}"
    )


def _fetch(address: str, sha256: str, file: IO[bytes]) -> None:
    """Write the content of an address to an open file, and check it."""
    import requests  # slow to load; pooch needs it, too

    try:
        if address.startswith("file:"):
            with urllib.request.urlopen(address) as source:
                shutil.copyfileobj(source, file)
        elif address.startswith(DRIVE):
            _fetch_from_drive(address, file)
        else:
            pooch.HTTPDownloader(progressbar=sys.stderr.isatty(), timeout=TIMEOUT)(address, file, None)
    except (requests.RequestException, urllib.error.URLError, ValueError) as error:
        raise DownloadFailed(_first_cause(error)) from None
    file.seek(0)
    if file.read(1) == b"<":  # no weights file begins like this
        raise DownloadFailed("returns a web page instead of the file: it requires a login, or the file was removed")
    file.flush()
    if not pooch.file_hash(file.name).startswith(sha256):
        raise DownloadFailed("its SHA-256 differs from the expected one")


def _fetch_from_drive(address: str, file: IO[bytes]) -> None:
    gdown = Extra("gdown", "torchreid").load()
    try:
        gdown.download(address, file, quiet=not sys.stderr.isatty(), use_cookies=False)
    except gdown.exceptions.DownloadError as error:
        raise DownloadFailed(str(error).removeprefix("Failed to retrieve file url:")) from None


def _first_cause(error: BaseException) -> BaseException:
    """Return the root cause of an error, because the library requests wraps a network error in three other errors."""
    while error.__context__ is not None:
        error = error.__context__
    return error

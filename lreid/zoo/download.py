"""Download files; a download that breaks, stalls or gets a wrong file leaves no file under the final name."""

import http.client
import logging
import os
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pooch
from tqdm import tqdm

from lreid.errors import InputError
from lreid.utils.extras import Extra
from lreid.utils.files import make_folder, only_one_process, require_replaceable, sync_folder
from lreid.utils.reading import require_regular

logger = logging.getLogger("lreid")

SCHEMES = ("http://", "https://", "file://")
DRIVE = "https://drive.google.com/"  # returns confirmation pages before some files; gdown handles these pages
BLOCK = 1 << 16  # bytes to read at once
MOST = 1 << 31  # maximum bytes of a file of unknown size, ten times the size of the largest hosted file
WEB_PAGE = "returns a web page instead of the file: it requires a login, or the file was removed"


class _Fault(Exception):
    """A download from one address failed; ``final`` is True if another attempt would fail too."""

    def __init__(self, reason: str, *, final: bool = False) -> None:
        super().__init__(reason)
        self.final = final


@dataclass(frozen=True)
class Download:
    """Download a file from the first address that returns it.

    If a download stops, its bytes stay in ``FILE.part``, and the next attempt requests only the missing bytes (HTTP
    Range). If the size of the file is known, a later call resumes the download too. The file gets its final name once
    it is complete and its hash is correct.

    Args:
        timeout: seconds without any data after which an attempt fails.
        attempts: number of attempts per address.
        pause: seconds before the second attempt, which double before every further attempt.
    """

    timeout: float = 30.0
    attempts: int = 4
    pause: float = 1.0

    def __call__(self, addresses: Sequence[str], file: Path, *, sha256: str, size: int) -> None:
        """Download the file unless it already exists.

        Args:
            addresses: addresses with http, https or file.
            file: path of the file; missing folders are created.
            sha256: 64 hexadecimal digits, or their beginning; empty if unknown.
            size: size in bytes, 0 if unknown.

        Raises:
            InputError: no address returns the file, the file cannot be written, or a file of other content has its
                name.
        """
        for address in addresses:
            if not address.startswith(SCHEMES):
                raise InputError(f"{address}: not an address; it must begin with {', '.join(SCHEMES)}")
        try:
            require_replaceable(file)
            make_folder(file.parent)
            with only_one_process(file.parent):
                require_regular(file)
                if file.exists():
                    if pooch.file_hash(str(file)).startswith(sha256):
                        return
                    raise InputError(
                        f"{file}: is damaged or a different file (its SHA-256 does not begin with {sha256[:12]}); "
                        "delete it or move it away, then repeat the command"
                    )
                self._from_first(addresses, file, sha256, size)
        except OSError as error:
            reason = "permission denied" if isinstance(error, PermissionError) else error.strerror or error
            raise InputError(
                f"{file}: cannot be written ({reason}); free some space or fix the permissions, or set "
                "another folder by LREID_ZOO_CACHE"
            ) from None

    def _from_first(self, addresses: Sequence[str], file: Path, sha256: str, size: int) -> None:
        faults: dict[str, str] = {}
        for address in addresses:
            attempt_at = (_Drive if address.startswith(DRIVE) else _Resuming)(
                address, file.with_name(f"{file.name}.part"), size, self.timeout
            )
            for attempt in range(self.attempts):
                time.sleep(self.pause * attempt)
                try:
                    attempt_at(file, sha256)
                    return
                except _Fault as fault:
                    faults[address] = str(fault)
                    if fault.final:
                        break
        reasons = "; ".join(f"{address}: {reason}" for address, reason in faults.items())
        raise InputError(
            f"{file.name}: cannot be downloaded ({reasons}); repeat the command to continue the download, "
            f"set a mirror by LREID_ZOO_MIRROR, or put the file at {file}"
        )


@dataclass
class _Resuming:
    """Download of a file from one address in several attempts; ``size`` is 0 until the server reports it."""

    url: str
    part: Path
    size: int
    timeout: float

    def __post_init__(self) -> None:
        if not self.size:  # a partial file from an earlier call may then belong to a different file
            self.part.unlink(missing_ok=True)

    def __call__(self, file: Path, sha256: str) -> None:
        received = self.part.stat().st_size if self.part.exists() else 0
        if not received or received != self.size:
            self._fetch(received if received < self.size else 0)
        require_regular(self.part)
        with open(self.part, "rb") as part:
            if part.read(1) == b"<":  # no weights file begins like this
                self.part.unlink()
                raise _Fault(WEB_PAGE, final=True)
        if not pooch.file_hash(str(self.part)).startswith(sha256):
            self.part.unlink()
            raise _Fault("its SHA-256 differs from the expected one")
        with open(self.part, "rb+") as part:
            os.fsync(part.fileno())
        self.part.replace(file)
        sync_folder(file.parent, file)

    def _fetch(self, start: int) -> None:
        """Download the bytes of the file from ``start`` on, or all bytes if the server cannot skip any."""
        logger.info("downloading %s%s", self.url, f", from byte {start}" if start else "")
        with _open(self.url, start, self.timeout) as response:
            if response.headers.get_content_type() == "text/html":
                raise _Fault(WEB_PAGE, final=True)
            span = str(response.headers["Content-Range"])
            if response.status != 206 or not span.startswith(f"bytes {start}-"):
                start = 0
            length = _length(response.headers["Content-Length"])
            if length is not None and self.size and length != self.size - start:
                raise _Fault(f"returns {length} bytes, not {self.size - start}: another file", final=True)
            if not self.size:
                if (length or 0) > MOST:
                    raise _too_large(MOST)
                self.size = length or 0
            with (
                open(self.part, "ab" if start else "wb") as part,
                tqdm(
                    total=self.size or None,
                    initial=start,
                    unit="B",
                    unit_scale=True,
                    disable=None,
                    leave=False,
                    desc=self.part.stem,
                ) as bar,
            ):
                while block := _read(response, self.size - start if self.size else BLOCK):
                    _Bounded(part, self.size or MOST).write(block)
                    start += len(block)
                    bar.update(len(block))
        if start < self.size:
            raise _Fault(f"stopped after {start} of {self.size} bytes")


@dataclass
class _Bounded:
    """An open file with a maximum size in bytes; lreid deletes the file if it exceeds this size."""

    file: IO[bytes]
    most: int

    def write(self, block: bytes) -> int:
        if self.file.tell() + len(block) > self.most:
            os.unlink(self.file.name)
            raise _too_large(self.most)
        return self.file.write(block)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.file, name)


class _Drive(_Resuming):
    """Download of a file from Google Drive in several attempts."""

    def _fetch(self, start: int) -> None:
        try:
            gdown = Extra("gdown", "torchreid").load()
        except InputError as error:
            raise _Fault(str(error), final=True) from None
        logger.info("downloading %s", self.url)
        try:
            with open(self.part, "wb") as part:
                bounded = _Bounded(part, self.size or MOST)
                gdown.download(self.url, bounded, quiet=not sys.stderr.isatty(), use_cookies=False)
        except (gdown.exceptions.DownloadError, OSError) as error:  # errors of requests are OSErrors
            denied = isinstance(error, gdown.exceptions.FileURLRetrievalError)
            reason = str(error if denied else _first_cause(error))
            raise _Fault(" ".join(reason.split()).removeprefix("Failed to retrieve file url: "), final=denied) from None
        if self.size and self.part.stat().st_size != self.size:
            raise _Fault(f"returns {self.part.stat().st_size} bytes, not {self.size}: another file", final=True)


def _length(header: str | None) -> int | None:
    """Return the number of bytes that a response declares; None if it declares none."""
    if header is None:
        return None
    if not re.fullmatch("[0-9]{1,18}", header.strip()):
        raise _Fault(f"returns the Content-Length {header[:20]!r}, which is not a number of bytes", final=True)
    return int(header)


def _too_large(most: int) -> _Fault:
    return _Fault(f"returns more than {most:,} bytes: another file", final=True)


def _first_cause(error: BaseException) -> BaseException:
    """Return the root cause of an error, because the library requests wraps a network error in three other errors."""
    while error.__context__ is not None:
        error = error.__context__
    return error


def _open(url: str, start: int, timeout: float) -> Any:
    try:
        request = urllib.request.Request(url, headers={"Range": f"bytes={start}-"} if start else {})
        return urllib.request.urlopen(request, timeout=timeout)
    except urllib.error.HTTPError as error:
        error.close()
        raise _Fault(f"{error.code} {error.reason}", final=400 <= error.code < 500) from None
    except TimeoutError:
        raise _Fault(f"no answer for {timeout:g} s") from None
    except (ValueError, http.client.InvalidURL) as error:
        raise _Fault(f"not an address ({error})", final=True) from None
    except (OSError, http.client.HTTPException) as error:
        reason = " ".join(str(getattr(error, "reason", error)).split()) or type(error).__name__
        raise _Fault(reason, final=url.startswith("file:")) from None


def _read(response: Any, most: int) -> bytes:
    try:
        return response.read1(min(BLOCK, most))
    except TimeoutError:
        raise _Fault("stalled") from None
    except (OSError, http.client.HTTPException) as error:
        raise _Fault(str(error) or type(error).__name__) from None

"""Serve a gallery over HTTP, with a page to search the gallery by image.

lreid serve people.gallery                                            # http://127.0.0.1:8000/
curl --data-binary @new.jpg 'http://127.0.0.1:8000/search?top=5'      # who is in this image?
curl -F image=@new.jpg 'http://127.0.0.1:8000/images?identity=anna'   # add the image; a form with one file, or a body
LREID_TOKEN=$(openssl rand -hex 32) lreid serve people.gallery --host 0.0.0.0

By default, only this machine can reach the server. If you set --host to another address, you must also set a token of
16 characters or more in the environment variable LREID_TOKEN. Every request must then have the header "Authorization:
Bearer TOKEN". The server does not encrypt its answers (plain HTTP), so put a proxy with TLS in front. The page /docs
describes all requests. Ctrl-C, SIGTERM or SIGHUP stops the server.
"""

import argparse
import logging
import os
import select
import signal
import socket
import sys
from pathlib import Path
from typing import Any

from lreid.apps.arguments import DEVICE, option, require_device, require_model, require_path
from lreid.errors import InputError, counted, require, short_reason

SHORTEST = 16  # minimum length of a token
STOPPING = 10  # seconds within which running requests must finish
MOST_CONNECTIONS = 512
UVICORN: dict[str, Any] = {"log_config": None, "log_level": "warning", "proxy_headers": False, "server_header": False}


class LogLines(logging.StreamHandler):
    """Write log lines to standard output; if nobody reads its pipe, leave lines out instead of waiting forever."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a line if writing does not block."""
        if select.select([], [self.stream], [], 0)[1]:
            super().emit(record)

    def format(self, record: logging.LogRecord) -> str:
        """Format a line, and keep as many bytes of its end as a pipe takes that select() says can be written."""
        return super().format(record).encode()[1 - select.PIPE_BUF :].decode(errors="ignore")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid serve``."""
    parser.add_argument("gallery", metavar="GALLERY", help="gallery made by lreid search build")
    option(parser, "--host", "network address of the server", "127.0.0.1")
    option(parser, "--port", "port of the server; 0 selects a free port", 8000)
    option(parser, "--max-mb MB", "maximum size of an uploaded image in megabytes", 10.0)
    option(parser, "--rate N", "maximum number of requests per second from one client", 100.0)
    option(parser, "--checkpoint FILE", "new path of the gallery's model, if the file has moved", type=Path)
    option(parser, "--device", DEVICE, "auto")


def run(args: argparse.Namespace) -> None:
    """Serve the gallery until SIGTERM or SIGINT."""
    from lreid.utils.extras import Extra

    require_device(args.device)
    require_path(args.gallery, "build a gallery first")
    require_model(args.checkpoint)
    require(0 < args.max_mb <= 1000, "--max-mb", args.max_mb, "above 0 and at most 1000")
    require(args.rate > 0, "--rate", args.rate, "above 0")
    require(0 <= args.port < 65536, "--port", args.port, "from 0 to 65535")
    uvicorn = Extra("uvicorn", "serve").load()
    for module in ("fastapi", "prometheus_client"):
        Extra(module, "serve").load()
    from lreid.serve.guard import Limits, is_local

    token = os.environ.get("LREID_TOKEN") or None
    # A header can contain no other characters, and no spaces at its ends.
    if token and (len(token) < SHORTEST or token != token.strip() or not (token.isascii() and token.isprintable())):
        raise InputError(f"LREID_TOKEN: use {SHORTEST} or more ASCII characters; create one by: openssl rand -hex 32")
    with _listening(args.host, args.port) as listener:
        host, port = listener.getsockname()[:2]
        if token is None and not is_local(host):
            raise InputError(
                f"--host {args.host}: others can reach this address; set the environment variable LREID_TOKEN to a "
                f"token of {SHORTEST} characters or more"
            )
        from lreid.serve.app import create_app  # loads torch
        from lreid.serve.connections import Connection
        from lreid.serve.served_gallery import ServedGallery

        gallery = ServedGallery(args.gallery, args.checkpoint, args.device)
        app = create_app(gallery, token=token, limits=Limits(int(args.max_mb * 1e6), args.rate))
        # asyncio may accept as many connections again before Connection closes the first of them.
        most = min(MOST_CONNECTIONS, os.sysconf("SC_OPEN_MAX") // 4)
        logging.basicConfig(format="%(message)s", level=logging.INFO, handlers=[LogLines(sys.stdout)], force=True)
        config = uvicorn.Config(app, http=Connection, backlog=most, timeout_graceful_shutdown=STOPPING, **UVICORN)
        server = uvicorn.Server(config)
        for stop in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(stop) is not signal.SIG_IGN:  # nohup ignores SIGHUP
                signal.signal(stop, server.handle_exit)
        images = counted(gallery.info()["images"], "image")
        address = f"[{host}]" if ":" in host else host
        print(f"{args.gallery}: {images}, served at http://{address}:{port}/ (Ctrl-C stops)", flush=True)
        server.run(sockets=[listener])
    logging.getLogger("lreid").info("stopped")


def _listening(host: str, port: int) -> socket.socket:
    """Open a listening socket at an address."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=512)
    except (OSError, OverflowError) as error:
        reason = short_reason(error)
        raise InputError(f"{host}:{port}: cannot serve there ({reason}); choose another --host or --port") from None

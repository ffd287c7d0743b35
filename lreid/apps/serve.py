"""Serve a gallery over HTTP, with a page to search the gallery by image.

lreid serve people.gallery                                            # http://127.0.0.1:8000/
curl --data-binary @new.jpg 'http://127.0.0.1:8000/search?top=5'      # who is in this image?
curl --data-binary @new.jpg 'http://127.0.0.1:8000/images?identity=anna'     # add the image
LREID_TOKEN=$(openssl rand -hex 32) lreid serve people.gallery --host 0.0.0.0

By default, only this machine can reach the server. If you set --host to another address, you must also set a token of
16 characters or more in the environment variable LREID_TOKEN. Every request must then have the header "Authorization:
Bearer TOKEN". The server does not encrypt its answers (plain HTTP), so put a proxy with TLS in front. The page /docs
describes all requests. Ctrl-C or SIGTERM stops the server.
"""

import argparse
import os
import signal
import socket
from pathlib import Path

from lreid.apps.arguments import DEVICE, option, require_device, require_model, require_path
from lreid.errors import InputError, counted, require

SHORTEST = 16  # minimum length of a token
STOPPING = 10  # seconds within which running requests must finish


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
    if token is not None and len(token) < SHORTEST:
        raise InputError(f"LREID_TOKEN: has fewer than {SHORTEST} characters; create one by: openssl rand -hex 32")
    with _listening(args.host, args.port) as listener:
        host, port = listener.getsockname()[:2]
        if token is None and not is_local(host):
            raise InputError(
                f"--host {args.host}: others can reach this address; set the environment variable LREID_TOKEN to a "
                f"token of {SHORTEST} characters or more"
            )
        from lreid.serve.app import create_app  # loads torch
        from lreid.serve.served_gallery import ServedGallery

        gallery = ServedGallery(args.gallery, args.checkpoint, args.device)
        app = create_app(gallery, token=token, limits=Limits(int(args.max_mb * 1e6), args.rate))
        config = uvicorn.Config(
            app, log_level="warning", proxy_headers=False, server_header=False, timeout_graceful_shutdown=STOPPING
        )
        for stop in (signal.SIGINT, signal.SIGTERM):  # uvicorn raises the signal again after it has stopped
            signal.signal(stop, lambda *_: None)
        images = counted(gallery.info()["images"], "image")
        address = f"[{host}]" if ":" in host else host
        print(f"{args.gallery}: {images}, served at http://{address}:{port}/ (Ctrl-C stops)", flush=True)
        uvicorn.Server(config).run(sockets=[listener])
    print("stopped")


def _listening(host: str, port: int) -> socket.socket:
    """Open a listening socket at an address."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=512)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{host}:{port}: lreid cannot serve there ({reason}); choose another --host or --port"
        ) from None

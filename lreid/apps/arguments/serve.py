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
from pathlib import Path

from lreid.apps.arguments.search import DEVICE
from lreid.apps.cli import option


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``lreid serve``."""
    parser.add_argument("gallery", metavar="GALLERY", help="gallery made by lreid search build")
    option(parser, "--host", "network address of the server", "127.0.0.1")
    option(parser, "--port", "port of the server; 0 selects a free port", 8000)
    option(parser, "--max-mb MB", "maximum size of an uploaded image in megabytes", 10.0)
    option(parser, "--rate N", "maximum number of requests per second from one client", 100.0)
    option(parser, "--checkpoint FILE", "new path of the gallery's model, if the file has moved", type=Path)
    option(parser, "--device", DEVICE, "auto")

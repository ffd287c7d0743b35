"""Serve a gallery over HTTP, with a page to search it by image.

lreid serve people.gallery                                            # http://127.0.0.1:8000/
curl --data-binary @new.jpg 'http://127.0.0.1:8000/search?top=5'      # who is in this image?
curl --data-binary @new.jpg 'http://127.0.0.1:8000/images?identity=anna'     # add the image
LREID_TOKEN=$(openssl rand -hex 32) lreid serve people.gallery --host 0.0.0.0

Without a token, only this machine can reach the server. Any other --host needs a token of 16 characters or more in the
environment variable LREID_TOKEN; requests then send "Authorization: Bearer TOKEN". The server speaks plain HTTP, so put
a proxy with TLS in front of it. /docs describes all requests. Ctrl-C or SIGTERM stops the server.
"""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of ``lreid serve``."""
    parser.add_argument("gallery", metavar="GALLERY", help="gallery made by lreid search build")
    parser.add_argument("--host", default="127.0.0.1", help="address to serve at (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="port; 0 chooses a free one (default: 8000)")
    parser.add_argument("--max-mb", type=float, default=10, metavar="MB", help="maximum size of an image (default: 10)")
    parser.add_argument(
        "--rate",
        type=float,
        default=100,
        metavar="N",
        help="maximum number of requests per second and client (default: 100)",
    )
    parser.add_argument("--checkpoint", type=Path, metavar="FILE", help="the gallery's model, if its file has moved")
    parser.add_argument("--device", default="auto", help="auto, cpu, cuda, cuda:1 … (default: auto)")

"""The routes of the server: search, add, remove, rename, undo, information, metrics and the page."""

import math
from email import message_from_bytes
from email.message import Message
from html import escape
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, HTTPException, Query, Request
from fastapi.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from fastapi.security import HTTPBearer
from fastapi.staticfiles import StaticFiles
from prometheus_client import CollectorRegistry, Gauge, generate_latest

from lreid.errors import InputError, NotConfirmed, OutOfMemory
from lreid.serve.guard import Guard, Limits
from lreid.serve.served_gallery import MOST_LETTERS, Absent, Conflict, ServedGallery, Unavailable
from lreid.utils.extras import installed_version

STATIC = Path(__file__).with_name("static")
# HTTP status by error; 422 for all others.
STATUS = {Absent: 404, Conflict: 409, Unavailable: 503, OutOfMemory: 503, NotConfirmed: 500}
BINARY = {"type": "string", "format": "binary"}
FORM = {"multipart/form-data": {"schema": {"type": "object", "properties": {"image": BINARY}}}}
BODY = {"requestBody": {"required": True, "content": {"image/*": {"schema": BINARY}} | FORM}}
LONGEST_PATH = 4096  # maximum length of a path
MOST_FILES = 100  # maximum number of files in a form


async def _contents(request: Request) -> list[bytes]:
    """Return the images of a request: the files of a form, or the body as one image."""
    kind, body = request.headers.get("Content-Type", ""), await request.body()
    images = _files(kind, body) if kind.lower().startswith("multipart/") else [body]
    if any(images):
        return images
    raise HTTPException(422, "the request has no image; send an image file as the body, or as a form with one file")


def _files(kind: str, body: bytes) -> list[bytes]:
    """Return the files of a form; its time does not depend on the content, unlike that of Python's parser of mails."""
    boundary = str(_head(f"Content-Type: {kind}".encode("latin-1")).get_boundary("")).encode(errors="replace")
    _, *parts = (b"\r\n" + body).split(b"\r\n--" + boundary, MOST_FILES + 1)
    if not (boundary and parts and parts.pop().startswith(b"--")):
        raise HTTPException(422, f"the form is not complete, or has more than {MOST_FILES} files")
    files = []
    for head, _, content in (part.partition(b"\r\n\r\n") for part in parts):
        values = _head(head.lstrip())
        if values.get_filename() is None:
            name = str(values.get_param("name", "a part", "Content-Disposition"))[:MOST_LETTERS]
            raise HTTPException(422, f"{name}: is not a file; pass options in the address: ?identity=anna&camera=1")
        files += [content] if values.get_filename() else []  # a browser's form has an empty name if no file was chosen
    return files


def _head(lines: bytes) -> Message:
    """Parse the head of a form or of one of its parts."""
    return message_from_bytes(lines[:LONGEST_PATH])


Contents = Annotated[list[bytes], Depends(_contents)]


async def _content(contents: Contents) -> bytes:
    """Return the image of a request that must have exactly one."""
    if len(contents) > 1:
        raise HTTPException(422, f"{len(contents)} files; send one (POST /search/group searches images of one person)")
    return contents[0]


async def _require_known(request: Request) -> None:
    """Refuse query parameters that a route would ignore: unknown ones, such as ``topk``, and repeated ones."""
    names = [each.alias for each in request.scope["route"].dependant.query_params]
    for name in request.query_params:
        if name not in names or len(request.query_params.getlist(name)) > 1:
            raise HTTPException(422, f"{name[:MOST_LETTERS]}: unknown or repeated; the parameters are {names}")


Content = Annotated[bytes, Depends(_content)]
Identity = Annotated[str, Query(max_length=LONGEST_PATH)]
Name = Annotated[str | None, Query(max_length=LONGEST_PATH)]
Top = Annotated[int, Query(ge=1, le=100)]


def create_app(gallery: ServedGallery, *, token: str | None = None, limits: Limits = Limits()) -> FastAPI:  # noqa: B008
    """Create the web application of the server.

    Args:
        gallery: the gallery to serve.
        token: token that every request must contain, except for ``guard.OPEN_PATHS``; None accepts all requests,
            but only from this machine.
        limits: limits of the requests of each client.
    """
    app = FastAPI(
        title="lreid serve",
        version=installed_version("lreid") or "source",
        description="Search a gallery by images. Send an image file as the body of a request, or in a form.",
        docs_url=None,  # FastAPI's own pages load scripts from a different site
        redoc_url=None,
        # only for the description of the API; Guard checks the token
        dependencies=[Depends(HTTPBearer(auto_error=False))] if token else [],
    )
    registry = CollectorRegistry()
    app.add_middleware(Guard, limits=limits, token=token, registry=registry)
    images = Gauge("lreid_gallery_images", "Images in the gallery", registry=registry)
    images.set_function(lambda: _count(gallery))

    @app.exception_handler(InputError)
    def refuse(request: Request, error: InputError) -> JSONResponse:
        status = next((status for kind, status in STATUS.items() if isinstance(error, kind)), 422)
        return JSONResponse({"detail": str(error)}, status)

    app.include_router(_routes(gallery))

    @app.get("/health")
    async def health() -> dict[str, str]:
        """Check that the server answers."""
        return {"status": "ok"}

    @app.get("/metrics", response_class=PlainTextResponse)
    def metrics() -> PlainTextResponse:
        """Get the number and the duration of requests, and the number of images, in the text format of Prometheus."""
        return PlainTextResponse(generate_latest(registry), media_type="text/plain; version=0.0.4")

    @app.get("/docs", include_in_schema=False)
    def docs() -> HTMLResponse:
        return HTMLResponse(_description(app))

    app.mount("/", StaticFiles(directory=STATIC, packages=[("lreid.report", "static")], html=True))
    return app


def _routes(gallery: ServedGallery) -> APIRouter:
    """Create the routes that search and change a gallery."""
    router = APIRouter(dependencies=[Depends(_require_known)])

    @router.post("/search", openapi_extra=BODY)
    def search(content: Content, top: Top = 10, camera: Name = None) -> dict[str, Any]:
        """Find who is in an image; the answer has identity, unknown (null without a threshold) and matches."""
        return gallery.search([content], top, camera)

    @router.post("/search/group", openapi_extra=BODY)
    def search_group(contents: Contents, top: Top = 10, camera: Name = None) -> dict[str, Any]:
        """Find who is in several images of one person or track, by the mean of their scores."""
        return gallery.search(contents, top, camera)

    @router.post("/images", openapi_extra=BODY)
    def add(content: Content, identity: Name = None, camera: Name = None) -> dict[str, Any]:
        """Add an image to the gallery. The answer contains the name of the change, by which it can be undone."""
        return gallery.add(content, identity, camera)

    @router.delete("/images")
    def remove(path: Name = None, identity: Name = None) -> dict[str, Any]:
        """Remove one image by its path, or all images of an identity."""
        if (path is None) == (identity is None):
            raise HTTPException(422, "pass either path or identity")
        return gallery.remove(path, identity)

    @router.get("/images", response_class=Response, responses={200: {"content": {"image/jpeg": {}}}})
    def show(path: Annotated[str, Query(max_length=LONGEST_PATH)]) -> Response:
        """Get a thumbnail of an image in the gallery."""
        return Response(gallery.thumbnail(path), media_type="image/jpeg")

    @router.get("/identities")
    def identities() -> dict[str, int]:
        """Get the number of images of each identity."""
        return gallery.identities()

    @router.post("/rename")
    def rename(old: Identity, new: Identity, merge: bool = False) -> dict[str, Any]:
        """Rename an identity, or merge it with another one."""
        return gallery.rename(old, new, merge=merge)

    @router.post("/undo/{change}")
    def undo(change: str) -> dict[str, int]:
        """Undo one of the last changes."""
        return gallery.undo(change)

    @router.get("/info")
    def info() -> dict[str, Any]:
        """Get the properties of the gallery, including its threshold."""
        return gallery.info()

    return router


def _count(gallery: ServedGallery) -> float:
    """Return the number of images; NaN if the gallery cannot be read, so that the other metrics stay available."""
    try:
        return len(gallery.current())
    except InputError:
        return math.nan


def _description(app: FastAPI) -> str:
    """Describe all routes on a page that loads nothing from other sites."""
    rows = [
        (method.upper(), path, ", ".join(each["name"] for each in route.get("parameters", ())), route["description"])
        for path, methods in app.openapi()["paths"].items()
        for method, route in methods.items()
    ]
    table = "".join(f"<tr>{''.join(f'<td class=text>{escape(cell)}' for cell in row)}" for row in rows)
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<title>API</title><link rel="stylesheet" href="style.css"><main><h1>API</h1><p>{escape(app.description)} '
        'Types and answers: <a href="openapi.json">openapi.json</a>.</p>'
        '<section class="scroll"><table><tr><th>method<th>path<th>options<th>what it does'
        f"{table}</table></section></main></html>"
    )

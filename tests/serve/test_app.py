"""The routes of the server: answers, changes of the gallery, and refused requests."""

import asyncio
import io
import os
import shutil
import threading
import time
import unicodedata
import zlib
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

import lreid.gallery
from lreid import load_model
from lreid.errors import InputError
from lreid.gallery import Gallery
from lreid.utils.files import write_atomically

pytest.importorskip("fastapi", reason="needs lreid[serve]")
from starlette.testclient import TestClient

from lreid.serve import served_gallery
from lreid.serve.app import create_app
from lreid.serve.guard import Limits
from lreid.serve.served_gallery import UNDOABLE, ServedGallery

TOKEN = "0123456789abcdef"
LOCAL = "http://127.0.0.1:8000"


def client_of(gallery: Path, base: str = LOCAL, **options: Any) -> TestClient:
    return TestClient(create_app(ServedGallery(str(gallery), device="cpu"), **options), base)


@pytest.fixture
def client(gallery: Path) -> TestClient:
    return client_of(gallery)


def rows(gallery: Path) -> dict[str, tuple[Any, ...]]:
    """Identity, camera, time and feature of all images of a file, by path."""
    read = Gallery.load(gallery)
    labels = read.labels()
    features = read.features(labels.keys).tolist()
    columns = zip(labels.ids, labels.cams, labels.times.tolist(), features, strict=True)
    return dict(zip(labels.paths, columns, strict=True))


def png(seed: int, size: tuple[int, int] = (32, 64)) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (size[1], size[0], 3), np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, "PNG")
    return buffer.getvalue()


def test_search_answers_like_the_command(client: TestClient, gallery: Path, queries: list[Path]) -> None:
    results = lreid.gallery.query(gallery, queries, top=5, device="cpu")
    assert {each["unknown"] for each in results["queries"]} == {True, False}
    for path, expected in zip(queries, results["queries"], strict=True):
        answer = client.post("/search?top=5", content=path.read_bytes()).json()
        assert answer["threshold"] == results["threshold"] and answer["false_accept_rate"] == 0.2
        for match, other in zip(answer["matches"], expected["matches"], strict=True):
            score = match.pop("score")
            assert score == pytest.approx(other.pop("score"), abs=1e-6)
            if abs(score - results["threshold"]) < 1e-6:  # batches change the last bits of a score
                match["known"] = other["known"]
            assert match == other
        known = [match["identity"] for match in answer["matches"] if match["known"]]
        assert (answer["unknown"], answer["identity"]) == (not known, known[0] if known else None)
    assert client.get("/info").json()["images"] == len(rows(gallery))


def test_image_is_added_found_removed_and_restored(client: TestClient, gallery: Path, tmp_path: Path) -> None:
    before, content = rows(gallery), png(0)
    added = client.post("/images?identity=anna&camera=9", content=content).json()
    file = Path(added["path"])
    assert file.parent == tmp_path / "people.gallery.images" and file.read_bytes() == content
    assert rows(gallery).keys() - before.keys() == {str(file)} and added["images"] == len(before) + 1
    best = client.post("/search?top=1", content=content).json()["matches"][0]
    assert (best["identity"], best["camera"], best["path"]) == ("anna", "9", str(file))
    assert client.post("/images?identity=ben", content=content).status_code == 409
    shown = Image.open(io.BytesIO(client.get("/images", params={"path": str(file)}).content))
    assert shown.format == "JPEG" and shown.size == (32, 64)

    with_anna = rows(gallery)
    removed = client.delete("/images?identity=anna").json()
    assert removed["removed"] == 1 and not file.exists() and rows(gallery) == before
    assert client.post(f"/undo/{removed['undo']}").json() == {"images": len(with_anna)}
    restored = rows(gallery)
    assert restored.keys() == with_anna.keys() and file.read_bytes() == content
    for path, (*labels, feature) in with_anna.items():
        assert [*restored[path][:3]] == labels and restored[path][3] == pytest.approx(feature, abs=1e-6)
    assert client.post(f"/undo/{removed['undo']}").status_code == 404
    assert client.post(f"/undo/{added['undo']}").status_code == 200
    assert rows(gallery) == before and not file.exists()


def test_files_that_were_not_uploaded_are_never_deleted(client: TestClient, gallery: Path, world: Path) -> None:
    before = rows(gallery)
    doomed = [path for path in before if "/p" in path][:2]
    for path in doomed:
        assert client.request("DELETE", "/images", params={"path": path}).json()["removed"] == 1
    assert rows(gallery).keys() == before.keys() - {*doomed} and all(Path(path).exists() for path in doomed)
    assert client.request("DELETE", "/images", params={"path": doomed[0]}).status_code == 404


def test_image_of_a_killed_upload_is_deleted_at_the_next_start(client: TestClient, gallery: Path) -> None:
    file = Path(client.post("/images?identity=anna", content=png(0)).json()["path"])
    orphan = shutil.copy(file, file.with_name("0" * 32 + ".png"))
    client_of(gallery)
    assert file.exists() and not orphan.exists()


def test_unicode_forms_of_a_name_are_one_person(client: TestClient, gallery: Path) -> None:
    forms = [unicodedata.normalize(form, "José") for form in ("NFC", "NFD")]
    for seed, name in enumerate(forms):
        assert client.post("/images", params={"identity": name}, content=png(seed)).status_code == 200
    assert client.delete("/images", params={"identity": forms[1]}).json()["removed"] == 2


def test_uploads_are_not_written_to_temporary_files(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", "/nowhere")
    assert client.post("/search", content=png(0)).status_code == 200
    assert client.post("/images?camera=9", content=png(0)).status_code == 200


def test_images_are_decoded_one_at_a_time(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    content, running, most = png(0), threading.Semaphore(0), []
    path = client.post("/images", content=content).json()["path"]

    def watched(read: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        running.release()
        time.sleep(0.02)  # long enough for other threads to begin
        image = read(*arguments, **options)
        most.append(running._value)
        running.acquire()
        return image

    for name in ("decode", "read_image"):
        monkeypatch.setattr(served_gallery, name, partial(watched, getattr(served_gallery, name)))
    calls = [("GET", "/images", {"path": path}), ("POST", "/search", {})] * 4
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda call: client.request(*call[:2], params=call[2], content=content), calls))
    assert {each.status_code for each in answers} == {200} and most == [1] * 8


def test_thumbnail_of_a_large_image_is_made_of_a_small_copy(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    large = io.BytesIO()
    Image.new("RGB", (3000, 1500)).save(large, "PNG")
    path = client.post("/images", content=large.getvalue()).json()["path"]
    shapes: list[tuple[int, ...]] = []
    monkeypatch.setattr(served_gallery, "thumbnail", lambda image: shapes.append(image.shape) or b"")
    assert client.get("/images", params={"path": path}).status_code == 200
    assert shapes[0][1] <= 1500 and shapes[0][1] == 2 * shapes[0][0]


def make_pipe(file: Path) -> None:
    """Make a pipe with a waiting writer, so that reading it ends instead of hanging."""
    os.mkfifo(file)
    threading.Thread(target=file.write_bytes, args=(b"",), daemon=True).start()


@pytest.mark.parametrize("make", [os.mkdir, make_pipe])
def test_photograph_that_cannot_be_read_stops_only_its_own_removal(
    client: TestClient, gallery: Path, make: Callable[[Path], None]
) -> None:
    file = Path(client.post("/images?identity=anna", content=png(0)).json()["path"])
    other = client.post("/images?identity=ben", content=png(1)).json()
    before = rows(gallery)
    file.unlink()
    make(file)
    assert client.get("/images", params={"path": str(file)}).status_code == 404
    answer = client.delete("/images?identity=anna")
    assert answer.status_code == 503 and str(file) in answer.json()["detail"] and rows(gallery) == before
    assert client.post(f"/undo/{other['undo']}").status_code == 200
    os.close(os.open(file, os.O_RDONLY | os.O_NONBLOCK))  # the writer ends


def test_photograph_that_cannot_be_deleted_is_named(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    path = client.post("/images?identity=anna", content=png(0)).json()["path"]

    def refuse(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "unlink", refuse)
    answer = client.delete("/images?identity=anna")
    assert answer.status_code == 500 and path in answer.json()["detail"]
    assert client.delete("/images?identity=anna").status_code == 404


def test_file_in_place_of_the_folder_of_images_is_reported(client: TestClient, gallery: Path) -> None:
    before = gallery.read_bytes()
    folder = gallery.with_name("people.gallery.images")
    folder.write_bytes(b"mine")
    answer = client.post("/images", content=png(0))
    assert answer.status_code == 503 and folder.name in answer.json()["detail"]
    assert gallery.read_bytes() == before and folder.read_bytes() == b"mine"


def test_client_that_closes_during_an_upload_is_no_error(client: TestClient) -> None:
    messages = iter([{"type": "http.request", "body": b"part", "more_body": True}, {"type": "http.disconnect"}])
    sent: list[Any] = []

    async def receive() -> Any:
        return next(messages)

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {
        "type": "http",
        "method": "POST",
        "path": "/search",
        "query_string": b"",
        "headers": [(b"host", b"localhost")],
    }
    asyncio.run(client.app(scope, receive, send))
    assert sent[0]["status"] == 499


@pytest.mark.parametrize(
    ("method", "address", "name"),
    [
        ("POST", "/search?topk=5", "topk"),
        ("POST", "/search?top=5&top=6", "top"),
        ("POST", "/images?name=anna", "name"),
        ("POST", "/images?content=1", "content"),
        ("DELETE", "/images?identity=anna&camera=1", "camera"),
        ("GET", "/info?images=1", "images"),
    ],
)
def test_unknown_and_repeated_parameters_are_refused(
    client: TestClient, gallery: Path, method: str, address: str, name: str
) -> None:
    client.post("/images?identity=anna", content=png(0))
    before = gallery.read_bytes()
    answer = client.request(method, address, content=png(1))
    assert answer.status_code == 422 and answer.json()["detail"].startswith(f"{name}:")
    assert gallery.read_bytes() == before


def test_head_answers_as_get_without_a_body(client: TestClient) -> None:
    path = client.post("/images", content=png(0)).json()["path"]
    found = [
        "/",
        "/page.js",
        "/docs",
        "/openapi.json",
        "/health",
        "/metrics",
        "/info",
        "/identities",
        f"/images?path={path}",
    ]
    for address in [*found, "/search", "/images?path=nobody"]:
        get, head = client.get(address), client.head(address)
        assert head.status_code == get.status_code and (head.status_code == 200) == (address in found)
        assert head.headers["content-type"] == get.headers["content-type"] and not head.content


def test_only_the_last_changes_can_be_undone(client: TestClient, gallery: Path) -> None:
    first = client.post("/images", content=png(0)).json()
    client.request("DELETE", "/images", params={"path": first["path"]})
    assert client.post(f"/undo/{first['undo']}").status_code == 409
    changes = [client.post("/images", content=png(seed)).json()["undo"] for seed in range(1, UNDOABLE + 2)]
    assert client.post(f"/undo/{first['undo']}").status_code == 404
    assert client.post(f"/undo/{changes[1]}").status_code == 200


def test_search_sees_changes_of_other_processes(client: TestClient, gallery: Path, queries: list[Path]) -> None:
    content = queries[0].read_bytes()
    first = client.post("/search?top=1", content=content).json()["matches"][0]
    lreid.gallery.remove(gallery, [first["path"]])
    second = client.post("/search?top=1", content=content).json()["matches"][0]
    assert second["path"] != first["path"]
    client.post("/images?identity=zoe", content=png(1))
    assert first["path"] not in rows(gallery)
    gallery.rename(gallery.with_name("away"))
    answer = client.post("/search", content=content)
    assert answer.status_code == 503 and "\n" not in answer.json()["detail"]
    assert client.post("/images", content=png(2)).status_code == 503
    metrics = client.get("/metrics")
    assert metrics.status_code == 200 and "lreid_gallery_images NaN" in metrics.text
    gallery.with_name("away").rename(gallery)
    assert client.post("/search", content=content).status_code == 200


def test_failed_write_changes_nothing(
    client: TestClient, gallery: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, size = rows(gallery), client.get("/info").json()["images"]

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("lreid.gallery.gallery_file._write_content", full)
        assert client.post("/images?identity=anna", content=png(0)).status_code == 503
        assert client.request("DELETE", "/images", params={"path": min(before)}).status_code == 503
    assert rows(gallery) == before and [*(tmp_path / "people.gallery.images").iterdir()] == []
    assert client.get("/info").json()["images"] == size
    assert client.post("/images?identity=anna", content=png(0)).status_code == 200


def test_undo_that_cannot_write_image_files_can_be_repeated(
    client: TestClient, gallery: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for seed in range(3):
        client.post("/images?identity=crowd", content=png(seed))
    undo = client.request("DELETE", "/images", params={"identity": "crowd"}).json()["undo"]
    before, written = rows(gallery), []

    def full(path: str, *arguments: Any, **options: Any) -> None:
        written.append(path)
        if len(written) == 2:
            raise InputError(f"{path}: cannot be written (No space left on device)")
        write_atomically(path, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr("lreid.gallery.faiss_store.write_atomically", full)
        assert client.post(f"/undo/{undo}").status_code == 503
    assert rows(gallery) == before and [*gallery.with_name("people.gallery.images").iterdir()] == []
    assert client.post(f"/undo/{undo}").status_code == 200


def test_removal_from_gallery_with_integer_labels_can_be_undone(world: Path, tmp_path: Path) -> None:
    files, file = sorted((world / "people").rglob("*.png"))[:4], tmp_path / "integers.gallery"
    Gallery.build([*map(str, files)], ids=[1, 1, 2, 2], model=load_model(world / "model.pt", "cpu")).save(file)
    client, before = client_of(file), rows(file)
    undo = client.request("DELETE", "/images", params={"identity": "2"}).json()["undo"]
    assert client.post(f"/undo/{undo}").status_code == 200 and rows(file) == before


def test_identities_are_listed_renamed_and_merged(client: TestClient, gallery: Path) -> None:
    before = rows(gallery)
    counts = Counter(identity for identity, *_ in before.values() if identity is not None)
    assert client.get("/identities").json() == counts
    one, other, *_ = counts
    refused = [{"old": "nobody", "new": "x"}, {"old": one, "new": other}, {"old": one, "new": "nan"}, {"old": one}]
    answers = [client.post("/rename", params=each) for each in refused]
    assert [each.status_code for each in answers] == [404, 409, 422, 422] and rows(gallery) == before
    renamed = client.post("/rename", params={"old": one, "new": "zoe"}).json()
    merged = client.post("/rename", params={"old": "zoe", "new": other, "merge": True}).json()
    assert renamed["renamed"] == merged["renamed"] == counts[one]
    assert client.get("/identities").json()[other] == counts[one] + counts[other]
    restarted = client_of(gallery)  # only the file knows the last change
    assert restarted.get("/info").json()["undo"] == merged["undo"]
    assert restarted.post(f"/undo/{renamed['undo']}").status_code == 404
    for undo in (merged["undo"], renamed["undo"]):
        assert client.post(f"/undo/{undo}").status_code == 200
    assert rows(gallery) == before and client.get("/info").json()["undo"] is None


def test_images_of_a_form_are_one_query(client: TestClient, gallery: Path, queries: list[Path]) -> None:
    files = [("image", (path.name, path.read_bytes(), "image/png")) for path in queries[:3]]
    answer = client.post("/search/group?top=4", files=files).json()
    found = Gallery.load(gallery).search([str(path) for path in queries[:3]], 4, group=[0, 0, 0])
    assert [match["path"] for match in answer["matches"]] == found.paths[0].tolist()
    assert [match["score"] for match in answer["matches"]] == pytest.approx(found.scores[0], abs=1e-5)
    for broken in ({"files": [("image", ("a.png", b"x", "image/png"))]}, {"data": {"a": "b"}}, {"content": b""}):
        answer = client.post("/search/group", **broken)
        assert answer.status_code == 422 and "\n" not in answer.json()["detail"]


def test_form_with_one_file_is_the_same_as_a_body(client: TestClient, gallery: Path) -> None:
    content = png(0) + bytes(range(256)) + b"\r\n\r\n--\r"  # bytes after the image are part of the file
    file = ("image", ("a.png", content, "image/png"))
    assert client.post("/search", files=[file]).json() == client.post("/search", content=content).json()
    assert client.post("/search/group", content=content).json() == client.post("/search", content=content).json()
    before = rows(gallery)
    nested = b"".join(b"--b%d\r\nContent-Type: multipart/mixed; boundary=b%d\r\n\r\n" % (n, n + 1) for n in range(2000))
    cut = b'--b0\r\nContent-Disposition: form-data; name="a"; filename="a.png"\r\n\r\n' + content
    forms = [
        {"content": each, "headers": {"Content-Type": "multipart/form-data; boundary=b0"}} for each in (nested, cut)
    ]
    for wrong in (
        {"files": [file, file]},
        {"files": [file], "data": {"identity": "anna"}},
        {"files": [file] * 101},
        *forms,
    ):
        for address in ("/images", "/search"):
            answer = client.post(address, **wrong)
            assert answer.status_code == 422 and "\n" not in answer.json()["detail"]
    assert rows(gallery) == before
    added = client.post("/images?identity=anna", files=[file]).json()
    assert Path(added["path"]).read_bytes() == content and client.get("/identities").json()["anna"] == 1


def test_searches_during_changes_see_whole_galleries(client: TestClient, gallery: Path) -> None:
    for seed in range(10):
        client.post("/images?identity=crowd", content=png(seed))
    query, stop, counts, failed = png(3), threading.Event(), set(), []

    def search() -> None:
        while not stop.is_set():
            answer = client.post("/search?top=100", content=query)
            if answer.status_code != 200:
                failed.append(answer.text)
                return
            counts.add(sum(match["identity"] == "crowd" for match in answer.json()["matches"]))

    threads = [threading.Thread(target=search) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        undo = client.delete("/images?identity=crowd").json()["undo"]
        assert client.post(f"/undo/{undo}").status_code == 200
    stop.set()
    for thread in threads:
        thread.join()
    assert not failed and counts <= {0, 10} and 10 in counts


BROKEN = {
    "empty": b"",
    "html": b"<svg onload=alert(1)>",
    "cut": png(0)[:200],
    "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\nshowpage\n",
}


def bomb() -> bytes:
    """A few bytes whose header says 60,000 x 60,000 pixels."""
    content = bytearray(png(0))
    content[16:24] = (60000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(content[12:29]).to_bytes(4, "big")
    return bytes(content)


@pytest.mark.parametrize("content", [*BROKEN.values(), bomb()], ids=[*BROKEN, "bomb"])
@pytest.mark.parametrize("address", ["/search", "/images?identity=anna"])
def test_broken_image_is_refused_and_changes_nothing(
    client: TestClient, gallery: Path, tmp_path: Path, address: str, content: bytes
) -> None:
    before = gallery.read_bytes()
    for sent in ({"content": content}, {"files": {"image": ("a.png", content, "image/png")}}):
        answer = client.post(address, **sent)
        detail = answer.json()["detail"]
        assert answer.status_code == 422 and isinstance(detail, str) and "\n" not in detail and "/tmp" not in detail
        assert ("pixels" in detail) == (content == bomb())
    assert gallery.read_bytes() == before and not (tmp_path / "people.gallery.images").exists()


def test_bodies_over_the_limit_are_refused(gallery: Path) -> None:
    client, before = client_of(gallery, limits=Limits(body=5000)), gallery.read_bytes()
    content = png(0, (60, 60))
    assert len(content) > 5000
    assert client.post("/search", content=content).status_code == 413
    assert client.post("/images", content=iter([content[:3000], content[3000:]])).status_code == 413  # no length
    assert client.post("/search", content=png(0, (16, 16))).status_code == 200
    assert gallery.read_bytes() == before


@pytest.mark.parametrize(
    "path",
    ["/etc/passwd", "../../etc/passwd", "people.gallery", "", "\0", "/dev/zero", "rendered:yard/0/0/0/0", "x" * 5000],
)
def test_only_images_of_the_gallery_can_be_read_or_removed(
    client: TestClient, gallery: Path, world: Path, path: str
) -> None:
    others = world / "query"
    for each in (path, str(others / path), str(sorted(others.rglob("*.png"))[0]), str(world / "people" / ".." / path)):
        for method in ("GET", "DELETE"):
            answer = client.request(method, "/images", params={"path": each})
            assert answer.status_code in (404, 422), each
    for address in ("/../setup.py", "/%2e%2e/%2e%2e/etc/passwd", "/page.js/../guard.py", "/static/page.js"):
        assert client.get(address).status_code == 404
    names = ["../../x", "a/b", "a\0b", "a\nb", "x" * 201]
    for name in names:
        answer = client.post("/images", params={"identity": name}, content=png(0))
        assert answer.status_code == (200 if name in names[:2] else 422)
        if answer.status_code == 200:
            assert Path(answer.json()["path"]).parent == gallery.parent / "people.gallery.images"
            client.post(f"/undo/{answer.json()['undo']}")


def test_token_is_needed_for_data_of_the_gallery(gallery: Path) -> None:
    client = client_of(gallery, base="http://gate.example", token=TOKEN)
    for path in ("/", "/page.js", "/page.css", "/style.css", "/docs", "/openapi.json", "/health"):
        assert client.get(path).status_code == 200
    calls = [("GET", "/info"), ("GET", "/metrics"), ("GET", "/images?path=x"), ("POST", "/search"), ("POST", "/images")]
    calls += [
        ("DELETE", "/images?identity=p1"),
        ("POST", "/undo/x"),
        ("GET", "/identities"),
        ("POST", "/rename?old=p1&new=x"),
        ("GET", "/info/"),
        ("GET", "/INFO"),
    ]
    before = gallery.read_bytes()
    for method, path in calls:
        for header in ({}, {"Authorization": f"Bearer {TOKEN}x"}, {"Authorization": "Bearer é".encode()}):
            assert client.request(method, path, headers=header, content=png(0)).status_code in (401, 404)
    assert gallery.read_bytes() == before
    assert client.get("/info", headers={"Authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert client.get("/openapi.json").json()["components"]["securitySchemes"]


def test_requests_of_other_sites_are_refused(gallery: Path, client: TestClient) -> None:
    content = png(0)
    assert client_of(gallery, base="http://evil.example:8000").post("/search", content=content).status_code == 403
    for origin in ("http://evil.example", "null", "http://127.0.0.1:9000"):
        assert client.post("/images", content=content, headers={"Origin": origin}).status_code == 403
    assert client.post("/search", content=content, headers={"Origin": LOCAL}).status_code == 200
    for base in ("http://localhost:8000", "http://[::1]:8000"):
        assert client_of(gallery, base=base).get("/info").status_code == 200


@pytest.mark.parametrize("token", [None, TOKEN])
def test_other_sites_cannot_learn_who_is_enrolled(gallery: Path, token: str | None) -> None:
    client = client_of(gallery, token=token)
    enrolled = min(rows(gallery))
    for path in (enrolled, "/nobody"):
        for site, status in (("cross-site", 403), ("same-site", 403), ("same-origin", 200), ("none", 200)):
            headers = {"Sec-Fetch-Site": site, "Authorization": f"Bearer {token}"}
            answer = client.get("/images", params={"path": path}, headers=headers)
            assert answer.status_code == (404 if status == 200 and path != enrolled else status)
            assert answer.headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert client.get("/", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 200  # a link to the page


def test_rate_limit_refuses_a_client(gallery: Path) -> None:
    client = client_of(gallery, limits=Limits(rate=0.001, waiting=4))
    assert [client.get("/info").status_code for _ in range(5)] == [200] + [429] * 4
    client = client_of(gallery, limits=Limits(rate=2.0))
    answers = [client.get("/info") for _ in range(40)]
    refused = [each for each in answers if each.status_code == 429]
    assert len(refused) > 20 and answers[0].status_code == 200 and refused[0].headers["Retry-After"] == "1"
    assert client.get("/health").status_code == 200


def test_metrics_count_requests_and_images(client: TestClient, gallery: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families as families

    client.post("/search", content=png(0))
    client.post("/search", content=b"broken")
    client.get("/nowhere/at/all")
    answer = client.get("/metrics")
    assert answer.headers["content-type"].startswith("text/plain; version=")
    samples = {
        (each.name, *sorted(each.labels.items())): each.value for one in families(answer.text) for each in one.samples
    }
    for method, path, status in (("POST", "/search", "200"), ("POST", "/search", "422"), ("GET", "other", "404")):
        assert samples["lreid_requests_total", ("method", method), ("path", path), ("status", status)] == 1
    assert samples[("lreid_gallery_images",)] == len(rows(gallery))
    assert samples["lreid_request_seconds_count", ("path", "/search")] == 2


def test_description_is_complete_and_pages_load_nothing_from_other_sites(client: TestClient) -> None:
    description = client.get("/openapi.json").json()
    assert {*description["paths"]} == {
        "/search",
        "/search/group",
        "/images",
        "/identities",
        "/rename",
        "/undo/{change}",
        "/info",
        "/health",
        "/metrics",
    }
    assert all(each["description"] for path in description["paths"].values() for each in path.values())
    page = client.get("/docs").text
    assert all(path in page for path in description["paths"])
    for address in ("/", "/docs", "/page.js", "/page.css", "/style.css"):
        answer = client.get(address)
        assert "http" not in answer.text.replace('"http', "") and answer.headers["X-Content-Type-Options"] == "nosniff"
        assert "default-src 'self'" in answer.headers["Content-Security-Policy"]

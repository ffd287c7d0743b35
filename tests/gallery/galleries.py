"""Small random galleries, and what a search of them must find."""

from collections.abc import Callable

import numpy as np

from lreid.gallery import Gallery

WIDTH = 8


def vectors(count, seed=0, width=WIDTH):
    return np.random.default_rng(seed).standard_normal((count, width)).astype(np.float32)


def names(count, start=0):
    return [f"{number:05d}.jpg" for number in range(start, start + count)]


def small(kind="flat", count=12, **more):
    ids, cams = np.arange(count) // 3, np.arange(count) % 2
    return Gallery.build(vectors(count), names(count), ids, cams, model="a1", kind=kind, **more)


def cosine(query, image):
    norms = np.linalg.norm(query.astype(float)) * np.linalg.norm(image.astype(float))
    return float(query.astype(float) @ image.astype(float) / norms) if norms else 0.0


def is_hidden(image, exclude, query_id, query_cam):
    _, identity, camera, _ = image
    if exclude == "nothing" or camera == -1 or camera != query_cam:
        return False
    return exclude == "camera" or identity == query_id


def play(actions, exclude: str, kind: str, new_place: Callable[[], str]) -> None:
    """Does the same to a gallery and to a plain list of (feature, identity, camera, path), and compares searches."""
    rng = np.random.default_rng(0)
    images, gallery, made, place = [], None, 0, new_place()
    for action, argument in [("add", 6), *actions, ("search", 5)]:
        if action == "add":
            features = rng.standard_normal((argument, WIDTH)).astype(np.float32)
            ids, cams = rng.integers(4, size=argument), rng.integers(-1, 2, size=argument)
            paths = names(argument, made)
            made += argument
            if gallery is None:
                gallery = Gallery.build(features, paths, ids, cams, model="a1", kind=kind, at=place)
            else:
                gallery.add(features, paths, ids, cams, model="a1")
            images += list(zip(features, ids.tolist(), cams.tolist(), paths, strict=True))
        elif action == "remove":
            doomed = {images[number][3] for number in argument if number < len(images)}
            gallery.remove(sorted(doomed))
            images = [image for image in images if image[3] not in doomed]
        elif action == "reload":
            gallery.save()
            gallery = Gallery.load(place)
        else:
            compare(gallery, images, rng.standard_normal((3, WIDTH)).astype(np.float32), argument, exclude)
    assert len(gallery) == len(images)
    labels = gallery.labels()
    assert sorted(zip(labels.paths, labels.ids, labels.cams, strict=True)) == sorted(
        (path, identity, camera) for _, identity, camera, path in images
    )


def compare(gallery: Gallery, images, queries, k: int, exclude: str) -> None:
    query_ids, query_cams = [0, 1, 2], [0, 1, -1]
    by_path = {image[3]: image for image in images}
    found = gallery.search(
        queries,
        k,
        query_ids if exclude == "camera and identity" else None,
        query_cams,
        model="a1",
        exclude_same_camera=exclude != "nothing",
    )
    for row, query in enumerate(queries):
        kept = [image for image in images if not is_hidden(image, exclude, query_ids[row], query_cams[row])]
        best = sorted((cosine(query, image[0]) for image in kept), reverse=True)[:k]
        number = int((found.keys[row] >= 0).sum())
        assert number == len(best)
        np.testing.assert_allclose(found.scores[row, :number], best, atol=1e-5)
        for rank in range(number):
            image = by_path[found.paths[row, rank]]
            assert not is_hidden(image, exclude, query_ids[row], query_cams[row])
            assert (found.ids[row, rank], found.cams[row, rank]) == image[1:3]
            assert abs(found.scores[row, rank] - cosine(query, image[0])) < 1e-5
        assert (found.paths[row, number:] == "").all()
        assert (found.ids[row, number:] == -1).all() and (found.times[row, number:] == -1).all()
        assert np.isneginf(found.scores[row, number:]).all()

"""The evaluation again, image by image over plain numbers, with every ranking sorted in full."""

import math


def distance(query, image, metric):
    """Of two vectors of integers; equal real numbers come out as equal floats."""
    if metric == "cosine":
        norm = math.sqrt(sum(x * x for x in image))
        return -sum(x * y for x, y in zip(query, image, strict=True)) / norm if norm else 0.0
    return sum((x - y) ** 2 for x, y in zip(query, image, strict=True))


def evaluate(queries, gallery, query_ids, gallery_ids, query_cams, gallery_cams, metric, ap, camera_filter):
    """``(AP, INP, rank of the first match, reason for having none)`` of each query; None where not given."""
    results = []
    for query, pid, cam in zip(queries, query_ids, query_cams, strict=True):
        order = sorted(range(len(gallery)), key=lambda image: distance(query, gallery[image], metric))
        place, ranks, same_identity = 0, [], 0
        for image in order:
            if gallery_ids[image] == -1:
                continue
            same_identity += gallery_ids[image] == pid
            if camera_filter and gallery_ids[image] == pid and gallery_cams[image] == cam != -1:
                continue
            if gallery_ids[image] == pid:
                ranks.append(place)
            place += 1
        if not ranks:
            results.append((None, None, None, "filtered" if same_identity else "absent"))
            continue
        area = 0.0
        for found, rank in enumerate(ranks):
            precision = (found + 1) / (rank + 1)
            if ap == "trapezoidal":
                precision = (precision + (found / rank if rank else 1.0)) / 2
            area += precision / len(ranks)
        results.append((area, len(ranks) / (ranks[-1] + 1), ranks[0], None))
    return results

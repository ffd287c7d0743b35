"""Convert features and labels to the arguments of the evaluation protocols."""

from typing import Any

from lreid.retrieval import Labels, cosines_of, scores_of


def labels_of(query_ids: Any, gallery_ids: Any, query_cams: Any, gallery_cams: Any, camera_filter: bool = True) -> Any:
    """Labels of queries and gallery."""
    cameras = (query_cams, gallery_cams) if camera_filter else (None, None)
    return Labels(query_ids, cameras[0]), Labels(gallery_ids, cameras[1])


def scores_and_labels(queries: Any, gallery: Any, *labels: Any, camera_filter: bool = True, **how: Any) -> Any:
    """Scores and labels from the first arguments of :func:`lreid.retrieval.evaluate`."""
    return scores_of(queries, gallery, **how), *labels_of(*labels, camera_filter)


def cosines_and_labels(queries: Any, gallery: Any, *labels: Any, camera_filter: bool = True, **how: Any) -> Any:
    """Cosine similarities and labels."""
    return cosines_of(queries, gallery, **how), *labels_of(*labels, camera_filter)

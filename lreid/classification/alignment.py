"""Measure alignment, the similarity between features of held-out images and of stored images.

Source: Caccia et al., "Reducing Representation Drift in Online Continual Learning" (ER-ACE, ER-AML), 2021.
"""

import numpy as np
from torch import Tensor

from lreid.retrieval.arrays import as_comparable, unit_rows
from lreid.utils.identities import as_labels


def buffer_alignment(
    buffer_features: np.ndarray | Tensor,
    buffer_labels: np.ndarray | Tensor,
    held_out_features: np.ndarray | Tensor,
    held_out_labels: np.ndarray | Tensor,
    class_tasks: np.ndarray | Tensor,
) -> dict[int, float]:
    """Compute how similar stored images are to held-out images of the same class.

    A low similarity means that the model overfits the stored images. Source: ER-ACE, Appendix B, Fig. 7. The similarity
    of a stored image is its highest cosine similarity to a held-out image of its class. The result is the mean over the
    stored images of a task.

    Args:
        buffer_features: (m, D) float features of stored images, not necessarily of unit length; a zero feature has
            similarity 0.
        buffer_labels: (m,) integers, class labels in [0, C).
        held_out_features: (n, D) float features of images that were held out from training.
        held_out_labels: (n,) integers, among them all labels of stored images; other classes are ignored.
        class_tasks: (C,) integers, the task of each class.

    Returns:
        ``{task: similarity}`` in [-1, 1], ascending, for the tasks with stored images.

    Raises:
        InputError: the shapes do not match, or a value is not finite.
    """
    buffer, held_out = as_comparable(buffer_features, held_out_features)
    buffer, held_out = unit_rows(buffer, "buffer features"), unit_rows(held_out, "held-out features")
    labels = as_labels(buffer_labels, "buffer labels", len(buffer))
    held_out_labels = as_labels(held_out_labels, "held-out labels", len(held_out))
    class_tasks = as_labels(class_tasks, "tasks of the classes", len(class_tasks))
    nearest = np.empty(len(labels))  # (m,)
    for label in np.unique(labels):
        rows = labels == label
        similarity = buffer[rows] @ held_out[held_out_labels == label].T  # (m of the class, n of the class)
        nearest[rows] = similarity.max(1).values.cpu().numpy()
    tasks = class_tasks[labels]  # (m,)
    return {int(task): float(nearest[tasks == task].mean()) for task in np.unique(tasks)}

import pytest
import torch
from oracles import distance, draw, floored_kl, mean, softmax, split

from lreid.losses import erd_losses

LABELS = [4, 4, 4, 9, 9, 9, 9, 1, 1, 1, 2, 2, 6]  # 4 and 9 previous, with one and two queries at 2 supports
PREVIOUS = torch.tensor([label in (4, 9) for label in LABELS])


def erd(student, teacher, labels, previous, num_support, prob_floor=1e-4, metric="sqeuclidean"):
    """Both terms by nested loops."""
    rows = [row for row, is_previous in enumerate(previous) if is_previous]
    episode = {
        label: [[rows[place] for place in part] for part in parts]
        for label, parts in split([labels[row] for row in rows], num_support).items()
    }

    def probabilities(features, anchors, row):
        return softmax({label: -distance(features[row], anchors[label], metric) for label in anchors}, 1.0)

    new_anchors, old_anchors = (
        {label: mean([features[row] for row in support]) for label, (support, _) in episode.items()}
        for features in (student, teacher)
    )
    queries = [row for _, part in episode.values() for row in part]
    current = [row for row, is_previous in enumerate(previous) if not is_previous]
    kl_previous = [
        floored_kl(probabilities(teacher, old_anchors, row), probabilities(student, new_anchors, row), prob_floor)
        for row in queries
    ]
    kl_current = [
        floored_kl(probabilities(teacher, old_anchors, row), probabilities(student, old_anchors, row), prob_floor)
        for row in current
    ]
    return sum(kl_previous) / len(queries), sum(kl_current) / len(current)


@pytest.mark.parametrize("num_support", [1, 2])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean"])
@pytest.mark.parametrize("prob_floor", [1e-4, 0.1])
def test_both_terms_match_the_loops(num_support, metric, prob_floor):
    student, teacher = draw(13, 4, scale=0.7), draw(13, 4, seed=1, scale=0.7)
    options = {"metric": metric, "prob_floor": prob_floor}
    terms = erd_losses(student, teacher, torch.tensor(LABELS), num_support, PREVIOUS, **options)
    expected = erd(student.tolist(), teacher.tolist(), LABELS, PREVIOUS.tolist(), num_support, **options)
    assert [term.item() for term in terms] == pytest.approx(expected, rel=1e-9)

import json

import pytest

SEEN, UNSEEN = ("plaza", "harbor"), ("mall",)


def make_results(rows=3, *, seen=SEEN, unseen=UNSEEN, shift=0.0, **changes):
    """A run of four tasks with ``rows`` of them finished; the second seen gallery is trained from task 2 on.

    mAP of gallery g after task t is ``10 t + g + shift``, Rank-1 is 20 more.
    """
    galleries = [{"name": name, "kind": "seen", "first_task": 2 * place} for place, name in enumerate(seen)]
    galleries += [{"name": name, "kind": "unseen", "first_task": None} for name in unseen]
    matrix = [[10.0 * row + column + shift for column in range(len(galleries))] for row in range(rows)]
    history = [
        {"task": row, "epoch": epoch, "lr": 2e-4, "dmml": 2.0 / epoch} | ({"distill": 0.125} if row else {})
        for row in range(rows)
        for epoch in (1, 2)
    ]
    means = {"seen": 20.5, "unseen": 22.0, "mean_over_tasks": 10.1}
    summary = {
        f"{name}_{metric}": None if name == "unseen" and not unseen else mean + shift + more
        for name, mean in means.items()
        for metric, more in (("mAP", 0), ("rank1", 20))
    }
    summary |= {"forgetting": -1.25, "plasticity": 11.25, "backward_transfer": 20.0, "forward_transfer": 11.0}
    return {
        "schema": 1,
        "method": "dwopp",
        "benchmark": "synthetic-4",
        "seed": 0,
        "ap": "rectangular",
        "tasks": [f"city {place + 1}/4" for place in range(4)],
        "galleries": [{**gallery, "queries": 30, "gallery": 90} for gallery in galleries],
        "mAP": matrix,
        **{f"rank{k}": [[value + more for value in row] for row in matrix] for k, more in ((1, 20), (5, 30), (10, 40))},
        "identity_ap": {
            gallery["name"]: {"ids": [71, 72], "ap": [[5.0 * row + column, 30.0 - column] for row in range(rows)]}
            for column, gallery in enumerate(galleries)
        },
        "summary": summary if rows else {},
        "seconds": {"train": 3725.0, "evaluate": 61.0},
        "images_per_second": 812.4,
        "loss_history": history,
        "versions": {"python": "3.11.2", "torch": "2.4.0"},
        "exemplars": 17,
        "skipped_images": 0,
        **changes,
    }


@pytest.fixture
def results():
    """Factory of results, see :func:`make_results`."""
    return make_results


@pytest.fixture
def run_folder(tmp_path):
    """Writes results into a run folder and returns it."""

    def write(results):
        (tmp_path / "results.json").write_text(json.dumps(results))
        return tmp_path

    return write

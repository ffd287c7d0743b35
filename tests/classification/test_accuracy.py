"""Class- and task-incremental accuracy and forgetting, against nested loops and numbers worked out by hand."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lreid.classification.accuracy import scores_of_classes, task_accuracies
from lreid.errors import InputError
from lreid.results import summarise_accuracies


def best(scores: list[float], classes: list[int]) -> int:
    """The first of the classes with the highest score."""
    winner = classes[0]
    for label in classes:
        if scores[label] > scores[winner]:
            winner = label
    return winner


@given(data=st.data(), tasks=st.integers(1, 4), task_il=st.booleans())
@settings(max_examples=60, deadline=None)
def test_accuracies_against_nested_loops(data: st.DataObject, tasks: int, task_il: bool) -> None:
    class_tasks = [task for task in range(tasks) for _ in range(data.draw(st.integers(1, 3)))]
    class_tasks = data.draw(st.permutations(class_tasks))
    every = list(range(len(class_tasks)))
    labels = every + data.draw(st.lists(st.sampled_from(every), max_size=10))
    scores = [[data.draw(st.integers(-2, 2)) / 2 for _ in every] for _ in labels]  # with ties
    expected = []
    for task in range(tasks):
        own = [label for label in every if class_tasks[label] == task]
        right = [
            best(row, own if task_il else every) == label
            for row, label in zip(scores, labels, strict=True)
            if label in own
        ]
        expected.append(100 * sum(right) / len(right))
    tasks_of_classes = np.array(class_tasks)
    found = task_accuracies(
        np.array(scores), np.array(labels), tasks_of_classes[labels], tasks_of_classes if task_il else None
    )
    assert found == pytest.approx(expected)


def test_impossible_classes_are_never_predicted() -> None:
    scores, labels, tasks = np.array([[-np.inf, -np.inf, 1.0]] * 3), np.arange(3), np.array([0, 0, 1])
    assert task_accuracies(scores, labels, tasks, tasks) == [0.0, 100.0]
    assert task_accuracies(np.full((2, 2), -np.inf), np.array([0, 1]), np.zeros(2, int)) == [0.0]


@given(data=st.data(), tasks=st.integers(2, 6))
@settings(max_examples=40, deadline=None)
def test_summary_against_nested_loops(data: st.DataObject, tasks: int) -> None:
    matrix = [[data.draw(st.floats(0, 100)) for _ in range(task + 1)] for task in range(tasks)]
    falls, means = 0.0, []
    for task in range(tasks - 1):
        highest = -math.inf
        for row in range(task, tasks - 1):
            highest = max(highest, matrix[row][task])
        falls += highest - matrix[-1][task]
    for row in matrix:
        means.append(sum(row) / len(row))
    summary = summarise_accuracies(matrix)
    assert summary["accuracy_forgetting"] == pytest.approx(falls / (tasks - 1))
    assert summary["anytime_accuracy"] == pytest.approx(means)
    assert summary["average_incremental_accuracy"] == pytest.approx(sum(means) / tasks)
    assert summary["accuracy"] == summary["anytime_accuracy"][-1]
    assert summarise_accuracies(matrix[:1])["accuracy_forgetting"] is None


def test_conflicting_labels_raise_an_error() -> None:
    scores, labels, tasks = np.eye(4), np.arange(4), np.array([0, 0, 1, 1])
    for wrong in (
        (scores[:3], labels, tasks),
        (scores, labels, tasks[:3]),
        (scores, labels, tasks, tasks[:3]),
        (np.where(scores, np.nan, 0), labels, tasks),
    ):
        with pytest.raises(InputError):
            task_accuracies(*wrong)
    for matrix in ([], [[1.0, 2.0]], [[1.0], [1.0]]):
        with pytest.raises(InputError, match="row t"):
            summarise_accuracies(matrix)


@given(data=st.data(), domains=st.integers(1, 3), classes=st.integers(1, 3))
@settings(max_examples=60, deadline=None)
def test_domains_against_nested_loops(data: st.DataObject, domains: int, classes: int) -> None:
    of = list(range(domains)) + data.draw(st.lists(st.integers(0, domains - 1), max_size=10))
    labels = [data.draw(st.integers(0, classes - 1)) for _ in of]
    columns = data.draw(st.integers(1, domains * classes))  # not all classes of all domains are known yet
    scores = [[data.draw(st.integers(-2, 2)) / 2 for _ in range(columns)] for _ in of]
    by_class = scores_of_classes(np.array(scores), classes)
    for row, found in zip(scores, by_class, strict=True):
        for each in range(classes):
            own = [score for column, score in enumerate(row) if column % classes == each]
            assert found[each] == (max(own) if own else -math.inf)
    expected = []
    for domain in range(domains):
        right = [
            best(row.tolist(), list(range(classes))) == label
            for row, label, its in zip(by_class, labels, of, strict=True)
            if its == domain
        ]
        expected.append(100 * sum(right) / len(right))
    assert task_accuracies(by_class, np.array(labels), np.array(of)) == pytest.approx(expected)

"""The decay, against the formula of DwoPP's official code."""

import math
from bisect import bisect_right

import pytest
from oracles import load_golden

from lreid.config import load_config
from lreid.config_keys import TrainSection
from lreid.training.updates import Schedule

STEPS = {"SCHEDULE": "steps", "STEP_FACTOR": 0.1}
COSINE = {"SCHEDULE": "cosine", "DECAY_START": 0.0, "END_FACTOR": 1e-3}


def falling(**keys: object) -> Schedule:
    """A schedule from 1.0 down."""
    return Schedule(TrainSection(LR=1.0, **keys))


def official(e: int) -> float:
    """Epoch e = 1 … 600."""
    return 1.0 if e < 300 else 0.005 ** ((e + 1 - 300) / (601 - 300))


@pytest.mark.parametrize("epoch", [0, 1, 298, 299, 300, 450, 598, 599])
def test_exponential_decay_equals_the_official_formula(epoch: int) -> None:
    assert falling(DECAY_START=0.5, END_FACTOR=0.005).factor(epoch, 600) == pytest.approx(
        official(epoch + 1), rel=1e-12
    )


def test_decay_falls_from_1_to_the_end_factor() -> None:
    for shape in ("exponential", "cosine"):
        assert falling(DECAY_START=1.0, END_FACTOR=0.1, SCHEDULE=shape).factor(3, 4) == 1.0
        short = falling(DECAY_START=0.9, END_FACTOR=0.1, SCHEDULE=shape)  # falls within the last half of an epoch
        assert short.factor(3, 5) == 1.0 and short.factor(4, 5) == pytest.approx(0.1)
    assert falling(DECAY_START=0.5, END_FACTOR=0.1).factor(0, 1) == pytest.approx(0.1)


def test_cosine_decay_equals_the_official_formula() -> None:
    rates = [falling(**COSINE).factor(epoch, 50) for epoch in range(50)]
    # Co2L's official code counts epochs from 1: end + (1 - end) * (1 + cos(pi * epoch / epochs)) / 2.
    expected = [1e-3 + (1 - 1e-3) * (1 + math.cos(math.pi * epoch / 50)) / 2 for epoch in range(1, 51)]
    assert rates == pytest.approx(expected)
    warm = [falling(**COSINE, WARMUP_EPOCHS=10).factor(epoch, 50) for epoch in range(50)]
    assert warm[0] == pytest.approx(0.01 * rates[0]) and warm[10:] == rates[10:]


def bot(number: int, milestones: tuple[int, ...] = (40, 70), warmup: int = 10, start: float = 0.01) -> float:
    """Factor in epoch 1, 2 … of WarmupMultiStepLR in BoT's official code, which is stepped before every epoch."""
    factor = 1.0
    if number < warmup:
        share = number / warmup
        factor = start * (1 - share) + share
    return factor * 0.1 ** bisect_right(milestones, number)


def test_steps_and_warmup_equal_bots_official_code() -> None:
    schedule = Schedule(TrainSection(LR=3.5e-4, WARMUP_EPOCHS=10, **STEPS, MILESTONES=[40, 70]))
    for epoch in range(120):
        assert schedule.rate(3, epoch, [120] * 10) == pytest.approx(3.5e-4 * bot(epoch + 1), rel=1e-12)
    assert [schedule.rate(0, epoch, [120]) for epoch in (9, 38)] == [3.5e-4] * 2
    assert schedule.rate(0, 0, [120]) == pytest.approx(3.5e-4 * 0.109)
    assert [schedule.rate(0, epoch, [120]) for epoch in (39, 68, 69, 119)] == pytest.approx([3.5e-5] * 2 + [3.5e-6] * 2)


def test_first_task_may_have_its_own_milestones() -> None:
    """The official code of PAD (pad.yml): 30 epochs with steps at 18 and 26, then 25 epochs with steps at 14 and 22."""
    keys = load_config(["configs/recipes/pad.yaml"]).TRAIN
    schedule = Schedule(keys)
    epochs = [keys.FIRST_EPOCHS, keys.EPOCHS, keys.EPOCHS]
    assert epochs == [30, 25, 25]
    for task, milestones in enumerate([(18, 26), (14, 22), (14, 22)]):
        for epoch in range(epochs[task]):
            wanted = 5e-6 * bot(epoch + 1, milestones, start=0.1)
            assert schedule.rate(task, epoch, epochs) == pytest.approx(wanted, rel=1e-12)


def test_one_schedule_may_span_all_tasks() -> None:
    """AKA's official code counts on: its milestone 25 lies in the first of tasks with 50 epochs."""
    aka = Schedule(TrainSection(LR=3.5e-4, **STEPS, MILESTONES=[25], FIRST_EPOCH_NUMBER=-1, RESTARTS=False))
    rates = [aka.rate(task, epoch, [50] * 5) for task in range(5) for epoch in range(50)]
    assert rates == pytest.approx([3.5e-4] * 26 + [3.5e-5] * 224)
    whole = falling(DECAY_START=0.5, END_FACTOR=0.005, RESTARTS=False)
    parts = [
        whole.rate(task, epoch, [100, 200, 300]) for task, count in enumerate((100, 200, 300)) for epoch in range(count)
    ]
    assert parts == [falling(DECAY_START=0.5, END_FACTOR=0.005).factor(epoch, 600) for epoch in range(600)]


def test_patch_kd_schedules_equal_the_official_code() -> None:
    _, official = load_golden("patchkd_lr_schedule")  # five tasks of 50 epochs
    schedule = Schedule(TrainSection(LR=3.5e-4, **STEPS, MILESTONES=[25, 35], FIRST_EPOCH_NUMBER=-1, RESTARTS=False))
    epochs = [(task, epoch) for task in range(5) for epoch in range(50)]
    rates = [schedule.rate(task, epoch, [50] * 5) for task, epoch in epochs]
    assert rates == pytest.approx(official["tasknet"].tolist(), rel=1e-12)
    of_sampler = [schedule.rate(task, epoch, [50] * 5, first=1) for task, epoch in epochs]
    assert of_sampler[50:] == pytest.approx(official["patchnet"][50:].tolist(), rel=1e-12)  # it learns nothing before


def test_lstkc_schedule_equals_the_official_code() -> None:
    """Its WarmupMultiStepLR, which is BoT's, has counted 0 epochs in the first one."""
    schedule = Schedule(TrainSection(LR=0.008, WARMUP_EPOCHS=10, **STEPS, MILESTONES=[30], FIRST_EPOCH_NUMBER=0))
    for epoch in range(80):
        assert schedule.rate(1, epoch, [80] * 2) == pytest.approx(0.008 * bot(epoch, (30,)), rel=1e-12)

"""What a method is shown of a task: which images a batch is made of, and the batches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from yacs.config import CfgNode

from lreid.data.disk_cache import DiskCache
from lreid.data.images import Images
from lreid.data.loaders import TaskBatches, WithExemplars
from lreid.data.records import Task
from lreid.data.samplers import EpisodeSampler, IdentitySampler, StreamSampler
from lreid.data.transforms import Augment
from lreid.errors import InputError, naming_keys
from lreid.methods import Method
from lreid.training import distributed


def task_batches(cfg: CfgNode, method: Method, task: Task, augment: Augment, *, first: int = 0) -> TaskBatches:
    """All batches of a task for a method, from number ``first`` on, with exemplars where it wants them mixed in.

    Raises:
        InputError: an image cannot be read, or the task is too small.
    """
    images = Images(
        task.records,
        height=cfg.INPUT.HEIGHT,
        width=cfg.INPUT.WIDTH,
        cache_gib=cfg.DATA.CACHE_GIB,
        disk=DiskCache(cfg.DATA.CACHE_DIR, cfg.DATA.CACHE_DIR_GIB),
        skip_bad=cfg.DATA.SKIP_BAD_IMAGES,
    )
    memory = method.memory if method.exemplar_share is not None else None
    sampler = task_sampler(cfg, method, task, images.pids, memory.labels if memory else ())
    shown = WithExemplars(images, memory.images, memory.labels) if memory else images
    return TaskBatches(
        shown,
        sampler,
        augment,
        epochs=cfg.TRAIN.EPOCHS,
        first=first,
        views=method.views,
        pixels=method.pixels,
        on_device=cfg.DATA.AUGMENT_ON == "device",
        rows=distributed.own_rows(),
    )


def task_sampler(
    cfg: CfgNode,
    method: Method,
    task: Task,
    labels: Sequence[int] | np.ndarray,
    exemplars: Sequence[int] | np.ndarray = (),
) -> IdentitySampler | StreamSampler:
    """The sampler that a config describes, for a method and the class labels of a task's images.

    Raises:
        InputError: the task is too small, or batches do not fit the method or the number of processes.
    """
    batch, episode, stream, seed = cfg.BATCH, cfg.EPISODE, cfg.STREAM, (cfg.SEED, task.index)
    if stream.SEGMENT or method.batches == "stream":
        if method.exemplar_share is not None:
            raise InputError(
                f"STREAM.SEGMENT: {cfg.METHOD.NAME} mixes exemplars into its batches, which a stream has not; "
                "set STREAM.SEGMENT 0, or take a method that replays, such as er"
            )
        if method.batches == "episodes":
            raise InputError(
                f"STREAM.SEGMENT: {cfg.METHOD.NAME} learns from episodes of support and query images, which a stream "
                "has not; set STREAM.SEGMENT 0, or take another method, such as er"
            )
        segment = stream.SEGMENT or batch.IDENTITIES * batch.IMAGES
        with naming_keys("STREAM"):
            return StreamSampler(labels, segment=segment, correlation=stream.CORRELATION, seed=seed)
    common: dict[str, Any] = {
        "seed": seed,
        "task_name": task.name,
        "exemplars": exemplars,
        "exemplar_share": method.exemplar_share or 0.0,
    }
    group = "BATCH" if method.batches == "identities" else "EPISODE"
    with naming_keys(group, num_support="EPISODE.SUPPORT", num_query="EPISODE.QUERY"):
        sampler = (
            IdentitySampler(labels, identities=batch.IDENTITIES, images=batch.IMAGES, **common)
            if group == "BATCH"
            else EpisodeSampler(
                labels, identities=episode.IDENTITIES, num_support=episode.SUPPORT, num_query=episode.QUERY, **common
            )
        )
    images = sampler.identities * sampler.images_each
    if images % distributed.world():
        raise InputError(
            f"{group}: a batch of {images} images cannot be dealt evenly to {distributed.world()} processes; "
            f"change {group}.IDENTITIES or the number of processes"
        )
    return sampler

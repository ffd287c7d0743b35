"""Publish trained models in a zoo, and verify the metrics on their cards."""

import hashlib
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor
from yacs.config import CfgNode

from lreid.build import benchmark_of, command_of, evaluator_of, model_of
from lreid.checkpoint import load_model_state
from lreid.config import ARGUMENTS, leaves, method_title, recorded_config, without_folders
from lreid.data.datasets import Sources, find_dataset, is_address, load_datasets
from lreid.data.tasks import protocol_fingerprint
from lreid.errors import InputError, counted, naming_keys, rounded_up
from lreid.evaluation.evaluator import Evaluator
from lreid.loading import load_model, model_config
from lreid.methods import method_class
from lreid.models.embedder import Embedder
from lreid.results import METRICS, Results
from lreid.results import read as read_results
from lreid.retrieval.protocols import pair_scores, threshold_for
from lreid.retrieval.scores import cosines_of
from lreid.utils.devices import pick_device
from lreid.zoo.card import BUNDLED, NAME, Card, find
from lreid.zoo.hosted import Published
from lreid.zoo.names import PREFIX
from lreid.zoo.weights import weights_in_place, write_entry

logger = logging.getLogger("lreid")

RESEARCH = "research-only"  # licence of weights that were trained on images for research

FALSE_ACCEPTS = 0.01  # share of impostor pairs that may reach the threshold
MOST_QUERIES = 500  # maximum number of queries per gallery from which the threshold is computed

Figures = dict[str, dict[str, Any]]


class ImagesElsewhere(InputError):
    """The images on which a card was measured are not part of lreid and were not found."""


def publish(
    run: Path,
    name: str,
    *,
    licence: str,
    title: str = "",
    start_only: bool = False,
    trained_on: str = "",
    limits: str = "",
    urls: Sequence[str] = (),
    half: bool = False,
    folder: Path = BUNDLED,
) -> Card:
    """Write weights and card of a run's last task; an existing entry of this name is replaced in one step.

    Args:
        run: the folder of a finished run.
        name: name of the entry, from the characters a-z, 0-9, ``-`` and ``_``.
        licence: licence of the weights, which the publisher chooses; ``research-only`` if the training images or the
            initial weights are for research.
        title: title in one line; if empty, the card names method and benchmark.
        start_only: whether the model is only for initial weights.
        trained_on: source of the training images; if empty, the card names the data sets.
        limits: limits of the model, and uses that are not advised.
        urls: addresses of the weights, unless they are next to the card.
        half: whether to store matrices and kernels in 16 bits. Vectors, most of which belong to BatchNorm, stay in 32
            bits, because they are small and 16 bits cannot represent very large or very small variances.

    Returns:
        Card of the new entry. The metrics on the card are measured with the stored weights on the benchmark of the run.
        The card contains only the last part of each image path.

    Raises:
        InputError: the name or the run is invalid, the data sets do not allow the licence, the images of the benchmark
            have changed since the run, or publishing would overwrite a file that is not a card.
    """
    if not NAME.fullmatch(name):
        raise InputError(f"{name}: cannot be a name in the zoo; use a-z, 0-9, - and _")
    weights_in_place(folder / f"{name}.json")  # raises an error, before the work, if a user's file has the name
    results = read_results(run)
    tasks, done = len(results["tasks"]), len(results["mAP"])
    if done < tasks:
        raise InputError(f"{run}: only {done} of {counted(tasks, 'task')} done; finish the run with --resume first")
    checkpoint = run / "checkpoints" / f"task-{tasks:02d}.pt"
    cfg = model_config(checkpoint)
    check_licence(licence, cfg)
    state = stored(load_model(checkpoint, "cpu").state_dict(), half)
    model = model_of(cfg, pretrained=False)
    load_model_state(model, state, checkpoint)
    content = safetensors.torch.save(state)
    url, *mirrors = urls or [""]
    card = Card(
        file=folder / f"{name}.json",
        name=name,
        title=title or f"{cfg.METHOD.NAME} on {cfg.BENCHMARK.NAME}",
        start_only=start_only,
        trained_on=trained_on or _trained_on(without_folders(cfg).BENCHMARK.TRAIN),
        limits=limits,
        licence=licence,
        sha256=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
        url=url,
        mirrors=mirrors,
        **_measured(cfg, model.eval(), results, run),
        **_of_run(cfg, results),
    )
    write_entry(card, content)
    return card


def _measured(cfg: CfgNode, model: Embedder, results: Results, run: Path) -> dict[str, Any]:
    """Return the keys of a card about the stored network and its metrics."""
    evaluator, protocol = evaluator_and_protocol(cfg)
    if protocol != results["protocol"]:
        raise InputError(
            f"{run}: the images of {results['benchmark']} differ from those on which the run was tested "
            f"(protocol {protocol}, not {results['protocol']}); restore those images, or train again"
        )
    figures = measure(model, evaluator)
    for (name, each), value in zip(figures.items(), results["mAP"][-1], strict=True):
        logger.info("%s: mAP %.2f in the run, %.2f as it is stored", name, value, each["mAP"])
    return {
        "dim": model.dim,
        "parameters": sum(each.numel() for each in model.parameters()),
        "figures": figures,
        "protocol": protocol,
        "verification": threshold(model, evaluator),
    }


def _of_run(cfg: CfgNode, results: Results) -> dict[str, Any]:
    """Return the keys of a card about training, input and evaluation."""
    shared, tasks = without_folders(cfg), len(results["tasks"])
    return {
        "method": method_title(cfg),
        "benchmark": cfg.BENCHMARK.NAME,
        "seed": cfg.SEED,
        "task": tasks,
        "tasks": tasks,
        "backbone": cfg.MODEL.BACKBONE,
        **{key.lower(): cfg.INPUT[key] for key in ("HEIGHT", "WIDTH", "MEAN", "STD")},
        "neck": method_class(cfg.METHOD.NAME).neck,
        **{key.lower(): cfg.EVAL[key] for key in ("METRIC", "AP", "CAMERA_FILTER", "FLIP")},
        "images_trained": results.get("images_trained", 0),
        "command": command_of(shared),
        "config": {"SEED": cfg.SEED} | recorded_config(dict(leaves(shared))),
        "version": results["versions"].get("lreid", ""),
        "imagenet": from_imagenet(cfg.MODEL.WEIGHTS),
    }


def stored(state: dict[str, Tensor], half: bool) -> dict[str, Tensor]:
    """Convert a state dict to the precision of the stored file, see ``half`` of :func:`publish`."""
    return {
        key: (value.half() if half and value.is_floating_point() and value.ndim > 1 else value).contiguous()
        for key, value in state.items()
    }


@naming_keys(**ARGUMENTS)
def evaluator_and_protocol(cfg: CfgNode) -> tuple[Evaluator, str]:
    """Build the evaluator of a config's benchmark; return it with the fingerprint of the benchmark's images."""
    benchmark = benchmark_of(cfg)
    return evaluator_of(cfg, benchmark), protocol_fingerprint(benchmark)


@torch.inference_mode()
def measure(model: Embedder, evaluator: Evaluator) -> Figures:
    """Measure the ``figures`` of a :class:`lreid.zoo.Card`."""
    model = model.to(pick_device("auto")).to(memory_format=torch.channels_last)
    tests = [each.test for each in evaluator.tests]
    return {
        test.name: {"kind": test.kind, "queries": len(test.query), "images": len(test.gallery)}
        | {metric: round(value, 2) for metric, value in figures.metrics.items()}
        for test, figures in zip(tests, evaluator.evaluate(model), strict=True)
    }


@torch.inference_mode()
def threshold(model: Embedder, evaluator: Evaluator) -> dict[str, Any]:
    """Measure the ``verification`` threshold of a card on unseen galleries, or on seen ones if none is unseen."""
    chosen = [each for each in evaluator.tests if each.test.kind == "unseen"] or evaluator.tests
    if not chosen:
        return {}
    pairs = []  # scores of genuine pairs and of impostor pairs, per gallery
    for test in chosen:
        rows = slice(None, None, max(1, len(test.query) // MOST_QUERIES))
        scores = cosines_of(evaluator.extract(model, test.query)[rows], evaluator.extract(model, test.gallery))
        query_labels, gallery_labels = test.labels
        pairs.append(pair_scores(scores, query_labels[rows], gallery_labels))
    same, other = map(np.concatenate, zip(*pairs, strict=True))
    limit = threshold_for(other, FALSE_ACCEPTS)
    return {
        "threshold": float(rounded_up(limit)),
        "false_accept_rate": FALSE_ACCEPTS,
        "true_positive_rate": round(float((same >= limit).mean()), 4),
        "impostor_pairs": len(other),
        "galleries": [test.name for test in chosen],
    }


def verify(card: Card) -> tuple[Figures, list[str]]:
    """Measure a model on the benchmark of its card; return the figures, and one text per difference from the card.

    Raises:
        ImagesElsewhere: the card was measured on images that do not come with lreid and are missing.
        InputError: weights or data sets are missing or damaged.
    """
    name = f"{PREFIX}{card.file}"
    cfg = model_config(name)
    sources = (*cfg.BENCHMARK.LEARNED, *cfg.BENCHMARK.TRAIN, *cfg.BENCHMARK.UNSEEN)
    others = [each.removesuffix("?") for each in sources if not is_address(each)]  # those that do not come with lreid
    try:
        for each in others:
            load_datasets(each, Sources(cfg.DATA.ROOT))
    except InputError as error:
        raise ImagesElsewhere(
            f"{card.name}: was measured on {', '.join(others)}, which do not come with lreid; put these images, or a "
            f"link of this name, into the working directory or into {cfg.DATA.ROOT} ({error})"
        ) from None
    evaluator, protocol = evaluator_and_protocol(cfg)
    figures = measure(load_model(name, "cpu"), evaluator)
    return figures, differences(card, figures, protocol)


def differences(card: Card, figures: Figures, protocol: str) -> list[str]:
    """Compare measured figures with those on a card.

    mAP may differ by 0.1 points, and other metrics by 1 point; kind and counts must be equal.
    """
    # Rounding differs between processors, and with few queries, a single changed rank changes Rank-k.
    tolerances = {each.name: 1.0 for each in METRICS} | {"mAP": 0.1}
    faults = []
    for gallery, stated in card.figures.items():
        if gallery not in figures:
            faults.append(f"{gallery} is on the card, but was not tested")
            continue
        for key, expected in stated.items():
            value, rounded = figures[gallery].get(key), ".2f" if key in tolerances else ""
            if abs(value - expected) > tolerances[key] if key in tolerances else value != expected:
                faults.append(f"{gallery} has {key} {value:{rounded}}, on the card {expected:{rounded}}")
    if protocol != card.protocol:
        faults.append(f"the test images differ (protocol {protocol}, on the card {card.protocol})")
    return faults


def from_imagenet(weights: str) -> bool:
    """Whether ``MODEL.WEIGHTS`` names ImageNet weights, or a zoo entry whose training started from them."""
    if weights.startswith(PREFIX):  # if the new entry has the same name, the earlier entry still exists at this point
        return find(weights).imagenet
    return weights == "imagenet" or weights.startswith("package:")


def check_licence(licence: str, cfg: CfgNode) -> None:
    """Refuse other licences than ``research-only`` for weights from data sets or zoo entries that are for research.

    Raises:
        InputError: the licence is refused; the message names the data set or entry.
    """
    sources = [name for name in (*cfg.BENCHMARK.LEARNED, *cfg.BENCHMARK.TRAIN) if _is_for_research(name)]
    if cfg.MODEL.WEIGHTS.startswith(PREFIX):
        entry = find(cfg.MODEL.WEIGHTS)
        restricted = bool(entry.terms) if isinstance(entry, Published) else entry.licence == RESEARCH
        sources += [cfg.MODEL.WEIGHTS] * restricted
    if sources and licence != RESEARCH:
        raise InputError(f"--licence {licence}: {sources[0]} is for research only; pass --licence {RESEARCH}")


def _is_for_research(name: str) -> bool:
    """Whether the authors of a data set, which may be rotated (``rotated:ANGLE:NAME``), allow research only."""
    spec = find_dataset(name.rpartition(":")[2])
    return spec is not None and spec.licence not in ("CC BY 4.0", "none stated")


def _trained_on(names: Sequence[str]) -> str:
    if all(is_address(name) for name in names):
        return "lreid's synthetic images; no real people or vehicles"
    return f"the training images of {', '.join(names)}; see their licences"

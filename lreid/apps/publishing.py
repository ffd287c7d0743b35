"""Publish trained models in a zoo, and verify the metrics on their cards."""

import argparse
import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.torch
import torch
from torch import Tensor
from yacs.config import CfgNode

from lreid.build import benchmark_of, evaluator_of, model_of
from lreid.checkpoint import load_model_state
from lreid.config import ARGUMENTS, leaves, method_title, recorded_config, without_folders
from lreid.data.datasets import find as find_dataset
from lreid.data.datasets import load_datasets
from lreid.data.fingerprint import protocol_fingerprint
from lreid.data.schemes import Sources, is_address
from lreid.errors import InputError, OutOfMemory, counted, naming_keys
from lreid.evaluation.evaluator import Evaluator
from lreid.loading import load_model, model_config
from lreid.methods import method_class
from lreid.models.embedder import Embedder
from lreid.results import METRICS, Results
from lreid.results import read as read_results
from lreid.retrieval.open_set import pair_scores, threshold_for
from lreid.retrieval.scores import cosines_of
from lreid.training.run_config import command_of
from lreid.utils.devices import pick_device
from lreid.zoo import PREFIX
from lreid.zoo.card import BUNDLED, NAME, Card, cards, find
from lreid.zoo.catalogue import describe
from lreid.zoo.hosted import Published
from lreid.zoo.hub import hub_of, upload
from lreid.zoo.weights import weights_in_place, write_entry

logger = logging.getLogger("lreid")

# Allowed differences in points. Rounding differs between processors, and with few queries, a single changed rank
# changes Rank-k.
TOLERANCE, MAP_TOLERANCE = 1.0, 0.1

RESEARCH = "research-only"  # licence of weights that were trained on images for research

FALSE_ACCEPTS = 0.01  # share of impostor pairs that may reach the threshold
MOST_QUERIES = 500  # maximum number of queries per gallery from which the threshold is computed

Figures = dict[str, dict[str, Any]]


class ImagesElsewhere(InputError):
    """The images on which a card was measured are not part of lreid and were not found."""


def verify_cards(args: argparse.Namespace) -> None:
    """Measure all models or the named model, and compare the metrics with the cards."""
    faults, tests = [], TestSets()
    for card in [_card(args.name)] if args.name else cards():
        try:
            figures, wrong = tests.verify(card)
        except ImagesElsewhere as error:
            if args.name:
                raise
            print(f"not measured: {error}", flush=True)
            continue
        for gallery, each in figures.items():
            print(f"{card.name:28} {gallery:12} mAP {each['mAP']:.2f}  Rank-1 {each['rank1']:.2f}", flush=True)
        faults += [f"{card.name}: {fault}" for fault in wrong]
    if faults:
        raise InputError(f"{'; '.join(faults)}; publish the model again, or find out what has changed")
    print("all figures equal those on the cards")


def publish_run(args: argparse.Namespace) -> None:
    """Publish the checkpoint of a run as an entry of the zoo."""
    statement = Statement(args.title, args.start_only, args.trained_on, args.limits, args.licence, args.url)
    if args.hub and not args.out:
        raise InputError("--hub: needs --out DIR, a folder for a copy of the uploaded entry")
    hub = hub_of(args.hub) if args.hub else None  # here, so that a wrong name or token is reported before the work
    card = publish(args.run, args.name, statement, half=args.half, folder=args.out or BUNDLED)
    print(describe(card))
    if args.hub:
        print(f"uploaded: {upload(card, args.hub, hub)}")


def _card(name: str) -> Card:
    entry = find(name.removeprefix(PREFIX))
    if isinstance(entry, Published):
        raise InputError(f"{PREFIX}{entry.name}: is a third-party model without figures measured by lreid")
    return entry


@dataclass(frozen=True)
class Statement:
    """What the publisher of a model states about it, for its :class:`lreid.zoo.Card`.

    Attributes:
        title: title in one line; if empty, the card names method and benchmark.
        start_only: whether the model is only for initial weights.
        trained_on: source of the training images; if empty, the card names the data sets.
        limits: limits of the model, and uses that are not advised.
        licence: licence of the weights; if empty, see :func:`licence_of`.
        urls: addresses of the weights, unless they are next to the card.
    """

    title: str = ""
    start_only: bool = False
    trained_on: str = ""
    limits: str = ""
    licence: str = ""
    urls: Sequence[str] = ()


def publish(
    run: Path, name: str, statement: Statement = Statement(), *, half: bool = False, folder: Path = BUNDLED
) -> Card:
    """Write weights and card of a run's last task; an existing entry of this name is replaced in one step.

    Args:
        run: the folder of a finished run.
        name: name of the entry, from the characters a-z, 0-9, ``-`` and ``_``.
        statement: what the publisher states about the model.
        half: whether to store matrices and kernels in 16 bits. Vectors, most of which belong to BatchNorm, stay in 32
            bits, because they are small and 16 bits cannot represent very large or very small variances.

    Returns:
        Card of the new entry. The metrics on the card are measured with the stored weights on the benchmark of the run.
        The card contains only the last part of each image path.

    Raises:
        InputError: the name or the run is invalid, the images of the benchmark have changed since the run, or
            publishing would overwrite a file that belongs to no entry.
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
    if not statement.licence:
        statement = replace(statement, licence=licence_of(cfg))
    state = stored(load_model(checkpoint, "cpu").state_dict(), half)
    model = model_of(cfg, pretrained=False)
    load_model_state(model, state, checkpoint)
    measured = _measured(cfg, model.eval(), results, run)
    content = safetensors.torch.save(state)
    card = Card(
        file=folder / f"{name}.json",
        name=name,
        sha256=hashlib.sha256(content).hexdigest(),
        bytes=len(content),
        **measured,
        **_of_run(cfg, results),
        **_stated(statement, cfg),
    )
    write_entry(card, content)
    return card


def _measured(cfg: CfgNode, model: Embedder, results: Results, run: Path) -> dict[str, Any]:
    """Return the keys of a card about the stored network and its metrics."""
    tests = TestSets()
    figures, protocol = tests.measure(model, cfg)
    if protocol != results["protocol"]:
        raise InputError(
            f"{run}: the images of {results['benchmark']} differ from those on which the run was tested "
            f"(protocol {protocol}, not {results['protocol']}); restore those images, or train again"
        )
    for gallery, row in zip(results["galleries"], results["mAP"][-1], strict=True):
        measured = figures[gallery["name"]]["mAP"]
        logger.info("%s: mAP %.2f in the run, %.2f as it is stored", gallery["name"], row, measured)
    return {
        "dim": model.dim,
        "parameters": sum(each.numel() for each in model.parameters()),
        "figures": figures,
        "protocol": protocol,
        "verification": tests.threshold(model, cfg),
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
        "height": cfg.INPUT.HEIGHT,
        "width": cfg.INPUT.WIDTH,
        "mean": list(cfg.INPUT.MEAN),
        "std": list(cfg.INPUT.STD),
        "neck": method_class(cfg.METHOD.NAME).neck,
        "metric": cfg.EVAL.METRIC,
        "ap": cfg.EVAL.AP,
        "camera_filter": cfg.EVAL.CAMERA_FILTER,
        "flip": cfg.EVAL.FLIP,
        "images_trained": results.get("images_trained", 0),
        "command": command_of(shared),
        "config": {"SEED": cfg.SEED} | recorded_config(dict(leaves(shared))),
        "version": results["versions"].get("lreid", ""),
        "imagenet": from_imagenet(cfg.MODEL.WEIGHTS),
    }


def _stated(statement: Statement, cfg: CfgNode) -> dict[str, Any]:
    """Return the keys of a card that the publisher states, with defaults for missing statements."""
    statements = asdict(statement)
    url, *mirrors = statements.pop("urls") or [""]
    return statements | {
        "title": statement.title or f"{cfg.METHOD.NAME} on {cfg.BENCHMARK.NAME}",
        "trained_on": statement.trained_on or _trained_on(without_folders(cfg).BENCHMARK.TRAIN),
        "url": url,
        "mirrors": mirrors,
    }


def stored(state: dict[str, Tensor], half: bool) -> dict[str, Tensor]:
    """Convert a state dict to the precision of the stored file, see ``half`` of :func:`publish`."""
    return {
        key: (value.half() if half and value.is_floating_point() and value.ndim > 1 else value).contiguous()
        for key, value in state.items()
    }


class TestSets:
    """Benchmarks on which models are measured. Models with the same benchmark share its loaded images."""

    __test__ = False  # tells pytest that this class is not a test

    def __init__(self) -> None:
        self._evaluators: dict[str, tuple[Evaluator, str]] = {}

    @naming_keys(**ARGUMENTS)
    @torch.inference_mode()
    def measure(self, model: Embedder, cfg: CfgNode) -> tuple[Figures, str]:
        """Measure the ``figures`` of a :class:`lreid.zoo.Card`; return them with the benchmark's fingerprint."""
        evaluator, protocol = self._evaluator(cfg)
        model = model.to(pick_device("auto")).to(memory_format=torch.channels_last)
        tests = [each.test for each in evaluator.tests]
        return {
            test.name: {"kind": test.kind, "queries": len(test.query), "images": len(test.gallery)}
            | {metric: round(value, 2) for metric, value in figures.metrics.items()}
            for test, figures in zip(tests, evaluator.evaluate(model), strict=True)
        }, protocol

    def _evaluator(self, cfg: CfgNode) -> tuple[Evaluator, str]:
        """Return the evaluator of a config's benchmark, and the fingerprint of this benchmark."""
        key = json.dumps(
            [
                (name, value)
                for name, value in leaves(cfg)
                if name.startswith(("BENCHMARK.", "SYNTHETIC.", "DATA.", "EVAL.", "INPUT.HEIGHT", "INPUT.WIDTH"))
            ]
        )
        if key not in self._evaluators:
            benchmark = benchmark_of(cfg)
            self._evaluators[key] = evaluator_of(cfg, benchmark), protocol_fingerprint(benchmark)
        return self._evaluators[key]

    @torch.inference_mode()
    def threshold(self, model: Embedder, cfg: CfgNode) -> dict[str, Any]:
        """Measure the ``verification`` threshold of a card on unseen galleries, or on seen ones if none is unseen."""
        evaluator = self._evaluator(cfg)[0]
        kinds = {each.test.kind for each in evaluator.tests}
        chosen = [each for each in evaluator.tests if each.test.kind == ("unseen" if "unseen" in kinds else "seen")]
        if not chosen:
            return {}
        scores: list[list[np.ndarray]] = [[], []]
        for test in chosen:
            rows = slice(None, None, max(1, len(test.query) // MOST_QUERIES))
            query = evaluator.extract(model, test.query)[rows]
            gallery = evaluator.extract(model, test.gallery)
            labels = test.labels
            for parts, each in zip(
                scores, pair_scores(cosines_of(query, gallery), labels[0][rows], labels[1]), strict=True
            ):
                parts.append(each)
        same, other = map(np.concatenate, scores)
        limit = threshold_for(other, FALSE_ACCEPTS)
        return {
            "threshold": round(limit, 4),
            "false_accept_rate": FALSE_ACCEPTS,
            "true_positive_rate": round(float((same >= limit).mean()), 4),
            "impostor_pairs": len(other),
            "galleries": [test.name for test in chosen],
        }

    def verify(self, card: Card) -> tuple[Figures, list[str]]:
        """Measure a model on the benchmark of its card.

        Returns:
            Measured metrics, and one text per difference from the card. mAP may differ by up to ``MAP_TOLERANCE``, and
            other metrics by up to ``TOLERANCE``; kind and counts must be equal.

        Raises:
            ImagesElsewhere: the card was measured on custom images of the publisher, which are missing.
            InputError: weights or data sets are missing or damaged.
        """
        name = f"{PREFIX}{card.file}"
        cfg = model_config(name)
        _require_own_sets(card, cfg)
        figures, protocol = self.measure(load_model(name, "cpu"), cfg)
        faults = []
        for gallery, stated in card.figures.items():
            measured = figures.get(gallery)
            if measured is None:
                faults.append(f"{gallery} is on the card, but was not tested")
                continue
            faults += [
                f"{gallery} has {metric} {measured[metric]:.2f}, on the card {stated[metric]:.2f}"
                for metric in (each.name for each in METRICS if each.name in stated)
                if abs(measured[metric] - stated[metric]) > (MAP_TOLERANCE if metric == "mAP" else TOLERANCE)
            ]
            faults += [
                f"{gallery} has {key} {measured[key]}, on the card {stated[key]}"
                for key in ("kind", "queries", "images")
                if measured[key] != stated[key]
            ]
        if protocol != card.protocol:
            faults.append(f"the test images differ (protocol {protocol}, on the card {card.protocol})")
        return figures, faults


def from_imagenet(weights: str) -> bool:
    """Whether ``MODEL.WEIGHTS`` are ImageNet weights, or a model whose training started from ImageNet weights."""
    if weights.startswith(PREFIX):  # if the new entry has the same name, the earlier entry still exists at this point
        return find(weights.removeprefix(PREFIX)).imagenet
    if Path(weights).is_file():
        try:
            return from_imagenet(model_config(weights).MODEL.WEIGHTS)
        except OutOfMemory:
            raise
        except InputError:  # the weights are not a model of lreid
            return False
    return weights == "imagenet" or weights.startswith("package:")


def licence_of(cfg: CfgNode) -> str:
    """Return a licence for weights that respects the terms of the training images and of the initial weights.

    Returns:
        ``MIT`` if lreid made all training images; ``CC-BY-4.0`` if all other images are under CC BY 4.0; and
        ``research-only`` for other data sets. A stricter licence of the initial weights applies instead.

    Raises:
        InputError: lreid does not know the terms of the images or of the initial weights.
    """
    weights = cfg.MODEL.WEIGHTS
    licences = {_licence_of_images(name) for name in (*cfg.BENCHMARK.LEARNED, *cfg.BENCHMARK.TRAIN)}
    if weights.startswith(PREFIX):
        entry = find(weights.removeprefix(PREFIX))
        licences.add(entry.licence if isinstance(entry, Card) else RESEARCH if entry.terms else "MIT")
    elif weights not in ("none", "imagenet", "hub") and not weights.startswith("package:"):
        try:
            licences.add(licence_of(model_config(weights)))
        except OutOfMemory:
            raise
        except InputError:
            raise _unknown_terms(f"the initial weights {weights}") from None
    restricted = sorted(licences - {"MIT"}, key=lambda licence: licence != RESEARCH)
    return restricted[0] if restricted else "MIT"


def _licence_of_images(name: str) -> str:
    """Return the licence that the images of a data set require for weights that were trained on them."""
    while name.startswith("rotated:"):
        name = name.split(":", 2)[2]
    if is_address(name):
        return "MIT"
    spec = find_dataset(name)
    if spec is None or spec.licence == "none stated":
        raise _unknown_terms(f"the training images of {name}")
    return "CC-BY-4.0" if spec.licence == "CC BY 4.0" else RESEARCH


def _unknown_terms(what: str) -> InputError:
    return InputError(
        f"--licence: lreid does not know the terms of {what}; pass --licence with a licence that they allow, such as "
        f"MIT or {RESEARCH}"
    )


def _require_own_sets(card: Card, cfg: CfgNode) -> None:
    """Raise ImagesElsewhere if a card's custom images are missing; the card does not record their folder."""
    for name in (*cfg.BENCHMARK.LEARNED, *cfg.BENCHMARK.TRAIN, *cfg.BENCHMARK.UNSEEN):
        if not name.startswith(("csv:", "folder:", "own:")):
            continue
        try:
            load_datasets(name, Sources(cfg.DATA.ROOT))
        except InputError as error:
            raise ImagesElsewhere(
                f"{card.name}: was measured on {name}, of which the card records only the name; put these images, or a "
                f"link of this name, into the working directory or into {cfg.DATA.ROOT} ({error})"
            ) from None


def _trained_on(names: Sequence[str]) -> str:
    if all(is_address(name) for name in names):
        return "lreid's synthetic images; no real people or vehicles"
    return f"the training images of {', '.join(names)}; see their licences"

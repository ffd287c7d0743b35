"""Write the card of an exported model, which describes it, its use and its limits."""

from pathlib import Path

from yacs.config import CfgNode

from lreid import zoo
from lreid.config import config_from_text
from lreid.models.embedder import Embedder
from lreid.models.fingerprint import fingerprint
from lreid.utils.extras import installed_version

USE = {
    "boxmot": 'boxmot track --reid {out}, or ReID("{out}") of boxmot.reid; BoxMOT resizes and normalises',
    "ultralytics": "botsort.yaml: with_reid: True, model: {out}; {square} x {square} pixels in, normalised inside",
    "deep-sort-realtime": "tracker = DeepSort(embedder=None); "
    'tracker.embedder = lreid.CropEmbedder(lreid.load_model("{out}"))',
    "reid": 'ReIDModel.from_pretrained("{out}")',
}


def card_text(tool: str, model: Embedder, out: Path, config: str, source: str) -> str:
    """Write the card of an exported model in Markdown: what it is, how to use it, and what its limits are."""
    cfg = config_from_text(config, source) if config else None
    mean, std = (
        " ".join(f"{value / 255:.4g}" for value in each.flatten().tolist()) for each in (model.mean, model.std)
    )
    use = USE[tool].format(out=out.name, square=max(model.height, model.width))
    lines = [
        f"# {out.stem}",
        "",
        f"Re-identification model for {tool}, exported from `{Path(source).name}`, lreid {installed_version('lreid')}.",
        "",
        f"* use: {use}",
        f"* network: {model.name}, {model.height} x {model.width} pixels (height x width) to {model.dim} numbers, "
        "to be compared by cosine similarity",
        f"* images: RGB, mean {mean}, standard deviation {std} of values in [0, 1]",
        f"* fingerprint: {fingerprint(model)}",
        *(_trained(cfg, source)),
        "",
        "The model distinguishes people or vehicles only if they look like the people or vehicles in its training "
        "images. Before you rely on the model, test it on your own cameras, and set a threshold there. Many laws "
        "regulate recognising people.",
    ]
    return "\n".join(lines) + "\n"


def _trained(cfg: CfgNode | None, source: str) -> list[str]:
    """Describe how the model was trained, as lines of Markdown."""
    if source.startswith(zoo.PREFIX):
        entry = zoo.find(source)
        if isinstance(entry, zoo.Published):
            return [
                f"* trained on: {entry.data}",
                f"* licence: {entry.licence}; {entry.terms}",
                f"* source: {entry.source}",
            ]
        figures = "; ".join(f"{name} mAP {each['mAP']}, Rank-1 {each['rank1']}" for name, each in entry.figures.items())
        return [f"* trained on: {entry.trained_on}", f"* figures: {figures}", f"* licence: {entry.licence}"]
    if cfg is None:
        return []
    return [
        f"* trained: {cfg.METHOD.NAME} on {cfg.BENCHMARK.NAME}, seed {cfg.SEED}",
        "* licence: see the licences of the training images and of the initial weights",
    ]

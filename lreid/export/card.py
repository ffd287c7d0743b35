"""Write the card of an exported model, which describes it, its use and its limits."""

from pathlib import Path

from jinja2 import Template

from lreid import zoo
from lreid.config import config_from_text
from lreid.models.embedder import Embedder
from lreid.models.fingerprint import fingerprint
from lreid.utils.extras import installed_version

_TEMPLATE = Template(Path(__file__).with_suffix(".md").read_text("utf-8"), trim_blocks=True, keep_trailing_newline=True)


def card_text(tool: str, model: Embedder, out: Path, config: str, source: str) -> str:
    """Write the card of an exported model in Markdown: what it is, how to use it, and what its limits are."""
    mean, std = (" ".join(f"{v / 255:.4g}" for v in each.flatten().tolist()) for each in (model.mean, model.std))
    return _TEMPLATE.render(
        tool=tool,
        out=out,
        source=Path(source).name,
        version=installed_version("lreid"),
        square=max(model.height, model.width),
        model=model,
        mean=mean,
        std=std,
        fingerprint=fingerprint(model),
        training=_training(config, source),
    )


def _training(config: str, source: str) -> list[str]:
    """Describe how the model was trained, one fact per line."""
    if source.startswith(zoo.PREFIX):
        entry = zoo.find(source)
        if isinstance(entry, zoo.Published):
            licence = f"licence: {entry.licence}; {entry.terms}"
            return [f"trained on: {entry.data}", licence, f"source: {entry.source}"]
        figures = "; ".join(f"{name} mAP {each['mAP']}, Rank-1 {each['rank1']}" for name, each in entry.figures.items())
        return [f"trained on: {entry.trained_on}", f"figures: {figures}", f"licence: {entry.licence}"]
    if not config:
        return []
    cfg = config_from_text(config, source)
    trained = f"trained: {cfg.METHOD.NAME} on {cfg.BENCHMARK.NAME}, seed {cfg.SEED}"
    return [trained, "licence: see the licences of the training images and of the initial weights"]

"""A tiny CLIP of open_clip with random weights."""

import json
import tempfile
from pathlib import Path

from torch import nn

from lreid.models import build_backbone

NAME = "tiny-clip"
CONFIG = {
    "embed_dim": 8,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 16, "head_width": 8, "patch_size": 8},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 8, "heads": 2, "layers": 1},
}


def register() -> str:
    """Makes it known to open_clip; its name as a backbone."""
    import open_clip

    if NAME not in open_clip.list_models():
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / f"{NAME}.json"
            file.write_text(json.dumps(CONFIG))
            open_clip.add_model_config(file)
    return f"open_clip:{NAME}"


def tiny_clip() -> nn.Module:
    return build_backbone(register(), size=(32, 16))

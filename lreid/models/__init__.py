"""Networks from images to feature vectors."""

from lreid.models.backbones import build_backbone
from lreid.models.classifier import GrowingClassifier
from lreid.models.embedder import Embedder

__all__ = ["Embedder", "GrowingClassifier", "build_backbone"]

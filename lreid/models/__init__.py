"""Networks from images to feature vectors."""

from lreid.models.backbones import build_backbone
from lreid.models.classifier import CosineClassifier, GrowingClassifier
from lreid.models.embedder import Embedder
from lreid.models.knowledge_graph import KnowledgeGraph

__all__ = ["CosineClassifier", "Embedder", "GrowingClassifier", "KnowledgeGraph", "build_backbone"]

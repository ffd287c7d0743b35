"""Networks from images to feature vectors."""

from lreid.models.backbones import build_backbone, register_backbone
from lreid.models.classifier import CosineClassifier, GrowingClassifier
from lreid.models.embedder import Embedder
from lreid.models.knowledge_graph import KnowledgeGraph
from lreid.models.projection import Projected, ProjectedEmbedder, ProjectionHead
from lreid.models.teacher import frozen_copy

__all__ = [
    "CosineClassifier",
    "Embedder",
    "GrowingClassifier",
    "KnowledgeGraph",
    "Projected",
    "ProjectedEmbedder",
    "ProjectionHead",
    "build_backbone",
    "frozen_copy",
    "register_backbone",
]

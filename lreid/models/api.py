"""Public names of :mod:`lreid.models`."""

from lreid.models.backbones import build_backbone, register_backbone
from lreid.models.classifier import ClassifyingEmbedder, CosineClassifier, GrowingClassifier
from lreid.models.deviations import DistributionEmbedder
from lreid.models.embedder import Embedder, frozen_copy
from lreid.models.knowledge_graph import KnowledgeGraph
from lreid.models.parts import bn_neck, evaluating
from lreid.models.patch_net import PatchNet
from lreid.models.projection import Projected, ProjectedEmbedder, ProjectionHead
from lreid.models.style import StyleKernels

__all__ = [
    "ClassifyingEmbedder",
    "CosineClassifier",
    "DistributionEmbedder",
    "Embedder",
    "GrowingClassifier",
    "KnowledgeGraph",
    "PatchNet",
    "Projected",
    "ProjectedEmbedder",
    "ProjectionHead",
    "StyleKernels",
    "bn_neck",
    "build_backbone",
    "evaluating",
    "frozen_copy",
    "register_backbone",
]

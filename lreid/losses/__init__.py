"""Losses: pure functions, tensors in and a scalar out. They need nothing but torch."""

from lreid.losses.aka import plasticity_loss, smoothed_cross_entropy, stability_loss
from lreid.losses.distillation import decoupled_distillation_loss, dwopp_loss, dwpp_loss
from lreid.losses.dmml import dmml_loss
from lreid.losses.erd import erd_losses
from lreid.losses.icarl import icarl_loss
from lreid.losses.ida import discriminant_alignment_loss
from lreid.losses.lwf import knowledge_distillation_loss
from lreid.losses.pass_ import (
    augment_prototypes,
    class_means,
    feature_distillation_loss,
    prototype_radius,
    rotate_batch,
)
from lreid.losses.triplet import batch_hard_triplet_loss

__all__ = [
    "augment_prototypes",
    "batch_hard_triplet_loss",
    "class_means",
    "decoupled_distillation_loss",
    "discriminant_alignment_loss",
    "dmml_loss",
    "dwopp_loss",
    "dwpp_loss",
    "erd_losses",
    "feature_distillation_loss",
    "icarl_loss",
    "knowledge_distillation_loss",
    "plasticity_loss",
    "prototype_radius",
    "rotate_batch",
    "smoothed_cross_entropy",
    "stability_loss",
]

"""Public names of :mod:`lreid.losses`."""

from lreid.losses._ops import class_means
from lreid.losses.affinity import affinity_kl_loss
from lreid.losses.aka import plasticity_loss, smoothed_cross_entropy, stability_loss
from lreid.losses.cclis import importance_scores, prototype_relation_loss, sample_nce_loss
from lreid.losses.contrast import contrast_scores, nt_xent_loss
from lreid.losses.dask import dask_color_resample, dask_decode
from lreid.losses.der import dark_experience_loss
from lreid.losses.distillation import decoupled_distillation_loss, dwopp_loss, dwpp_loss
from lreid.losses.dkp import dkp_pkt_loss, dkp_prototypes, dkp_set_triplet_loss
from lreid.losses.dmml import dmml_loss
from lreid.losses.er_ace import asymmetric_cross_entropy
from lreid.losses.er_aml import SampledPairs, er_aml_loss, er_aml_triplet_loss, sample_pairs
from lreid.losses.erd import erd_losses
from lreid.losses.fusion import linear_combination, lstkc_alpha, lstkcpp_alpha, pad_ema
from lreid.losses.icarl import icarl_loss
from lreid.losses.ida import discriminant_alignment_loss
from lreid.losses.lstkc import lstkc_rskt_loss, lstkcpp_dual_loss, lstkcpp_single_loss
from lreid.losses.lwf import knowledge_distillation_loss
from lreid.losses.pad import pad_image_text_loss, pad_text_anchor_loss, pad_viskd_loss
from lreid.losses.pass_ import augment_prototypes, feature_distillation_loss, prototype_radius, rotate_batch
from lreid.losses.patch_kd import (
    patchkd_conf_loss,
    patchkd_div_loss,
    patchkd_kd_loss,
    patchkd_patch_features,
    patchkd_rd_loss,
)
from lreid.losses.relations import mean_squared_distillation_loss, relation_distillation_loss
from lreid.losses.supcon import asymmetric_supcon_loss
from lreid.losses.triplet import batch_hard_triplet_loss

__all__ = [
    "SampledPairs",
    "affinity_kl_loss",
    "asymmetric_cross_entropy",
    "asymmetric_supcon_loss",
    "augment_prototypes",
    "batch_hard_triplet_loss",
    "class_means",
    "contrast_scores",
    "dark_experience_loss",
    "dask_color_resample",
    "dask_decode",
    "decoupled_distillation_loss",
    "discriminant_alignment_loss",
    "dkp_pkt_loss",
    "dkp_prototypes",
    "dkp_set_triplet_loss",
    "dmml_loss",
    "dwopp_loss",
    "dwpp_loss",
    "er_aml_loss",
    "er_aml_triplet_loss",
    "erd_losses",
    "feature_distillation_loss",
    "icarl_loss",
    "importance_scores",
    "knowledge_distillation_loss",
    "linear_combination",
    "lstkc_alpha",
    "lstkc_rskt_loss",
    "lstkcpp_alpha",
    "lstkcpp_dual_loss",
    "lstkcpp_single_loss",
    "mean_squared_distillation_loss",
    "nt_xent_loss",
    "pad_ema",
    "pad_image_text_loss",
    "pad_text_anchor_loss",
    "pad_viskd_loss",
    "patchkd_conf_loss",
    "patchkd_div_loss",
    "patchkd_kd_loss",
    "patchkd_patch_features",
    "patchkd_rd_loss",
    "plasticity_loss",
    "prototype_radius",
    "prototype_relation_loss",
    "relation_distillation_loss",
    "rotate_batch",
    "sample_nce_loss",
    "sample_pairs",
    "smoothed_cross_entropy",
    "stability_loss",
]

"""Losses: pure functions, tensors in and a scalar out. They need nothing but torch."""

from lreid.losses.distillation import decoupled_distillation_loss, dwopp_loss, dwpp_loss
from lreid.losses.dmml import dmml_loss

__all__ = ["decoupled_distillation_loss", "dmml_loss", "dwopp_loss", "dwpp_loss"]

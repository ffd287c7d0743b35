"""LwF+: Learning without Forgetting with exemplars of past tasks."""

from __future__ import annotations

from lreid.methods.bot_ft_plus import BoTFineTuningPlus
from lreid.methods.lwf import LwF


class LwFPlus(BoTFineTuningPlus, LwF):
    """The losses of BoT-FT+ and the distillation of LwF, each on all images: "LwF+" of DwoPP (BMVC 2022, Table 1).

    The recipe is not published; the memory and the softmax are those of :class:`BoTFineTuningPlus`. Without exemplars
    it is LwF, without distillation BoT-FT+.
    """

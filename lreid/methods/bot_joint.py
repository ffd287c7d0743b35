"""Joint training with the softmax-triplet loss: the upper bound of its family."""

from __future__ import annotations

from lreid.methods.bot_ft import BoTFineTuning


class BoTJoint(BoTFineTuning):
    """As many epochs as one task of a lifelong run has, and so as many looks at each identity."""

    joint = True

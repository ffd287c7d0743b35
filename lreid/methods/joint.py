"""Joint training: DMML on the identities of all tasks at once, the upper bound."""

from __future__ import annotations

from lreid.methods.dmml_ft import DMMLFineTuning


class Joint(DMMLFineTuning):
    """As many epochs as one task of a lifelong run has, and so as many looks at each identity."""

    joint = True

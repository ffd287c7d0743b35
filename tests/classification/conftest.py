"""Data sets of classification, by name."""

import lreid.classification  # noqa: F401, registers them

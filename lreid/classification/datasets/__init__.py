"""Data sets for classification, one file per data set; :mod:`lreid.data.datasets` finds them by name."""

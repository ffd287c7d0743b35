"""Data sets of classes, a file each; :mod:`lreid.data.datasets` finds them by name."""

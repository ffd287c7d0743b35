"""Class- and domain-incremental classification: its data sets, and an observer that measures accuracy.

Importing this package registers its data sets, such as ``cifar10``, and the schemes ``folder:`` and ``rotated:``, whose
modules are imported when a name is first used. Re-identification does not need this package.
"""

from typing import TYPE_CHECKING

from lreid.data.datasets import register_package
from lreid.data.schemes import register_scheme
from lreid.evaluation import register_observer
from lreid.utils.extras import public_names

if TYPE_CHECKING:
    from lreid.classification.evaluator import AccuracyEvaluator
    from lreid.classification.observer import AccuracyObserver

__all__ = ["AccuracyEvaluator", "AccuracyObserver"]

__getattr__, __dir__ = public_names(
    __name__,
    {"AccuracyEvaluator": "lreid.classification.evaluator", "AccuracyObserver": "lreid.classification.observer"},
)

register_package("lreid.classification.datasets")
register_scheme("folder:PATH", "lreid.classification.image_folder")
register_scheme("rotated:DEGREES:NAME", "lreid.classification.rotated")
register_observer("EVAL.ACCURACY", "lreid.classification.observer")

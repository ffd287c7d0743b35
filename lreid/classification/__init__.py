"""Class- and domain-incremental classification: its data sets, and an observer that measures accuracy.

Importing this package registers its data sets, such as ``cifar10``, the schemes ``folder:`` and ``rotated:``, and the
observer of ``EVAL.ACCURACY``. Their modules are imported when a config names them. Re-identification does not need this
package.
"""

from lreid.data.datasets import register_package, register_scheme
from lreid.evaluation import register_observer

register_package("lreid.classification.datasets")
register_scheme("folder:PATH", "lreid.classification.image_folder")
register_scheme("rotated:DEGREES:NAME", "lreid.classification.rotated")
register_observer("EVAL.ACCURACY", "lreid.classification.observer")

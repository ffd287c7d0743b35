"""Evaluation on test sets after every task: features, metrics, and diagnostics for forgetting."""

from typing import TYPE_CHECKING

from lreid.utils.extras import public_names

if TYPE_CHECKING:
    from lreid.evaluation.api import *  # noqa: F403

__getattr__, __dir__ = public_names(__name__)

# By the config key that enables an observer: the module that creates it, which is imported only then.
OBSERVERS = {"EVAL.DRIFT_STEPS": "lreid.evaluation.switch"}


def register_observer(key: str, module: str) -> None:
    """Add an observer to all runs of this process whose config sets a key.

    Args:
        key: full name of the config key.
        module: full name of the module, whose function ``create(cfg, benchmark, method, evaluator, results)`` returns
            the :class:`~lreid.evaluation.observer.Observer`.
    """
    OBSERVERS[key] = module

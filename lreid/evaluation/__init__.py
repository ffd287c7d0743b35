"""Evaluation on test sets after every task: features, metrics, and diagnostics for forgetting."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)

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

from .drift import DriftRecorder as DriftRecorder
from .drift import feature_drift as feature_drift
from .evaluator import Evaluator as Evaluator
from .gallery_features import GalleryFeatures as GalleryFeatures
from .gradients import GradientRecorder as GradientRecorder
from .gradients import gradient_norms as gradient_norms
from .observer import Observer as Observer
from .switch import SwitchObserver as SwitchObserver
from .test_set import Rules as Rules
from .test_set import TestSet as TestSet
from .test_set import load_tests as load_tests

OBSERVERS: dict[str, str]

def register_observer(key: str, module: str) -> None: ...

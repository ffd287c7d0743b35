"""EWC: fine-tuning that penalises changes of the weights on which the identities of past images depend most."""

from torch import Tensor

from lreid.methods.base import Embedder
from lreid.methods.mas import MAS


class EWC(MAS):
    """Elastic weight consolidation (Kirkpatrick et al., PNAS 2017, Equation 3) in its online form.

    The loss is that of :class:`MAS`. The importance ``w_i`` is ``F_i / 2``, where the Fisher information ``F_i`` is the
    mean of ``(d log p(y|x) / d t_i)²`` over the images ``x`` of a task and their identities ``y``. With the default
    strength, old and new images have equal weights in the Laplace approximation if all tasks have equally many images.

    In the online form (Schwarz et al., "Progress & Compress", ICML 2018), one penalty covers all past
    tasks: ``F`` becomes ``decay * F`` plus that of the new task, and the penalty pulls towards the weights after the
    last task. Kirkpatrick et al. have one penalty per task. Both papers have no official code. Like most code of
    others, lreid uses the true identity ``y``; the Fisher information of the papers is an expectation over the model's
    own predictions. ``p`` is BoT's softmax, without label smoothing.
    """

    def output(self, network: Embedder, image: Tensor, label: int) -> Tensor:
        """Compute the log-probability of the identity of one image (1, 3, H, W)."""
        logits = self.classifier(network.neck(network(image)))[:, self.first_class :]  # (1, classes of the softmax)
        return logits.log_softmax(1)[0, label - self.first_class]

    def of_gradient(self, gradient: Tensor) -> Tensor:
        """Compute half the squared gradient for one image."""
        return gradient.square() / 2

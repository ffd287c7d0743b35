"""ER: experience replay; each step trains on incoming and on stored images."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter

from lreid.errors import ArgumentError
from lreid.memory.exemplars import ImagePaths
from lreid.memory.stream import StreamMemory
from lreid.methods.base import Batch, Embedder, Method, Rule, Task
from lreid.models.classifier import CosineClassifier, GrowingClassifier
from lreid.models.parts import bn_neck, evaluating


class Replay(NamedTuple):
    """Augmented stored images (n, 3, H, W), their labels (n,) on the same device, and their memory rows (n,)."""

    images: Tensor
    labels: Tensor
    rows: np.ndarray


class ER(Method):
    """Experience replay with a reservoir (Chaudhry et al., 2019), the baseline of ER-ACE and ER-AML.

    The loss is the cross-entropy of the incoming batch plus the cross-entropy of equally many stored images. Both
    cross-entropies cover all identities so far. Incoming and stored images have separate forward passes, so BatchNorm
    normalises them separately. The official code (AML_pc) also has separate forward passes, but its classifier has rows
    for all classes from the start. In lreid, the classifier grows with each task.

    The config selects offline or online training. Offline training has epochs of P x K batches, as usual in re-ID.
    Online training reads a stream once, as in the papers (``STREAM.SEGMENT 10 STREAM.ITERATIONS 1`` or 3,
    ``TRAIN.EPOCHS 1``, see ``configs/recipes/online.yaml``). In both kinds of training, ER offers each image to the
    memory once, after the first step on the image. Retrieval compares the features before the classifier, as in every
    method of lreid.

    Args:
        task_free: whether to replay images of the current task, too. The official ER does so only if tasks are unknown.
        reid_head: whether to use the classifier of LSTKC's baseline. It follows a BatchNorm, and rows of new identities
            start as the directions of their mean features, which preserves a trained network. A stream cannot use this
            option, because the features of all images of a task are needed before training.

    Attributes:
        memory: a :class:`~lreid.memory.StreamMemory`.
    """

    saves: ClassVar = {"classifier": "identity", "head_neck": "network"} | dict.fromkeys(
        ("generator", "task_classes", "shared_classes", "offered"), ""
    )
    batches = "identities"
    pixels = True
    cosine: ClassVar[bool] = False  # whether logits are scaled cosines
    memory: StreamMemory

    def __init__(
        self,
        model: Embedder,
        *,
        exemplars: Annotated[int, Rule("maximum number of images in the memory; 0 means fine-tuning", least=0)] = 500,
        exemplar_mib: float = 0.0,
        store: Literal["images", "paths"] = "images",
        replay: Annotated[int, Rule("number of stored images per step; 0 = as many as incoming images", least=0)] = 0,
        task_free: Annotated[bool, Rule("also replay images of the task (official: if tasks are unknown)")] = True,
        replay_weight: Annotated[float, Rule("weight of the loss of stored images in the total loss", least=0)] = 1.0,
        reid_head: Annotated[bool, Rule("for re-identification, use the classifier of LSTKC's baseline")] = False,
    ) -> None:
        super().__init__(model, exemplars=exemplars, exemplar_mib=exemplar_mib, store=store)
        self.memory = StreamMemory(self.memory.budget, "reservoir", seed=self.seed)
        self.exemplar_share = None  # the method draws the replayed images itself
        self.replay, self.task_free, self.reid_head = replay, task_free, reid_head
        self.weights = {"replay": replay_weight}
        self.classifier = self.new_classifier().to(model.mean.device)
        self.head_neck: nn.Module = bn_neck(model.dim).to(model.mean.device) if reid_head else nn.Identity()
        self.task_classes: tuple[int, ...] = ()
        if replay == 1 and type(self).loss is ER.loss and self.needs_pairs:  # other losses process all images together
            raise ArgumentError("replay", "is 1, but BatchNorm cannot normalise one image; set it to 2 or more, or 0")
        self.shared_classes = 0  # classes per task in a domain-incremental sequence, else 0
        self.offered: set[str] = set()  # paths of the task's images that were offered to the memory

    def new_classifier(self) -> GrowingClassifier:
        """Create a classifier without rows; rows that are added later are initialised as in ``torch.nn.Linear``."""
        if self.cosine:
            return CosineClassifier(self.model.dim)
        return GrowingClassifier(self.model.dim, std=(3 * self.model.dim) ** -0.5)

    def begin_task(self, task: Task) -> None:
        """Add a classifier row for each new identity, and clear the list of images that were offered to the memory.

        If all tasks have the same classes (domain-incremental learning), later tasks use the rows of the first task.
        """
        self.shared_classes = task.shared_classes
        self.classifier.cover(range(self.shared_classes) if self.shared_classes else task.classes)
        self.task_classes, self.offered = tuple(task.classes), set()
        if self.reid_head and not (self.shared_classes and task.index):
            self.begin_rows(task)

    @torch.no_grad()
    def begin_rows(self, task: Task) -> None:
        """Initialise each classifier row of a task with the direction of the mean feature of its class."""
        rows = self.class_of(torch.tensor(task.classes))
        self.classifier.weight[rows] = self.mean_directions(task).to(self.classifier.weight)

    def parameters(self) -> list[Parameter]:
        """The network and the classifier."""
        return [*self.model.parameters(), *self.head_neck.parameters(), *self.classifier.parameters()]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the loss of the incoming images and the loss of stored images."""
        batch = batch._replace(labels=self.class_of(batch.labels))
        incoming = self.incoming_loss(batch)
        return {"incoming": incoming} | self.replay_terms(self.replay or len(batch.labels), incoming)

    def replay_terms(self, count: int, incoming: Tensor) -> dict[str, Tensor]:
        """Compute the loss terms of ``count`` stored images; ``incoming`` is the loss of the incoming batch."""
        replay = self.choose(count, incoming)
        return {} if replay is None else {"replay": self.replay_loss(replay)}

    def incoming_loss(self, batch: Batch) -> Tensor:
        """Compute the loss of the incoming images."""
        return F.cross_entropy(self.logits(batch.images), batch.labels.to(batch.images.device, non_blocking=True))

    def replay_loss(self, replay: Replay) -> Tensor:
        """Compute the loss of stored images."""
        return F.cross_entropy(self.logits(replay.images), replay.labels)

    def class_of(self, labels: Tensor) -> Tensor:
        """Convert labels (n,) to classifier rows (n,); both differ if all tasks have the same classes."""
        return labels % self.shared_classes if self.shared_classes else labels

    def logits(self, images: Tensor) -> Tensor:
        """Compute logits (n, identities so far) of images."""
        return self.classifier(self.head_neck(self.model(images)))

    def gradient(self, loss: Tensor) -> Tensor:
        """Compute the gradient of a loss for all trained parameters, as one vector in float64."""
        parameters = [part for part in self.parameters() if part.requires_grad]
        parts = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True, materialize_grads=True)
        return torch.cat([part.flatten().double() for part in parts])

    def class_scores(self, features: Tensor) -> Tensor:
        """Compute logits of all identities so far, ``(B, K)``."""
        with evaluating(self.head_neck):
            return self.classifier(self.head_neck(features))

    def choose(self, count: int, incoming: Tensor) -> Replay | None:
        """Choose stored images for this step, or return None if no stored image can be chosen.

        Args:
            count: number of stored images to choose.
            incoming: loss of the incoming batch; some methods use its gradient to choose.
        """
        rows = self.drawn(count, exclude=() if self.task_free else self.task_classes)
        return self.read(rows) if len(rows) else None

    def drawn(self, count: int, *, exclude: Sequence[int]) -> np.ndarray:
        """Draw random rows (n,) of the memory, except rows of the classes in ``exclude``.

        If only one row could be drawn and BatchNorm cannot train on one image, the result is empty.
        """
        rows = self.memory.draw(count, exclude=exclude)
        return rows[:0] if len(rows) == 1 and self.needs_pairs else rows

    def read(self, rows: np.ndarray) -> Replay:
        """Read and augment the images in the given rows (n,) of the memory."""
        seed = int(torch.randint(2**31, (), generator=self.generator))
        images = self.augmented(self.memory.images[rows], seed=seed)
        labels = self.class_of(torch.from_numpy(self.memory.labels[rows]))
        return Replay(images, labels.to(images.device, non_blocking=True), rows)

    def end_step(self, batch: Batch) -> None:
        """Offer the images of the batch to the memory, except images that were offered before."""
        last = {path: row for row, path in enumerate(batch.paths) if path not in self.offered}
        self.offered.update(last)
        if not last:
            return
        fresh = np.array(list(last.values()), np.int64)  # an image may occur twice in a batch
        if self.store == "paths":
            images: Any = ImagePaths(list(last), self.model.height, self.model.width)
        else:
            images = batch.pixels.numpy()[fresh]
        self.memory.add(images, batch.labels.numpy()[fresh], **self.extras(batch, fresh))

    def extras(self, batch: Batch, rows: np.ndarray) -> dict[str, np.ndarray]:
        """Additional values (k, …) to store with the images in the given rows (k,) of a batch."""
        return {}

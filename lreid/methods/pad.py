"""PAD: prompts for CLIP, with text features as anchors and a moving average of the network as the teacher."""

import logging
import math
from typing import Annotated, Any, ClassVar, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import Adam

from lreid.errors import ArgumentError, require
from lreid.losses.fusion import pad_ema
from lreid.losses.pad import pad_image_text_loss, pad_text_anchor_loss, pad_viskd_loss
from lreid.losses.triplet import batch_hard_triplet_loss
from lreid.methods.base import Batch, Embedder, Method, Rule, Task
from lreid.models.backbones.open_clip import ClipFeatures
from lreid.models.classifier import GrowingClassifier
from lreid.models.embedder import frozen_copy
from lreid.models.text_tower import LEARNED, TextTower

logger = logging.getLogger("lreid")

# Stage 1: number of warm-up epochs, learning rate before the warm-up, and learning rate in the last epoch.
WARMUP, FIRST_RATE, LAST_RATE = 3, 1e-5, 1e-6


class PAD(Method):
    """PAD (CVPR 2026): prompts for text and images, with a moving average of the network as the teacher.

    lreid follows PAD's official code. Training on a task has two stages. Stage 1, at the start of the task, computes
    and stores the projected features of all images. Stage 1 then trains four text tokens per identity, so that the
    images and the sentence of an identity have similar features. Stage 2 trains the image tower with these loss terms:

    * cross-entropies on the class token and on the projected class token, each after its own BatchNorm neck (with a
      trained shift, unlike BoT's neck);
    * triplet losses on the class token, on the projected class token, and on the class token of an earlier block;
    * cross-entropy over the dot products of the projected class token with the text features;
    * from the second task on, :func:`~lreid.losses.pad_viskd_loss`, with a moving average of the network as the
      teacher. The moving average starts as a copy of the network with the new prompts of the task; every training step
      updates it.

    The first task trains the whole image tower (CLIP's image encoder). Later tasks train the prompts and the last
    blocks of the image tower. Every task adds new prompt slots. The heads and the text tokens start from random values
    in each task. The network, the prompts and the necks continue from task to task. Retrieval compares the class token
    and the projection before the necks.

    From the second task on, stage 1 has an additional loss term, which keeps the text features close to those of a text
    teacher. In PAD's official code, the text teacher is copied before stage 1, so its tokens for new identities are
    random. The official text teacher therefore pulls the text features towards untrained sentences, not towards old
    knowledge. ``text_teacher="initial"`` reproduces the text teacher of the official code, and ``text_teacher="none"``
    leaves out the term.

    lreid differs from PAD's official code in three points. First, lreid computes in float32 instead of mixed precision.
    Second, all tasks after the first have the same schedule; the official code has separate schedules for MSMT17 and
    CUHK03 (``configs/recipes/pad.yaml``). Third, some prompt slots stay unused until a task opens them. At test time,
    lreid uses only the slots that tasks have opened so far, while the official test script uses all slots. PAD does not
    support exemplars, because heads and sentences cover only the identities of the task.
    """

    batches = "identities"
    finishing = "finishing the task"
    copies: ClassVar = {**Method.copies, "average": "_copy"}
    saves: ClassVar = {"text": "network", "necks": "network", "heads": "identity", "bank": "identity"} | dict.fromkeys(
        ("generator", "finished", "labels"), ""
    )

    def __init__(
        self,
        model: Embedder,
        *,
        margin: Annotated[float, Rule("margin of the triplet losses", least=0)] = 0.3,
        label_smoothing: Annotated[float, Rule("label smoothing of all cross-entropies", least=0, most=1)] = 0.1,
        id_weight: Annotated[float, Rule("weight of the cross-entropies after the necks", least=0)] = 0.25,
        text_weight: Annotated[float, Rule("weight of the cross-entropy over text features", least=0)] = 1.0,
        distillation_weight: Annotated[float, Rule("weight of each distillation term", least=0)] = 0.5,
        temperature: Annotated[float, Rule("temperature of the logits in the distillation", above=0)] = 4.0,
        momentum: Annotated[float, Rule("weight of the old value in the moving average", least=0, most=1)] = 0.997,
        last_blocks: Annotated[int, Rule("number of last blocks that are trained after the first task", least=0)] = 4,
        prompt_rate: Annotated[float, Rule("factor of the prompts' learning rate in later tasks", above=0)] = 1000.0,
        first_prompt_rate: Annotated[float, Rule(
            "factor of the prompts' learning rate in the first task", above=0)] = 400.0,
        slots: Annotated[int, Rule("number of prompt slots per block, for all tasks together", least=1)] = 36,
        new_slots: Annotated[int, Rule("number of prompt slots that each task opens", least=1)] = 8,
        chosen_slots: Annotated[int, Rule("number of prompt slots that an image uses", least=1)] = 4,
        prompt_length: Annotated[int, Rule("number of prompts per slot and of general prompts per block", least=1)] = 6,
        text_epochs: Annotated[int, Rule("number of epochs of stage 1 after the first task", least=0)] = 12,
        first_text_epochs: Annotated[int, Rule("number of epochs of stage 1 in the first task", least=0)] = 20,
        text_batch: Annotated[int, Rule("number of images per batch of stage 1", least=1)] = 64,
        text_rate: Annotated[float, Rule("learning rate of stage 1 after the first task", above=0)] = 5e-3,
        first_text_rate: Annotated[float, Rule("learning rate of stage 1 in the first task", above=0)] = 2e-3,
        text_teacher: Annotated[Literal["initial", "none"], Rule("text teacher: initial tokens")] = "initial",
        anchor_weight: Annotated[float, Rule("weight of the text teacher's loss term", least=0)] = 0.5,
        negatives: Annotated[int, Rule("number of other identities in the text teacher's loss term", least=0)] = 256,
        noun: Annotated[str, Rule("noun for what the images show, used in the sentence of each identity")] = "person",
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__(model, **options)
        if not isinstance(model.backbone, ClipFeatures) or model.backbone.clip.module is None:
            raise ArgumentError(
                "backbone", f"is {model.name}, but pad needs a CLIP model; use open_clip:ViT-B-16-quickgelu.openai"
            )
        require(chosen_slots <= slots, "chosen_slots", chosen_slots, f"at most slots, which is {slots}")
        require(not self.memory.budget, "exemplars", self.memory.budget, "0, as pad cannot train on past identities")
        device = model.mean.device
        self.margin, self.label_smoothing = margin, label_smoothing
        self.weights = {"softmax": id_weight, "text": text_weight}
        self.distillation: dict[str, float] = {
            "feature_weight": distillation_weight, "logit_weight": distillation_weight, "temperature": temperature,
        }  # fmt: skip
        self.momentum, self.last_blocks, self.new_slots = momentum, last_blocks, new_slots
        self.prompt_rates, self.text_rates = (first_prompt_rate, prompt_rate), (first_text_rate, text_rate)
        self.text_epochs, self.text_batch = (first_text_epochs, text_epochs), text_batch
        self.text_teacher, self.anchor_weight, self.negatives = text_teacher, anchor_weight, negatives
        self.backbone = model.backbone
        self.unfrozen = [each for each in self.backbone.visual.parameters() if each.requires_grad]
        self.text = TextTower(self.backbone.clip.module, noun).to(device)
        self.backbone.clip.module = None
        self.prompts = self.backbone.put_prompts(
            general=prompt_length, length=prompt_length, slots=slots, chosen=chosen_slots
        )
        self.widths = (self.backbone.width, self.backbone.projected)
        self.necks = nn.ModuleList(map(nn.BatchNorm1d, self.widths)).to(device)
        self.average: Embedder | None = None  # the teacher within a task
        self.averaged = False  # whether the teacher includes the last update
        self.finished = 0
        self.labels = torch.empty(0, dtype=torch.int64)  # labels of the task, ascending
        self.bank = torch.empty(0, self.widths[1], device=device)  # text features (identities, projected)
        self._new_heads(0)

    def _new_heads(self, classes: int) -> None:
        heads = [GrowingClassifier(width, classes) for width in self.widths]
        self.heads = nn.ModuleList(heads).to(self.model.mean.device)

    @property
    def later(self) -> int:
        """Return 0 in the first task and 1 in later tasks; some options have a separate value for later tasks."""
        return min(self.finished, 1)

    # ------------------------------------------------------------ stage 1

    def begin_task(self, task: Task) -> None:
        """Create heads, add prompt slots, copy the network as the teacher, and run stage 1."""
        self._new_heads(len(task.classes))
        self.labels = torch.tensor(task.classes)
        self.prompts.begin_task(self.new_slots)
        self.average = self._copy() if self.later else None
        features = self.features_of(task)[:, self.widths[0] :]  # (n, projected)
        labels = torch.searchsorted(self.labels, torch.tensor([record.pid for record in task.records]))
        device = self.model.mean.device
        self.bank = self.text_features(features.to(device), labels.to(device), len(self.labels))

    def text_features(self, images: Tensor, labels: Tensor, classes: int) -> Tensor:
        """Train text tokens for the identities of a task, and return the text features of the trained tokens.

        Args:
            images: (n, dim) projected features of images.
            labels: (n,) integers from 0.
            classes: number of identities in the task.

        Returns:
            (classes, dim) text features.
        """
        epochs, base = self.text_epochs[self.later], self.text_rates[self.later]
        tokens = 0.02 * torch.randn(classes, LEARNED, self.text.width, generator=self.generator)
        learned = Parameter(tokens.to(images))
        anchors = self._encoded(learned.detach()) if self.later and self.text_teacher == "initial" else None
        optimizer = Adam([learned], lr=base)
        for epoch in range(1, epochs + 1):
            optimizer.param_groups[0]["lr"] = text_rate(epoch, epochs, base)
            order = torch.randperm(len(images), generator=self.generator).to(labels.device)
            for chosen in order.split(self.text_batch):
                loss = self.text_loss(learned, images[chosen], labels[chosen], anchors)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        return self._encoded(learned.detach())

    def text_loss(self, learned: Tensor, images: Tensor, labels: Tensor, anchors: Tensor | None) -> Tensor:
        """Compute stage 1's loss for image features (B, dim); ``anchors`` (C, dim) are the text teacher's features."""
        loss = pad_image_text_loss(images, self.text(learned[labels]), labels)
        if anchors is None:
            return loss
        present = labels.unique()
        others = torch.ones(len(anchors), dtype=torch.bool, device=labels.device)
        others[present] = False
        absent = others.nonzero()[:, 0]
        order = torch.randperm(len(absent), generator=self.generator).to(labels.device)
        compared = torch.cat([present, absent[order[: self.negatives]]])
        anchored = pad_text_anchor_loss(images, self.text(learned[compared]), anchors[compared])
        return loss + self.anchor_weight * anchored

    @torch.no_grad()
    def _encoded(self, learned: Tensor) -> Tensor:
        return torch.cat([self.text(part) for part in learned.split(self.text_batch)])

    # ------------------------------------------------------------ stage 2

    def parameters(self) -> list[dict[str, Any]]:
        """Prompts, necks, heads, and the image tower (after the first task, only its last blocks)."""
        visual = self.backbone.visual.requires_grad_(False)
        blocks = visual.transformer.resblocks
        last = {each for block in blocks[max(len(blocks) - self.last_blocks, 0) :] for each in block.parameters()}
        trained = [each.requires_grad_() for each in self.unfrozen if not self.later or each in last]
        trained += [*self.necks.parameters(), *self.heads.parameters()]
        prompts: dict[str, Any] = {"params": list(self.prompts.parameters()), "weight_decay": 0.0}
        return [{"params": trained}, prompts | {"rate_factor": self.prompt_rates[self.later]}]

    def loss(self, batch: Batch) -> dict[str, Tensor]:
        """Compute the loss terms of stage 2."""
        self.averaged = False
        rows = torch.searchsorted(self.labels, batch.labels)
        labels = rows.to(self.model.mean.device, non_blocking=True)
        levels = self._levels(self.model(batch.images))
        logits = levels[2] @ self.bank.T  # (B, identities)
        heads = zip(self.heads, self.necks, levels[1:], strict=True)
        triplets = [batch_hard_triplet_loss(each, labels, margin=self.margin) for each in levels]
        terms = {
            "softmax": torch.stack([self._cross_entropy(head(neck(each)), labels) for head, neck, each in heads]).sum(),
            "triplet": torch.stack(triplets).sum(),
            "text": self._cross_entropy(logits, labels),
        }
        if self.average is not None:
            old = self._levels(self.average(batch.images))
            terms["distill"] = pad_viskd_loss(levels, old, logits, old[2] @ self.bank.T, **self.distillation)
        return terms

    def _cross_entropy(self, logits: Tensor, labels: Tensor) -> Tensor:
        return F.cross_entropy(logits, labels, label_smoothing=self.label_smoothing)

    def _levels(self, features: Tensor) -> tuple[Tensor, ...]:
        return features.split((self.widths[0], *self.widths), dim=1)

    def end_step(self, batch: Batch) -> None:
        """Update the teacher, a moving average of the network; with accumulated batches, once per update."""
        if self.average is not None and not self.averaged:
            self.averaged = True
            state = pad_ema(self.average.state_dict(), self.model.state_dict(), momentum=self.momentum)
            self.average.load_state_dict(state)

    def end_task(self, task: Task) -> None:
        """Discard the heads, the text features and the teacher of the task."""
        super().end_task(task)
        self.finished += 1
        self.average = None
        self.bank = self.bank[:0]
        self._new_heads(0)

    def _copy(self) -> Embedder:
        average = frozen_copy(self.model)
        assert isinstance(average.backbone, ClipFeatures)
        average.backbone.all_levels = True
        return average


def text_rate(epoch: int, epochs: int, base: float) -> float:
    """Compute the learning rate of stage 1 in an epoch (counted from 1): three warm-up epochs, then cosine decay."""
    if epoch < WARMUP:
        return FIRST_RATE + epoch * (base - FIRST_RATE) / WARMUP
    if epoch >= epochs:
        return LAST_RATE
    return LAST_RATE + (base - LAST_RATE) * (1 + math.cos(math.pi * epoch / epochs)) / 2

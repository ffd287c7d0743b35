"""PAD: its losses and prompts against loops, its two stages, and what it keeps; on a CLIP with random weights."""

import math
from pathlib import Path
from typing import Any

import clips
import pytest
import torch
import torch.nn.functional as F
from clips import tiny_clip
from fusing import steps_of
from synthetic_tasks import synthetic_task
from torch import Tensor
from torch.optim import SGD

from lreid.errors import ArgumentError
from lreid.losses import batch_hard_triplet_loss, pad_ema, pad_image_text_loss, pad_text_anchor_loss, pad_viskd_loss
from lreid.methods import build_method
from lreid.methods.pad import PAD, text_rate
from lreid.models import Embedder, build_backbone
from lreid.models.text_tower import BEFORE, LEARNED, TextTower

pytestmark = pytest.mark.slow  # open_clip takes seconds to import
OPTIONS: dict[str, Any] = {"text_epochs": 2, "first_text_epochs": 2, "slots": 5, "new_slots": 2, "chosen_slots": 2,
                           "prompt_length": 3, "last_blocks": 1, "negatives": 1, "text_batch": 5}  # fmt: skip
DOUBLE = torch.Generator().manual_seed(0)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=DOUBLE)


def made(**options: Any) -> PAD:
    torch.manual_seed(0)
    method = build_method("pad", Embedder(tiny_clip(), height=32, width=16), **(OPTIONS | options))
    assert isinstance(method, PAD)
    return method


def learn(method: PAD, index: int, steps: int = 2) -> list[dict[str, Tensor]]:
    method.begin_task(synthetic_task(index))
    method.model.train()
    optimizer = SGD(method.parameters(), lr=1e-4)
    history = []
    for batch in steps_of(index, steps):
        terms = method.loss(batch)
        optimizer.zero_grad()
        method.total(terms).backward()
        optimizer.step()
        method.end_step(batch)
        history.append(terms)
    return history


def test_stage_1_losses_match_loops() -> None:
    images, texts, anchors, labels = normal(5, 4), normal(5, 4), normal(5, 4), torch.tensor([0, 0, 1, 2, 2])
    total = 0.0
    for rows, columns in ((images, texts), (texts, images)):
        for i in range(5):
            products = [(rows[i] @ columns[j]).item() for j in range(5)]
            norm = math.log(sum(map(math.exp, products)))
            partners = [products[j] - norm for j in range(5) if labels[j] == labels[i]]
            total -= sum(partners) / len(partners) / 5
    assert pad_image_text_loss(images, texts, labels).item() == pytest.approx(total, abs=1e-9)
    total = 0.0
    for image in images:
        logits = [
            [7 * F.cosine_similarity(image, each, dim=0).item() / 0.07 for each in side] for side in (anchors, texts)
        ]
        old, new = (torch.tensor(each, dtype=torch.float64).log_softmax(0) for each in logits)
        total += 0.07**2 * sum(math.exp(a) * (a - b) for a, b in zip(old.tolist(), new.tolist(), strict=True)) / 5
    assert pad_text_anchor_loss(images, texts, anchors).item() == pytest.approx(total, abs=1e-9)
    assert pad_text_anchor_loss(images, texts, texts).item() == pytest.approx(0, abs=1e-9)
    for wrong in ((images, texts, anchors[:-1]), (images[:, :-1], texts, anchors)):
        with pytest.raises(ValueError, match="must"):
            pad_text_anchor_loss(*wrong)


def test_images_use_the_nearest_open_slots() -> None:
    method = made()
    pool, tokens = method.prompts, torch.randn(4, 6, method.widths[0])
    pool.begin_task(2)
    pool.begin_task(2)
    assert (pool.frozen, pool.open) == (2, 4)
    prompts = pool(1, tokens)
    for image in range(4):
        cosines = [F.cosine_similarity(tokens[image].mean(0), pool.keys[1, slot], dim=0).item() for slot in range(4)]
        nearest = sorted(range(4), key=lambda slot: -cosines[slot])[:2]
        wanted = torch.cat([pool.general[1], *(pool.experts[1, slot] for slot in nearest)])
        torch.testing.assert_close(prompts[image], wanted)
    prompts.sum().backward()
    assert not pool.experts.grad[1, :2].any() and not pool.experts.grad[:, 4:].any()
    pool.begin_task(2)
    assert (pool.frozen, pool.open) == (4, 5)  # no more


def test_stage_2_terms() -> None:
    method = made()
    learn(method, 0)
    method.end_task(synthetic_task(0))
    learn(method, 1)
    (batch,) = steps_of(1, 1)
    method.necks.eval(), method.model.eval()
    method.backbone.all_levels = True
    terms = method.loss(batch)
    levels, labels = method._levels(method.model(batch.images)), batch.labels - 4
    old = method._levels(method.average(batch.images))
    softmax = 0.0
    for head, neck, each in zip(method.heads, method.necks, levels[1:], strict=True):
        logs = (
            ((each - neck.running_mean) / (neck.running_var + 1e-5).sqrt() * neck.weight + neck.bias) @ head.weight.T
        ).log_softmax(1)
        for row, label in zip(logs, labels.tolist(), strict=True):
            softmax -= (0.9 * row[label] + 0.1 * row.mean()).item() / 12
    assert terms["softmax"].item() == pytest.approx(softmax, rel=1e-4)
    triplet = sum(batch_hard_triplet_loss(each, labels, margin=0.3).item() for each in levels)
    assert terms["triplet"].item() == pytest.approx(triplet, rel=1e-5)
    logs = (levels[2] @ method.bank.T).log_softmax(1)
    text = -(0.9 * logs[range(12), labels] + 0.1 * logs.mean(1)).mean().item()
    assert terms["text"].item() == pytest.approx(text, rel=1e-5)
    distill = pad_viskd_loss(levels, old, levels[2] @ method.bank.T, old[2] @ method.bank.T)
    assert terms["distill"].item() == pytest.approx(distill.item(), rel=1e-5)
    assert {name: method.weights.get(name, 1.0) for name in terms} == {
        "softmax": 0.25,
        "triplet": 1,
        "text": 1,
        "distill": 1,
    }


def test_later_tasks_train_prompts_and_last_blocks() -> None:
    method = made()
    assert "distill" not in learn(method, 0)[0] and method.average is None
    method.end_task(synthetic_task(0))
    before = {name: each.clone() for name, each in method.model.state_dict().items()}
    method.begin_task(synthetic_task(1))
    start = {name: each.clone() for name, each in method.average.state_dict().items()}
    assert all(torch.equal(each, start[name]) for name, each in method.model.state_dict().items())
    method.parameters()
    (batch,) = steps_of(1, 1)
    with torch.no_grad():
        for each in method.model.parameters():
            each += each.requires_grad
    method.end_step(batch)
    wanted = pad_ema(start, method.model.state_dict(), momentum=0.997)
    assert all(torch.equal(each, wanted[name]) for name, each in method.average.state_dict().items())
    method.end_step(batch)  # another batch of the same update (TRAIN.ACCUMULATE)
    assert all(torch.equal(each, wanted[name]) for name, each in method.average.state_dict().items())
    changed = {name for name, each in method.model.state_dict().items() if not torch.equal(each, before[name])}
    assert {name.split(".")[-1] for name in changed if "prompts" in name} >= {"general", "experts"}
    assert all("resblocks.1." in name for name in changed if "prompts" not in name) and any(
        "resbl" in x for x in changed
    )


def test_text_teacher_is_the_initial_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """The trap of the official code: without training the term is 0, whatever the tasks before have learned."""
    seen: list[Tensor | None] = []
    plain = PAD.text_loss

    def watched(self: PAD, learned: Tensor, images: Tensor, labels: Tensor, anchors: Tensor | None) -> Tensor:
        if not seen and anchors is not None:
            torch.testing.assert_close(anchors, self._encoded(learned.detach()))
        seen.append(anchors)
        return plain(self, learned, images, labels, anchors)

    monkeypatch.setattr(PAD, "text_loss", watched)
    for teacher, used in (("initial", True), ("none", False)):
        method = made(text_teacher=teacher)
        learn(method, 0, 0)
        assert all(each is None for each in seen) and len(seen) == 2 * math.ceil(12 / 5)
        method.end_task(synthetic_task(0))
        seen.clear()
        learn(method, 1, 0)
        assert [each is not None for each in seen] == [used] * len(seen)
        seen.clear()


def test_stage_1_moves_sentences_towards_their_images() -> None:
    method = made(first_text_epochs=30, first_text_rate=0.05)
    images = F.normalize(torch.randn(4, method.widths[1]), dim=1).repeat_interleave(3, 0)
    labels = torch.arange(4).repeat_interleave(3)
    trained = method.text_features(images, labels, 4)
    method.text_epochs = (0, 0)
    untrained = method.text_features(images, labels, 4)
    losses = [pad_image_text_loss(images, each[labels], labels).item() for each in (untrained, trained)]
    assert losses[1] < losses[0]


def test_stage_1_learning_rates() -> None:
    """Those of timm's CosineLRScheduler, with which the official code trains."""
    timm = pytest.importorskip("timm.scheduler.cosine_lr")
    optimizer = SGD([torch.nn.Parameter(torch.zeros(1))], lr=5e-3)
    schedule = timm.CosineLRScheduler(
        optimizer, t_initial=12, lr_min=1e-6, warmup_lr_init=1e-5, warmup_t=3, cycle_limit=1
    )
    for epoch in range(1, 13):
        schedule.step(epoch)
        assert text_rate(epoch, 12, 5e-3) == pytest.approx(optimizer.param_groups[0]["lr"])


def test_stage_2_learning_rates() -> None:
    method = made()
    for index, rate in ((0, 400.0), (1, 1000.0)):
        learn(method, index, 0)
        _, prompts = method.parameters()
        assert (prompts["rate_factor"], prompts["weight_decay"]) == (rate, 0.0)
        method.end_task(synthetic_task(index))


@pytest.mark.parametrize(
    ("options", "message"), [({"chosen_slots": 6}, "chosen_slots is 6"), ({"exemplars": 8}, "exemplars is 8")]
)
def test_pad_refuses_contradictory_options(options: dict[str, int], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        made(**options)


def test_frozen_layers_stay_frozen() -> None:
    torch.manual_seed(0)
    model = Embedder(tiny_clip(), height=32, width=16)
    model.freeze(1)
    method = PAD(model, **OPTIONS)
    before = model.backbone.visual.conv1.weight.clone()
    learn(method, 0)
    assert torch.equal(model.backbone.visual.conv1.weight, before)


def test_shift_of_the_necks_is_trained() -> None:
    """The official code trains all parameters of the necks, unlike CLIP-ReID's and BoT's."""
    method = made()
    learn(method, 0)
    assert all(neck.bias.any() for neck in method.necks)


def test_pad_refuses_networks_without_text_tower(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="backbone is small"):
        build_method("pad", Embedder("small"))


def test_features_equal_open_clip(tmp_path: Path) -> None:
    import open_clip

    name = clips.register()
    clip = open_clip.create_model(clips.NAME, force_image_size=32).eval()
    torch.save(clip.state_dict(), tmp_path / "clip.pt")
    model = Embedder(name, str(tmp_path / "clip.pt"), height=32, width=32).eval()
    images = torch.randn(3, 3, 32, 32)
    width = model.backbone.width
    with torch.no_grad():
        torch.testing.assert_close(model(images)[:, width:], clip.encode_image(images))
        tower = TextTower(model.backbone.clip.module)
        fixed = tower.embedding(tower.template)[BEFORE : BEFORE + LEARNED].expand(2, -1, -1)
        wanted = clip.encode_text(open_clip.tokenize(["A photo of a X X X X person."]))
        torch.testing.assert_close(tower(fixed), wanted.expand(2, -1))
    other = Embedder(name, str(tmp_path / "clip.pt"), height=32, width=16)  # a smaller grid
    assert other.backbone.visual.positional_embedding.shape[0] == 1 + 4 * 2
    assert torch.equal(other.backbone.clip.module.token_embedding.weight, clip.token_embedding.weight)


def test_position_embeddings_are_resampled_bilinearly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the official code of CLIP-ReID and PAD; for published weights and for a file."""
    import open_clip

    name, file = clips.register(), tmp_path / "clip.pt"
    clip = open_clip.create_model(clips.NAME)
    torch.save(clip.state_dict(), file)
    monkeypatch.setattr(open_clip, "list_pretrained_tags_by_model", lambda kind: [str(file)])
    first, *grid = clip.visual.positional_embedding.detach()
    wanted = F.interpolate(torch.stack(grid).T.reshape(1, -1, 4, 4), size=(6, 2), mode="bilinear")
    for model in (
        build_backbone(f"{name}.{file}", "hub", size=(48, 16)),
        Embedder(name, str(file), height=48, width=16).backbone,
    ):
        embeddings = model.visual.positional_embedding
        torch.testing.assert_close(embeddings, torch.cat([first[None], wanted[0].flatten(1).T]))
        assert torch.equal(model.visual.conv1.weight, clip.visual.conv1.weight)

"""Rows of the papers' tables: what a benchmark of real images and a method resolve to, against published figures."""

from pathlib import Path

import pytest

from lreid.build import load_run_config
from lreid.config import check_values, leaves, load_config
from lreid.config_keys import Config
from lreid.errors import InputError
from lreid.methods import method_class, method_names

ORDERS = ["lreid-order1-noduke", "lreid-order2-noduke", "lpw-order1"]
VEHICLES = ["veri776-10", "veri776-10-random"]
BENCHMARKS = [
    *("market1501-10", "market1501-10-random", "msmt17v1-10", "msmt17v2-10", "msmt17v2-10-random"),
    *ORDERS,
    *VEHICLES,
]


def keys(group: str, **values: object) -> dict[str, object]:
    """Keys of a group with their values."""
    return {f"{group}.{name}": value for name, value in values.items()}


IMAGENET = keys("MODEL", BACKBONE="resnet50", WEIGHTS="imagenet") | keys("INPUT", HEIGHT=256, WIDTH=128)
BOT_IMAGES = ["configs/augmentations/flip-crop10-erase.yaml"]
# DwoPP (BMVC 2022), supplement, section 1, and its official code: for the methods on the DMML loss.
DMML = {
    **IMAGENET,
    **keys("INPUT", PIPELINE=["configs/augmentations/flip-erase-growing.yaml"]),
    **keys("EPISODE", IDENTITIES=32, SUPPORT=5, QUERY=1),
    **keys("TRAIN", EPOCHS=600, FIRST_EPOCHS=0, EPOCH_COVERS="identities", EPOCH_STEPS=0, OPTIMIZER="adam", LR=2e-4),
    **keys("TRAIN", WEIGHT_DECAY=1e-4, SCHEDULE="exponential", RESTARTS=True, DECAY_START=0.5, END_FACTOR=0.005),
    **keys("TRAIN", WARMUP_EPOCHS=0),
}
# Bag of Tricks (2019), softmax_triplet.yml of its official code: for the methods on the softmax-triplet loss.
BOT = {
    **IMAGENET,
    **keys("INPUT", PIPELINE=BOT_IMAGES),
    **keys("BATCH", IDENTITIES=16, IMAGES=4),
    **keys("TRAIN", EPOCHS=120, FIRST_EPOCHS=0, EPOCH_COVERS="images", EPOCH_STEPS=0, OPTIMIZER="adam", LR=3.5e-4),
    **keys("TRAIN", WEIGHT_DECAY=5e-4, SCHEDULE="steps", RESTARTS=True, MILESTONES=[40, 70], STEP_FACTOR=0.1),
    **keys("TRAIN", WARMUP_EPOCHS=10),
    **keys("METHOD", MARGIN=0.3),
}
SMOOTHED = BOT | {"METHOD.LABEL_SMOOTHING": 0.1}
ONE_BY_ONE, AT_ONCE = {"BENCHMARK.JOINT": False}, {"BENCHMARK.JOINT": True}
PLUS, FREE = {"METHOD.EXEMPLARS": 500}, {"METHOD.EXEMPLARS": 0}
LWF = SMOOTHED | {"METHOD.TEMPERATURE": 2.0, "METHOD.DISTILLATION_WEIGHT": 1.0}

# Rows of Tables 1 and 2 of DwoPP.
ROWS = {
    "dmml_ft": DMML | {"METHOD.MARGIN": 0.4} | FREE,
    "dwpp": DMML | {"METHOD.TEMPERATURE": 10.0, "METHOD.DISTILLATION_WEIGHT": 1.0} | FREE,
    "dwopp": DMML | {"METHOD.TEMPERATURE": 1.0, "METHOD.DISTILLATION_WEIGHT": 1.0} | FREE,
    "ida": DMML | FREE,
    "erd": DMML | {"METHOD.EXEMPLAR_SHARE": 0.6} | PLUS,
    "joint": DMML | AT_ONCE | FREE,
    "bot_ft": SMOOTHED | FREE,
    "lwf": LWF | FREE,
    "pass_proto": SMOOTHED | {"METHOD.PROTOTYPE_WEIGHT": 10.0, "METHOD.ROTATE": True} | FREE,
    "aka": LWF | {"METHOD.STABILITY_WEIGHT": 5e-4, "METHOD.VERTICES": 64} | FREE,
    "bot_ft_plus": SMOOTHED | {"METHOD.EXEMPLAR_SHARE": 0.0} | PLUS,
    "lwf_plus": LWF | {"METHOD.EXEMPLAR_SHARE": 0.0} | PLUS,
    "icarl": BOT | {"METHOD.EXEMPLAR_SHARE": 0.0} | PLUS,
    "bot_joint": SMOOTHED | AT_ONCE | FREE,
}


# LSTKC (AAAI 2024), official code, whose schedule and images LSTKC++, DKP, DKP++ and DASK share.
LSTKC = {
    **IMAGENET,
    **keys("MODEL", POOLING="gem"),
    **keys("INPUT", PIPELINE=BOT_IMAGES),
    **keys("BATCH", IDENTITIES=32, IMAGES=4, OTHER_CAMERAS=True),
    **keys("TRAIN", EPOCHS=60, FIRST_EPOCHS=80, EPOCH_COVERS="images", OPTIMIZER="sgd", MOMENTUM=0.9, LR=0.008),
    **keys("TRAIN", WEIGHT_DECAY=1e-4, SCHEDULE="steps", RESTARTS=True, MILESTONES=[30], FIRST_EPOCH_NUMBER=0),
    **keys("TRAIN", STEP_FACTOR=0.1, WARMUP_EPOCHS=10),
    **keys("EVAL", METRIC="cosine"),
    **keys("METHOD", LABEL_SMOOTHING=0.0, SOFT_MARGIN=True),
}
EUCLIDEAN = {"EVAL.METRIC": "euclidean", "METHOD.NORMALIZE_TRIPLET": False}
HALF, MEASURED = {"METHOD.FUSION": 0.5, "METHOD.MEASURED_FUSION": False}, {"METHOD.MEASURED_FUSION": True}
# CLIP-ReID (AAAI 2023), vit_base.yml of its official code.
CLIP = BOT | {
    **keys("MODEL", BACKBONE="timm:vit_base_patch16_clip_quickgelu_224.openai", WEIGHTS="hub"),
    **keys("INPUT", MEAN=[0.5, 0.5, 0.5], STD=[0.5, 0.5, 0.5]),
    **keys("TRAIN", EPOCHS=60, LR=5e-6, BIAS_RATE=2.0, LAYER_DECAY=1.0, FROZEN_LAYERS=0, WEIGHT_DECAY=1e-4),
    **keys("TRAIN", MILESTONES=[30, 50], FIRST_MILESTONES=[], WARMUP_FACTOR=0.1),
    **keys("METHOD", LABEL_SMOOTHING=0.1, SOFT_MARGIN=False, NORMALIZE_TRIPLET=False, FUSION=1.0),
    **keys("METHOD", MEASURED_FUSION=False),
}
CONTROL = {"METHOD.MEASURED_FUSION": False, "METHOD.LATER_RATE": 1.0, "METHOD.ADAPT_NORM": False}  # a part alone
KL = {"METHOD.DISTILLATION_WEIGHT": 1.0, "METHOD.TEMPERATURE": 0.1}
DKP = LSTKC | HALF | {"MODEL.BACKBONE": "resnet50_layer3", "METHOD.SAMPLES": 6, "METHOD.TRIPLET_WEIGHT": 1.5}
PATCHES = {"PATCH": 0.1, "RELATION": 100.0, "CONFIDENCE": 1.0, "DIVERSITY": 0.5, "DISTILLATION": 1.0}
# PAD (CVPR 2026), pad.yml of its official code: the values that all data sets share, and those of the first one.
PAD = BOT | {
    **keys("MODEL", BACKBONE="open_clip:ViT-B-16-quickgelu.openai", WEIGHTS="hub"),
    **keys("INPUT", MEAN=[0.5, 0.5, 0.5], STD=[0.5, 0.5, 0.5]),
    **keys("TRAIN", EPOCHS=25, FIRST_EPOCHS=30, LR=5e-6, BIAS_RATE=1.0, LAYER_DECAY=1.0, WEIGHT_DECAY=1e-4),
    **keys("TRAIN", MILESTONES=[14, 22], FIRST_MILESTONES=[18, 26], FIRST_EPOCH_NUMBER=1, WARMUP_FACTOR=0.1),
    **keys("METHOD", LABEL_SMOOTHING=0.1, ID_WEIGHT=0.25, TEXT_WEIGHT=1.0, TEXT_EPOCHS=12, FIRST_TEXT_EPOCHS=20),
    **keys("METHOD", TEXT_BATCH=64, TEXT_RATE=5e-3, FIRST_TEXT_RATE=2e-3, PROMPT_RATE=1e3, FIRST_PROMPT_RATE=400.0),
    **keys("METHOD", SLOTS=36, NEW_SLOTS=8, CHOSEN_SLOTS=4, PROMPT_LENGTH=6, LAST_BLOCKS=4, MOMENTUM=0.997),
    **keys("METHOD", DISTILLATION_WEIGHT=0.5, TEMPERATURE=4.0, ANCHOR_WEIGHT=0.5, NEGATIVES=256),
    **keys("METHOD", TEXT_TEACHER="initial", NOUN="person"),
    **keys("EVAL", METRIC="cosine"),
}
NEWER_ROWS = {
    "lstkc_ft": LSTKC | ONE_BY_ONE | {"METHOD.FUSION": 1.0, "METHOD.MEASURED_FUSION": False},
    "lstkc_joint": LSTKC | AT_ONCE,
    "clip_ft": CLIP | ONE_BY_ONE,
    "pad": PAD | ONE_BY_ONE,
    "fused_ft": LSTKC | HALF | CONTROL,
    "later_rate_ft": LSTKC | CONTROL | {"METHOD.FUSION": 1.0, "METHOD.LATER_RATE": 0.1},
    "adapt_norm_ft": LSTKC | CONTROL | {"METHOD.FUSION": 1.0, "METHOD.ADAPT_NORM": True},
    "lstkc": LSTKC | MEASURED | KL | {"METHOD.NORMALIZE_TRIPLET": True},
    "lstkc_pp": LSTKC | MEASURED | KL | EUCLIDEAN | {"BATCH.IDENTITIES": 8, "BATCH.IMAGES": 8},
    "dkp": DKP | {"METHOD.TRANSFER_WEIGHT": 0.1},
    "dkp_pp": DKP
    | {"BATCH.IDENTITIES": 16, "METHOD.TRANSFER_WEIGHT": 1.5}
    | {"METHOD.DISTILLATION_WEIGHT": 0.75, "METHOD.BOTH_WEIGHT": 0.75},
    "dask": LSTKC | HALF | KL | EUCLIDEAN | {"METHOD.REHEARSAL_WEIGHT": 4.5},
    "patch_kd": {
        **keys("BATCH", IDENTITIES=32, IMAGES=4),
        **keys("TRAIN", EPOCHS=50, EPOCH_STEPS=150, OPTIMIZER="adam", LR=3.5e-4, WEIGHT_DECAY=5e-4),
        **keys("TRAIN", MILESTONES=[25, 35], FIRST_EPOCH_NUMBER=-1, RESTARTS=False),
        **keys("EVAL", METRIC="euclidean"),
        **keys("METHOD", PATCHES=3, TEMPERATURE=2.0, MARGIN=0.3, LABEL_SMOOTHING=0.1),
        **{f"METHOD.{name}_WEIGHT": value for name, value in PATCHES.items()},
    },
}


def resolved(cfg: Config) -> dict[str, object]:
    check_values(cfg)
    return dict(leaves(cfg))


@pytest.mark.parametrize("row", ROWS)
@pytest.mark.parametrize("benchmark", BENCHMARKS)
def test_one_command_reproduces_a_row(benchmark: str, row: str) -> None:
    wanted = ONE_BY_ONE | ROWS[row] | {"EVAL.FLIP": True, "EVAL.AP": "trapezoidal", "BENCHMARK.NAME": benchmark}
    if benchmark in VEHICLES:  # only flipped
        wanted |= {"INPUT.HEIGHT": 224, "INPUT.WIDTH": 224, "INPUT.PIPELINE": ["configs/augmentations/flip.yaml"]}
    found = resolved(load_run_config([benchmark], ["METHOD.NAME", row]))
    assert {key: found[key] for key in wanted} == wanted


@pytest.mark.parametrize("row", [*ROWS, *NEWER_ROWS])
def test_method_may_be_named_by_its_file(row: str) -> None:
    by_name = load_run_config(["market1501-10"], ["METHOD.NAME", row])
    for files in (
        ["configs/benchmarks/market1501-10.yaml", f"configs/methods/{row}.yaml"],
        [f"configs/methods/{row}.yaml", "market1501-10"],  # in any order
    ):
        assert load_run_config(files) == by_name


@pytest.mark.parametrize("row", ["dwopp", "bot_ft"])
@pytest.mark.parametrize(
    ("benchmark", "base", "backbone"),
    [
        ("market1501-10-osnet", "market1501-10", "torchreid:osnet_x1_0"),
        ("lreid-order1-osnet", "lreid-order1-noduke", "torchreid:osnet_ain_x1_0"),
    ],
)
def test_torchreid_networks_use_the_same_recipes(benchmark: str, base: str, backbone: str, row: str) -> None:
    small, large = (resolved(load_run_config([name], ["METHOD.NAME", row])) for name in (benchmark, base))
    assert small == large | {"BENCHMARK.NAME": benchmark, "MODEL.BACKBONE": backbone}


# No flip, and AP by rectangles; data/test_benchmark_files.py holds the data sets and numbers of identities.
PUBLISHED = {"EVAL.FLIP": False, "EVAL.AP": "rectangular", "EVAL.CAMERA_FILTER": True}


@pytest.mark.parametrize("benchmark", ["lreid-order1", "lreid-order2", "lreid-order1-noduke"])
@pytest.mark.parametrize("row", NEWER_ROWS)
def test_newer_methods_have_their_own_recipes(row: str, benchmark: str) -> None:
    wanted = NEWER_ROWS[row] | {"BENCHMARK.NAME": benchmark} | ({} if "noduke" in benchmark else PUBLISHED)
    found = resolved(load_run_config([benchmark], ["METHOD.NAME", row]))
    assert {key: found[key] for key in wanted} == wanted


def test_akas_schedule_is_available() -> None:
    """50 epochs of 150 batches of 16 x 4; its one step, in epoch 25, is in the first task (official code)."""
    found = resolved(load_run_config(["lreid-order1-noduke"], ["METHOD.NAME", "aka", "METHOD.RECIPE", "aka"]))
    wanted = keys("TRAIN", EPOCHS=50, EPOCH_STEPS=150, LR=3.5e-4, WEIGHT_DECAY=5e-4, SCHEDULE="steps", MILESTONES=[25])
    wanted |= keys("TRAIN", STEP_FACTOR=0.1, RESTARTS=False, WARMUP_EPOCHS=0) | keys("BATCH", IDENTITIES=16, IMAGES=4)
    wanted |= keys("INPUT", PIPELINE=BOT_IMAGES)
    assert {key: found[key] for key in wanted} == wanted


@pytest.mark.parametrize("name", method_names())
def test_episode_methods_use_dmmls_recipe(name: str) -> None:
    recipe = load_config(["market1501-10"], ["METHOD.NAME", name]).METHOD.RECIPE
    by_episodes = method_class(name).batches == "episodes"
    assert (recipe == "dmml") == by_episodes, "set RECIPE in its file of configs/methods"


def test_user_keys_override_recipes(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("_BASE_: recipes/{METHOD.RECIPE}\nTRAIN: {LR: 1e-5}\nSEED: 4\n")
    for method, epochs in (("lwf", 120), ("dwopp", 600)):
        cfg = load_run_config([tmp_path / "mine.yaml"], ["METHOD.NAME", method, "TRAIN.WARMUP_EPOCHS", "3"])
        assert (1e-5, 4, 3, epochs) == (cfg.TRAIN.LR, cfg.SEED, cfg.TRAIN.WARMUP_EPOCHS, cfg.TRAIN.EPOCHS)
    swapped = load_run_config(["market1501-10"], ["METHOD.NAME", "lwf", "METHOD.RECIPE", "dmml"])
    assert (swapped.METHOD.RECIPE, swapped.TRAIN.EPOCHS, swapped.BATCH.IMAGES) == ("dmml", 600, 6)
    (tmp_path / "method.yaml").write_text("METHOD: {NAME: bot_ft, RECIPE: aka}\n")
    assert load_run_config([tmp_path / "method.yaml", "market1501-10"]).TRAIN.EPOCH_STEPS == 150
    with pytest.raises(InputError, match="^METHOD.RECIPE is 'botty', .* bot$"):
        load_config(["market1501-10"], ["METHOD.RECIPE", "botty"])


def test_recipes_apply_only_to_benchmarks_of_real_images() -> None:
    plain, bot = (load_config(["synthetic-domains"], ["METHOD.NAME", name]) for name in ("dwopp", "bot_ft"))
    assert plain.TRAIN == bot.TRAIN and plain.INPUT == bot.INPUT

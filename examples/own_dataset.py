"""Read a data set in your own layout, and train on it task by task.

    python examples/own_dataset.py

Images in one folder per person, or listed in a CSV file, need no code: see docs/tutorials/custom-data.md.
"""

import tempfile
from pathlib import Path

from PIL import Image

from lreid.config import load_config
from lreid.data.datasets import register_dataset
from lreid.data.records import DataSet, Record
from lreid.data.spec import Layout, Spec
from lreid.data.synthetic import draw
from lreid.training.run import train

CAMERAS = ("door", "gate", "yard")


def write_images(folder: Path) -> None:
    """Stands in for your own archive: shop/door/ann-0.png is Ann at the door."""
    for person in range(24):
        for camera in range(1, 4):
            for shot in range(2):
                file = folder / "shop" / CAMERAS[camera - 1] / f"person{person:02d}-{shot}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(draw(f"synthetic:market/0/{100 * person}/{camera}/{shot}")).save(file)


def read_shop(home: Path) -> DataSet:
    """Three lists of records. Files are sorted, so that the order of tasks is the same on every machine.

    Args:
        home: the folder of the data set.
    """
    train, query, gallery = [], [], []
    files = sorted(home.glob("*/*.png"))
    names = sorted({file.stem.split("-")[0] for file in files})
    for file in files:
        name, shot = file.stem.split("-")
        person = names.index(name)
        record = Record(str(file), person, CAMERAS.index(file.parent.name))
        if person < 16:  # training images
            train.append(record)
        elif shot == "0" and record.camid < 2:  # queried
            query.append(record)
        else:
            gallery.append(record)
    return DataSet("shop", tuple(train), tuple(query), tuple(gallery))


# Its name in BENCHMARK.TRAIN, and its folder below DATA.ROOT. In the package, SPECS of lreid/data/datasets/shop.py.
register_dataset(Spec(name="shop", read=read_shop, title="Shop", layout=Layout(["shop"], folders=CAMERAS)))

with tempfile.TemporaryDirectory() as folder:
    write_images(Path(folder))
    shop = read_shop(Path(folder) / "shop")
    print(f"{len(shop.train)} images to learn, {len(shop.query)} queries, {len(shop.gallery)} in the gallery")
    settings = f"""DATA.ROOT {folder} BENCHMARK.NAME shop BENCHMARK.TRAIN ['shop'] BENCHMARK.TASKS_PER_DATASET 2
        EPISODE.IDENTITIES 8 EPISODE.SUPPORT 3 TRAIN.EPOCHS 5 INPUT.HEIGHT 32 INPUT.WIDTH 16 DEVICE cpu"""
    results = train(load_config(overrides=settings.split()), Path(folder) / "run")
for task, row in zip(results["tasks"], results["mAP"], strict=True):
    print(f"after {task}: mAP {row[0]:.1f}")

"""VIPeR (Gray et al., Evaluating Appearance Models for Recognition, Reacquisition, and Tracking, PETS 2007).

    datasets/viper/VIPeR/{cam_a,cam_b}/      000_45.bmp …      (632 images each)

The authors' page is often offline. lreid makes 20 splits: it divides the people into halves ten times, and each
division gives two splits. Queries come from camera A in the first split of a division, and from camera B in the second.
"""

from pathlib import Path

from lreid.data.layout import random_half, read_folder, split_by_identity
from lreid.data.spec import DataSet, Layout, Spec, published
from lreid.errors import InputError

FOLDERS = {1: "cam_a", 2: "cam_b"}
EXAMPLE = "000_45.bmp"  # person 0, seen from 45 degrees
PATTERN = r"(?P<pid>\d+)_\d+"


def read(home: Path, *, split: int = 0, seed: int = 0) -> DataSet:
    """Read one of 20 random splits of VIPeR; splits ``2 k`` and ``2 k + 1`` have the same test people.

    VIPeR has no official split. lreid draws the splits with a fixed seed; other toolkits draw random splits without a
    seed.
    """
    views = [read_folder(home / folder, PATTERN, EXAMPLE, camid=camid) for camid, folder in FOLDERS.items()]
    pids = [{record.pid for record in view} for view in views]
    if pids[0] != pids[1]:
        unpaired = min(pids[0] ^ pids[1])
        raise InputError(f"VIPeR: person {unpaired} is only in cam_a or cam_b of {home}; unpack the archive again")
    trained = random_half(pids[0], seed=[seed, split // 2])
    return split_by_identity("viper", trained, views[0] + views[1], views[split % 2], views[1 - split % 2])


SPECS = (
    Spec(
        name="viper",
        read=read,
        title="VIPeR",
        source="https://vision.soe.ucsc.edu/node/178",
        layout=Layout(("viper/VIPeR", "VIPeR", "viper"), tuple(FOLDERS.values())),
        splits=20,
        published=published(train=(316, 632), query=(316, 316), gallery=(316, 316), cameras=2),
    ),
)

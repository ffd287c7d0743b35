"""SenseReID (Zhao et al., Spindle Net, CVPR 2017).

    datasets/sensereid/SenseReID/{test_probe,test_gallery}/      00001_0.jpg …      (1040 and 3388 images)

SenseReID is only for testing. Most people in the gallery do not occur in any query.
"""

from pathlib import Path

from lreid.data.layout import read_folders
from lreid.data.spec import DataSet, Layout, Spec, published

FOLDERS = {"query": "test_probe", "gallery": "test_gallery"}
EXAMPLE = "00001_0.jpg"  # person 1, camera 0
PATTERN = r"(?P<pid>\d+)_(?P<camid>\d+)"


def read(home: Path) -> DataSet:
    """Read SenseReID, which is only for testing."""
    return read_folders("sensereid", home, FOLDERS, PATTERN, EXAMPLE)


SPECS = (
    Spec(
        name="sensereid",
        read=read,
        title="SenseReID",
        source="https://drive.google.com/file/d/0B56OfSrVI8hubVJLTzkwV2VaOWM/view",
        layout=Layout(("sensereid/SenseReID", "SenseReID", "sensereid"), tuple(FOLDERS.values())),
        published=published(train=(0, 0), query=(522, 1040), gallery=(1717, 3388), cameras=2),
        remark="for testing only",
    ),
)

import numpy as np
import pytest
from PIL import Image

from lreid.data.custom import read_custom
from lreid.data.datasets import spec_of, specs
from lreid.data.inventory import check_dataset, counts, counts_table, faults
from lreid.data.records import DataSet, Record
from lreid.data.spec import COLUMNS
from lreid.errors import InputError


def touch(folder, names):
    """Files of one byte: enough to be listed."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names:
        (folder / name).write_bytes(b"x")


def make_viper(root):
    people = list(range(600)) + list(range(700, 732))
    touch(root / "viper/VIPeR/cam_a", [f"{pid:03d}_45.bmp" for pid in people])
    touch(root / "viper/VIPeR/cam_b", [f"{pid:03d}_90.bmp" for pid in people])


def make_prid(root):
    home = root / "prid2011/prid_2011/single_shot"
    touch(home / "cam_a", [f"person_{pid:04d}.png" for pid in range(1, 386)])
    touch(home / "cam_b", [f"person_{pid:04d}.png" for pid in range(1, 750)])


def of_four_images(folder, people, suffix):
    names = [f"{pid:04d}{image:03d}.{suffix}" for pid in range(1, people + 1) for image in range(1, 5)]
    return lambda root: touch(root / folder, names)


COMPLETE = {"viper": make_viper, "prid2011": make_prid}
COMPLETE |= {"ilids": of_four_images("ilids/i-LIDS_Pedestrian/Persons", 119, "jpg")}
COMPLETE |= {"cuhk01": of_four_images("cuhk01/campus", 971, "png")}


@pytest.mark.parametrize("name", COMPLETE)
def test_a_layout_of_the_published_size_is_complete(name, tmp_path):
    COMPLETE[name](tmp_path)
    (finding,) = check_dataset(name, tmp_path, files=True)
    assert (finding.status, finding.notes) == ("complete", [])
    found = counts(finding.data_set)
    for column, count in spec_of(name).published.items():
        assert found[column] == count
    text = counts_table([finding])
    for split in ("train", "query", "gallery"):
        assert f"{found[f'{split} identities']} / {found[f'{split} images']}" in text


@pytest.mark.parametrize("camera", ["", "camid"])
def test_unknown_cameras_are_not_counted(camera, tmp_path):
    touch(tmp_path, ["a.jpg", "b.jpg"])
    rows = [f"path,pid,split,{camera or 'remark'}", "a.jpg,7,query,north", "b.jpg,7,gallery,south"]
    (tmp_path / "shop.csv").write_text("\n".join(rows))
    (finding,) = check_dataset(f"csv:{tmp_path / 'shop.csv'}", tmp_path)
    assert counts(finding.data_set)["cameras"] == (2 if camera else 0)
    row = counts_table([finding]).splitlines()[-1].split()
    assert row[-1] == ("2" if camera else "none")


@pytest.mark.parametrize(("names", "cameras"), [("01_{}.png", 0), ("c{}_1.png", 2)])
def test_table_counts_the_cameras_of_a_folder(names, cameras, tmp_path):
    for person in ("anna", "ben", "carl", "dora"):
        touch(tmp_path / "shop" / person, [names.format(shot) for shot in (1, 2)])
    (finding,) = check_dataset(f"own:{tmp_path / 'shop'}", tmp_path)
    assert counts(finding.data_set)["cameras"] == cameras == len(read_custom(tmp_path / "shop")[0].cameras)


def test_every_difference_is_named(tmp_path):
    make_prid(tmp_path)
    home = tmp_path / "prid2011/prid_2011/single_shot"
    (whole,) = check_dataset("prid2011", tmp_path)
    trained, asked = whole.data_set.train[0].pid, whole.data_set.query[0].pid
    for pid in (trained, asked, 749):
        (home / f"cam_b/person_{pid:04d}.png").unlink()
    touch(home / "cam_b", ["person_0750.png", "person_0751.png", "person_0752.png"])
    (home / f"cam_a/person_{trained:04d}.png").write_bytes(b"")
    (finding,) = check_dataset("prid2011", tmp_path, files=True)
    assert finding.status == "different"
    assert finding.notes == [
        "train images: 199, published 200 (1 missing)",
        "gallery identities: 650, published 649 (1 too many)",
        "gallery images: 650, published 649 (1 too many)",
        f"1 image unreadable, the first: {home}/cam_a/person_{trained:04d}.png: image file is empty (0 bytes)",
        "1 of 100 queries have no image of their identity in the gallery",
    ]
    assert counts_table([finding]).count("prid2011: ") == 5


def test_missing_and_broken_sets_differ(tmp_path):
    (missing,) = check_dataset("viper", tmp_path)
    assert missing.status == "missing"
    assert missing.notes == [f"expected in {tmp_path / 'viper/VIPeR'} or {tmp_path / 'VIPeR'} or {tmp_path / 'viper'}"]
    (tmp_path / "viper/VIPeR/cam_a").mkdir(parents=True)
    (broken,) = check_dataset("viper", tmp_path)
    assert broken.status == "broken"
    assert "lacks cam_b/" in broken.notes[0]


def test_protocol_of_custom_data_is_checked(tmp_path):
    touch(tmp_path, ["a.jpg", "b.jpg", "c.jpg"])
    rows = ["path,pid,camid,split", "a.jpg,1,0,train", "b.jpg,2,0,query", "c.jpg,2,1,gallery"]
    (tmp_path / "shop.csv").write_text("\n".join(rows))
    (finding,) = check_dataset("csv:shop.csv", tmp_path, files=True)
    assert (finding.name, finding.status, finding.notes) == ("shop", "there", [])
    (tmp_path / "shop.csv").write_text("\n".join(rows).replace("2,1,gallery", "2,0,gallery"))
    (finding,) = check_dataset("csv:shop.csv", tmp_path)
    assert finding.status == "different"
    assert "1 of 1 queries have matches only from their own camera" in finding.notes[0]


def test_folder_too_small_for_training_can_be_searched(tmp_path, make_images):
    make_images(tmp_path, [f"{name}/1.jpg" for name in ("anna", "ben", "carla")])
    (finding,) = check_dataset(f"own:{tmp_path}", tmp_path, files=True)
    assert finding.status == "there" and counts(finding.data_set)["gallery identities"] == 3
    with pytest.raises(InputError) as error:
        read_custom(tmp_path)
    assert str(error.value) == f"{tmp_path}: {finding.notes[0]}"


def test_unknown_and_synthetic_sets_are_refused(tmp_path):
    for name in ("vipre", "synthetic:plaza"):
        with pytest.raises(InputError, match=name):
            check_dataset(name, tmp_path)


def test_table_names_each_folder_once(tmp_path):
    assert all(set(spec.published) <= set(COLUMNS) for spec in specs().values())
    text = counts_table([finding for name in specs() for finding in check_dataset(name, tmp_path)])
    assert "cuhk03_classic_detected_single_shot, cuhk03_classic_labeled_single_shot: expected in" in text
    assert all(len([line for line in text.splitlines() if line.startswith(f"{name} ")]) >= 1 for name in specs())


def test_counts():
    data_set = DataSet(
        "x", (Record("a", 1, 0), Record("b", 1, 1)), (Record("c", 2, 0),), (Record("d", 2, 3), Record("e", 0, 3))
    )
    assert [*counts(data_set).values()] == [1, 1, 2, 2, 1, 2, 3]  # identities and images of each split; cameras


def test_faults_of_a_protocol():
    train = (Record("a", 5, 0),)
    query = (Record("b", 5, 0), Record("c", 6, 0), Record("d", 7, 1))
    gallery = (Record("e", 5, 0), Record("f", 7, 1), Record("g", 7, 2))
    notes = faults(DataSet("x", train, query, gallery))
    assert notes[0] == "1 identity in training and in a test split, for instance 5"
    assert notes[1] == "1 of 3 queries have no image of their identity in the gallery"
    assert notes[2].startswith("1 of 3 queries have matches only from their own camera")
    nowhere = [tuple(record._replace(camid=-1) for record in records) for records in (query[:1], gallery[:1])]
    assert faults(DataSet("x", (), *nowhere)) == []  # cameras that are not known leave out no match
    assert faults(DataSet("x", train, query[:1], gallery[2:]), renumbered=True) == [
        "1 of 1 queries have no image of their identity in the gallery"
    ]


def test_queries_with_the_pixels_of_a_gallery_image_are_counted(tmp_path):
    rng = np.random.default_rng(0)
    lines = ["path,pid,camid,split"]
    for place, split in enumerate(["query"] * 3 + ["gallery"] * 3):
        Image.fromarray(rng.integers(0, 256, (8, 4, 3), np.uint8)).save(tmp_path / f"{place}.png")
        lines.append(f"{place}.png,{place % 3},{place // 3},{split}")
    (tmp_path / "list.csv").write_text("\n".join(lines))
    (finding,) = check_dataset(f"csv:{tmp_path / 'list.csv'}", tmp_path, files=True)
    assert not finding.notes
    Image.open(tmp_path / "4.png").save(tmp_path / "1.bmp")
    (tmp_path / "1.bmp").rename(tmp_path / "1.png")
    (finding,) = check_dataset(f"csv:{tmp_path / 'list.csv'}", tmp_path, files=True)
    (note,) = finding.notes
    assert note.startswith("1 of 3 queries") and note.endswith("1.png") and finding.status == "there"

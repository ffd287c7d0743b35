from __future__ import annotations

import html
import re

from PIL import Image

from lreid.data.contact_sheet import contact_sheet
from lreid.data.records import DataSet, Names, Record
from lreid.data.synthetic import load_synthetic


def test_shows_people_of_both_splits_and_needs_no_other_file():
    drawn = load_synthetic("plaza", train_identities=9, test_identities=4, images_per_identity=3, distractors=0, seed=0)
    page = contact_sheet([drawn], identities=3, images=2)
    assert page.count("<section>") == 6
    assert page.count("<img ") == 12
    assert set(re.findall(r'src="([^,]*),', page)) == {"data:image/jpeg;base64"}
    assert "http" not in page
    assert f"train: {len({r.pid for r in drawn.train})} identities" in page


def test_names_are_escaped_and_bad_images_are_grey(tmp_path):
    (tmp_path / "bad.jpg").write_bytes(b"no image")
    Image.new("RGB", (4, 8)).save(tmp_path / 'a"><b.png')
    records = (Record(str(tmp_path / "bad.jpg"), 1, 0), Record(str(tmp_path / 'a"><b.png'), 1, 0))
    page = contact_sheet([DataSet("<script>", records, records, records)])
    assert "<script>" not in page
    assert '"><b' not in page
    assert page.count('class="bad"') == 3
    assert page.count("<img ") == 3


def test_identities_and_cameras_keep_their_names():
    records = (Record("synthetic:plaza/0/1/1/0", 0, 0), Record("synthetic:plaza/0/1/2/0", 0, 1))
    names = Names({0: 'car_0002, "red" <b>'}, {0: "north", 1: "بوابة"})
    page = html.unescape(contact_sheet([DataSet("cars", records, records[:1], records[1:], names=names)]))
    assert page.count('<h3>car_0002, "red" <b> <small>') == 2
    for caption in ("train, camera north", "query, camera north", "gallery, camera بوابة"):
        assert f">{caption}<" in page

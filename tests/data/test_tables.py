import random
import unicodedata
from collections import Counter
from pathlib import Path

import pytest

from lreid.data import tables
from lreid.data.images import read_image
from lreid.errors import InputError

MISSING = ("nan", "NaN", "<NA>", "NaT", "None", "NA")
ROWS = [
    "b.jpg,10,left,train",
    "a.jpg,9,right,train",
    "c.jpg,100,left,query",
    "d.jpg,100,right,gallery",
    "e.jpg,-1,right,gallery",
]


@pytest.fixture
def write(tmp_path, make_images):
    def write(rows, header="path,pid,camid,split", encoding="utf-8"):
        make_images(tmp_path, [f"{letter}.jpg" for letter in "abcde"])
        file = tmp_path / "shop.csv"
        file.write_text("\n".join([header, *rows]) + "\n", encoding=encoding)
        return file

    return write


def short(records):
    return [(Path(path).name, pid, camid) for path, pid, camid in records]


def test_relabels_integers_by_value_and_drops_junk(write, tmp_path):
    (data_set,) = tables.load(write(ROWS))
    assert data_set.name == "shop"
    assert short(data_set.train) == [("a.jpg", 0, 1), ("b.jpg", 1, 0)]  # 9 < 10 < 100, left < right
    assert short(data_set.query) == [("c.jpg", 2, 0)]
    assert short(data_set.gallery) == [("d.jpg", 2, 1)]
    assert data_set.train[0].path == str(tmp_path / "a.jpg")


@pytest.mark.parametrize("junk", ["-1.0", "-01", " -1 ", "-1.", '"-1.00"'])
def test_junk_is_dropped_however_it_is_spelled(write, junk):
    assert tables.load(write([*ROWS[:4], ROWS[4].replace("-1", junk)])) == tables.load(write(ROWS))


@pytest.mark.parametrize("unknown", ["", "-1", "-1.0", " "])
def test_unknown_cameras_equal_a_missing_column(write, unknown):
    rows = [row.replace("left", unknown).replace("right", unknown) for row in ROWS]
    without = [row.replace(",left", "").replace(",right", "") for row in ROWS]
    for cameras in ("apart", "same"):
        expected = tables.load(write(without, header="path,pid,split"), cameras=cameras)
        assert tables.load(write(rows), cameras=cameras) == expected


@pytest.mark.parametrize("separator", [",", ";", "|"])
def test_lists_saved_by_excel_are_read(write, separator):
    header = "path,pid,camid,split"
    emptied = [f"{row},," for row in ROWS]
    assert tables.load(write(emptied, header=f"{header},,")) == tables.load(write(ROWS))
    marked = [row.replace(",", separator) for row in ROWS]
    written = write([header.replace(",", separator), *marked], header=f"sep={separator}\r")
    assert tables.load(written) == tables.load(write(ROWS))
    with pytest.raises(InputError, match="csv:4: pid"):
        tables.load(write([header, *ROWS[:1], "a.jpg,,left,train"], header="sep=,"))


def test_two_spellings_of_a_number_log_a_warning(write, caplog):
    (data_set,) = tables.load(write([*ROWS, "f.jpg,0100,right,gallery"]))
    assert len({record.pid for record in data_set.gallery}) == 2
    assert "'0100'" in caplog.text and "'100'" in caplog.text and len(caplog.records) == 1


@pytest.mark.parametrize("of_files", ["NFC", "NFD"])
def test_unicode_forms_of_paths_and_labels_do_not_matter(make_images, tmp_path, of_files):
    names = ["é.jpg", "ü.jpg", "ñ.jpg", "å.jpg"]
    make_images(tmp_path, [unicodedata.normalize(of_files, name) for name in names])
    rows = [f"{name},José {number // 2},ö,query" for number, name in enumerate(names)]
    rows = [unicodedata.normalize(("NFC", "NFD")[number % 2], row) for number, row in enumerate(rows)]
    rows[1:3] = [row.replace("query", "gallery") for row in rows[1:3]]
    (tmp_path / "a.csv").write_text("\n".join(["path,pid,camid,split", *rows]) + "\n", encoding="utf-8")
    (data_set,) = tables.load(tmp_path / "a.csv")
    images = data_set.query + data_set.gallery
    assert sorted(record.pid for record in images) == [0, 0, 1, 1] and {record.camid for record in images} == {0}
    assert data_set.names.identities == {0: "José 0", 1: "José 1"} and data_set.names.cameras == {0: "ö"}
    assert all(Path(record.path).exists() for record in images)


def test_relabels_other_ids_as_text(write):
    rows = ["a.jpg,p9,0,train", "b.jpg,p10,1,train", "c.jpg,x,10,query", "d.jpg,x,2,gallery"]
    (data_set,) = tables.load(write(rows))
    assert short(data_set.train) == [("a.jpg", 1, 0), ("b.jpg", 0, 1)]  # "p10" < "p9"
    assert short(data_set.query + data_set.gallery) == [("c.jpg", 2, 3), ("d.jpg", 2, 2)]  # 2 < 10


def test_identities_and_cameras_keep_their_names(write):
    strange = 'a "b", <c>\nd'
    quoted = strange.replace('"', '""')
    rows = ["a.jpg,0007,01,train", f'c.jpg,"{quoted}",بوابة,query', f'd.jpg,"{quoted}",01,gallery']
    (data_set,) = tables.load(write(rows))
    names, (query,), (gallery,) = data_set.names, data_set.query, data_set.gallery
    assert names.identity(query.pid) == names.identity(gallery.pid) == strange
    assert (names.camera(query.camid), names.camera(gallery.camid)) == ("cam بوابة", "cam 01")
    assert names.identity(data_set.train[0].pid) == "id 0007"


def test_identity_zero_is_a_person_like_any_other(write):
    rows = ["a.jpg,0,0,train", "c.jpg,1,0,query", "d.jpg,1,1,gallery"]
    (data_set,) = tables.load(write(rows))
    assert len(data_set.train) == 1


def test_one_data_set_a_domain_in_order_of_appearance(write):
    rows = [f"{path},{split},0,{split},zoo" for path, split in zip("abc", tables.SPLITS, strict=True)]
    rows += [f"{path},{split},0,{split},ark" for path, split in zip("xyd", tables.SPLITS, strict=True)]
    rows = [row.replace(",", ".jpg,", 1) for row in rows]
    zoo, ark = tables.load(write(rows, header="path,pid,camid,split,domain"))
    assert (zoo.name, ark.name) == ("zoo", "ark")
    # every domain counts its own identities: gallery 0, query 1, train 2
    assert short(zoo.train) == [("a.jpg", 2, 0)]
    assert short(ark.train) == [("x.jpg", 2, 0)]


def test_lists_of_oml_are_read(write):
    header = "label,path,split,is_query,is_gallery"
    rows = ["9,a.jpg,train,,", "10,b.jpg,train,True,True", "100,c.jpg,validation,True,0", "100,d.jpg,validation,,1.0"]
    (data_set,) = tables.load(write(rows, header=header))
    assert short(data_set.train) == [("a.jpg", 0, 0), ("b.jpg", 1, 0)]
    assert short(data_set.query + data_set.gallery) == [("c.jpg", 2, 0), ("d.jpg", 2, 1)]
    for query, gallery in (("1", "1"), ("", ""), ("yes", "0")):
        with pytest.raises(InputError, match="shop.csv:4: is_query"):
            tables.load(write([*rows[:2], f"100,c.jpg,validation,{query},{gallery}"], header=header))
    with pytest.raises(InputError, match="shop.csv:3: .*x_1"):
        tables.load(write([rows[0] + ",", rows[2] + ",5"], header=header + ",x_1"))


def test_lists_of_wildlife_datasets_are_read(write, caplog):
    rows = ["0,turtle_0,a.jpg,2020-01-01", "1,turtle_0,b.jpg,", "2,turtle_1,c.jpg,", "3,unknown,d.jpg,"]
    file = write(rows, header="image_id,identity,path,date")
    assert [(image.identity, Path(image.path).name) for image in tables.read_table(file, splits=False)] == [
        ("turtle_0", "a.jpg"),
        ("turtle_0", "b.jpg"),
        ("turtle_1", "c.jpg"),
    ]
    assert "1 images" in caplog.text
    with pytest.raises(InputError, match="lacks split.*own:"):
        tables.load(file)
    (image,) = tables.read_table(write(["a.jpg,7,turtle"], header="path,pid,identity"), splits=False)
    assert image.identity == "7"


def test_windows_paths_are_read(write, tmp_path):
    expected = tables.load(write(ROWS))
    (tmp_path / "im").mkdir()
    for letter in "abcde":
        (tmp_path / f"{letter}.jpg").rename(tmp_path / "im" / f"{letter}.jpg")
    (data_set,) = tables.load(write([rf"im\{row}" for row in ROWS]))
    assert [record.path for record in data_set.train] == [str(tmp_path / "im/a.jpg"), str(tmp_path / "im/b.jpg")]
    assert short(data_set.gallery) == short(expected[0].gallery)
    with pytest.raises(InputError, match="lies outside"):
        tables.load(write([rf"..\{row}" for row in ROWS]))
    (tmp_path / r"im\a.jpg").touch()  # a file of Linux may have one in its name
    (data_set,) = tables.load(write([rf"im\{row}" for row in ROWS]))
    assert str(tmp_path / r"im\a.jpg") in [record.path for record in data_set.train]


def test_the_same_list_in_another_form_is_the_same_data_set(write, tmp_path):
    expected = tables.load(write(ROWS))
    for divided_by in (";", "\t"):
        header, *rows = (row.replace(",", divided_by) for row in ("path,pid,camid,split", *ROWS))
        assert tables.load(write(rows, header=header)) == expected
    by_excel = [row.replace(",", ", ") for row in ROWS] + [""]
    assert tables.load(write(by_excel, encoding="utf-8-sig")) == expected
    shuffled = random.Random(3).sample(ROWS, len(ROWS))
    swapped = [f"{split},note,{path},{camid},{pid}" for path, pid, camid, split in (r.split(",") for r in shuffled)]
    assert tables.load(write(swapped, header="split,remark,path,camid,pid")) == expected
    assert tables.load(write([f"{tmp_path}/{row}" for row in ROWS])) == expected
    (tmp_path / "sub").mkdir()
    assert len(tables.load(write([f"sub/../{row}" for row in ROWS]))[0].train) == len(expected[0].train)


@pytest.mark.parametrize(("cameras", "numbers"), [("apart", [0, 0, 1]), ("same", [0, 0, 0])])
def test_without_cameras_the_policy_numbers_them(write, cameras, numbers):
    rows = ["a.jpg,1,train", "c.jpg,2,query", "d.jpg,2,gallery"]
    (data_set,) = tables.load(write(rows, header="path,pid,split"), cameras=cameras)
    assert [record.camid for record in (*data_set.train, *data_set.query, *data_set.gallery)] == numbers


def test_train_or_test_alone_is_enough(write):
    (train,) = tables.load(write(ROWS[:2]))
    assert len(train.train) == 2 and not train.query and not train.gallery
    (test,) = tables.load(write(ROWS[2:]))
    assert not test.train and len(test.query) == len(test.gallery) == 1


FAULTS = {
    "unknown split": (["a.jpg,1,0,test"], "csv:2: split is 'test'"),
    "too few values": ([*ROWS, "f.jpg,1,0"], "csv:7: 3 values"),
    "too many values": (["a.jpg,1,0,train,x"], "csv:2: 5 values"),
    "empty value": (["a.jpg,,0,train"], "csv:2: pid is empty"),
    "path twice": ([*ROWS, "./i//../a.jpg,9,right,train"], "csv:7: ./i//../a.jpg .*line 3"),
    "path twice, once absolute": ([*ROWS, "{folder}/c.jpg,100,right,gallery"], "csv:7: .*/c.jpg .*line 4"),
    "trained and tested": ([*ROWS, "f.jpg,9,right,query"], "csv:7: identity '9' .*query .*line 3"),
    "outside by a relative path": ([*ROWS, "../f.jpg,3,left,train"], "csv:7: ../f.jpg .*root='DIR'"),
    "outside by an absolute path": ([*ROWS, "/etc/f.jpg,3,left,train"], "csv:7: /etc/f.jpg "),
    "outside by its neighbour's name": ([*ROWS, "../{name}x/f.jpg,3,left,train"], "csv:7: .*outside"),
    "no query": (ROWS[:2] + ROWS[3:], "query split of shop"),
    "unknown camera next to known ones": ([*ROWS[1:], "b.jpg,10,,train"], "csv:6: .*camid.* line 2"),
    "camera -1 next to known ones": (["b.jpg,10,-1.0,train", *ROWS[1:]], "csv:2: .*camid.* line 3"),
    "identity of blanks": (['a.jpg,"  ",left,train', *ROWS[2:]], "csv:2: pid is empty"),
    **{f"identity {text}": ([f"a.jpg,{text},left,train", *ROWS[2:]], f"csv:2: pid is '{text}'") for text in MISSING},
    **{f"camera {text}": ([f"a.jpg,9,{text},train", *ROWS[2:]], f"csv:2: camid is '{text}'") for text in MISSING},
    "only junk in gallery": (ROWS[:3] + ROWS[4:], "gallery split of shop"),
    "no rows": ([], "no images"),
    "line after a blank one": ([ROWS[0], "", "a.jpg,1,0,test"], "csv:4: split"),
    "a column twice": (["path,pid,split,pid", "a.jpg,1,train,2"], "csv:1: .*pid"),
    "missing columns": (["path,camid"], "csv:1: .*lacks pid, split; .*path,camid$"),
    "empty domain": (["path,pid,camid,split,domain", "a.jpg,1,0,train,"], "csv:2: domain is empty"),
    "wrong base folder": ([f"images/{row}" for row in ROWS], "csv:2: .*images/b.jpg; .*root='DIR'"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_named(write, tmp_path, fault):
    rows, message = FAULTS[fault]
    rows = [row.replace("{name}", tmp_path.name).replace("{folder}", str(tmp_path)) for row in rows]
    header = {"header": rows.pop(0)} if rows and rows[0].startswith("path,") else {}
    with pytest.raises(InputError, match=message):
        tables.load(write(rows, **header))


def test_files_that_are_no_csv(tmp_path):
    (tmp_path / "empty.csv").touch()
    (tmp_path / "latin.csv").write_bytes("path,pid,camid,split\nJosé.jpg,1,0,train\n".encode("latin-1"))
    for name, fault in (("none.csv", "no such"), (".", "folder"), ("empty.csv", "empty"), ("latin.csv", "UTF-8")):
        with pytest.raises(InputError, match=f"{name}.*{fault}"):
            tables.load(tmp_path / name)


# domain: training images and identities, queries, gallery images, counted in index.csv
OMNIGLOT = {
    "Balinese": (280, 14, 40, 160),
    "Early_Aramaic": (260, 13, 36, 144),
    "Greek": (280, 14, 40, 160),
    "Japanese_(katakana)": (560, 28, 76, 304),
    "Korean": (480, 24, 64, 256),
    "Latin": (320, 16, 40, 160),
    "Sanskrit": (500, 25, 68, 272),
    "Tagalog": (200, 10, 28, 112),
}
VEHICLES = {
    "bus": (8, 4, 3, 3),
    "car": (250, 125, 16, 16),
    "motorcycle": (644, 322, 28, 28),
    "truck": (112, 56, 13, 13),
}


@pytest.mark.parametrize(("folder", "expected"), [("omniglot", OMNIGLOT), ("vehicles", VEHICLES)])
def test_real_data(shared_data, folder, expected):
    data_sets = tables.load(shared_data / folder / "index.csv")
    counts = {
        each.name: (len(each.train), len({r.pid for r in each.train}), len(each.query), len(each.gallery))
        for each in data_sets
    }
    assert counts == expected
    assert list(counts) == list(expected)
    for data_set in data_sets:
        assert {r.pid for r in data_set.query} == {r.pid for r in data_set.gallery}
        assert not {r.pid for r in data_set.query} & {r.pid for r in data_set.train}
        names = Counter(record.path for record in data_set.train + data_set.query + data_set.gallery)
        assert max(names.values()) == 1
        for record in (data_set.train[0], data_set.gallery[-1]):
            image = read_image(record.path, height=64, width=32)
            assert image.shape == (64, 32, 3)
            assert image.std() > 0

import pytest

from lreid.data import datasets
from lreid.data.datasets import Sources, files, load_datasets, register_dataset, spec_of, specs, split_count
from lreid.data.layout import read_folder
from lreid.data.records import DataSet, NotThere, Record
from lreid.data.spec import Layout, Spec
from lreid.errors import ArgumentError, InputError

CSV = """path,pid,camid,split,domain
a.jpg,1,0,train,cats
b.jpg,2,0,query,cats
c.jpg,2,1,gallery,cats
d.jpg,1,0,train,dogs
e.jpg,2,0,query,dogs
f.jpg,2,1,gallery,dogs
"""


@pytest.fixture
def root(tmp_path, make_images):
    make_images(tmp_path / "pets", [f"{letter}.jpg" for letter in "abcdef"])
    (tmp_path / "pets" / "index.csv").write_text(CSV)
    return tmp_path


def names(name, root):
    return [data_set.name for data_set in load_datasets(name, Sources(root))]


def test_csv_in_root_or_in_the_current_folder_or_absolute(root, tmp_path, monkeypatch):
    assert names("csv:pets/index.csv", root) == ["cats", "dogs"]
    assert names(f"csv:{root}/pets/index.csv", "elsewhere") == ["cats", "dogs"]
    monkeypatch.chdir(tmp_path / "pets")
    assert names("csv:index.csv", "elsewhere") == ["cats", "dogs"]
    with pytest.raises(InputError, match=f"pet.csv: .*{root}"):
        load_datasets("csv:pet.csv", Sources(root))


def test_domain_of_a_csv(root):
    assert names("csv:pets/index.csv#dogs", root) == ["dogs"]
    for name, named in (("pets/index.csv#dog", "dog; .*nearest name is dogs"), ("cats#index.csv#dogs", "cats: ")):
        with pytest.raises(InputError, match=named):
            load_datasets(f"csv:{name}", Sources(root))
    (root / "pets").rename(root / "pets#2")
    assert names("csv:pets#2/index.csv", root) == ["cats", "dogs"]
    assert names("csv:pets#2/index.csv#dogs", root) == ["dogs"]


def test_synthetic_gets_its_keywords():
    size = {"train_identities": 2, "test_identities": 1, "images_per_identity": 3}
    (data_set,) = load_datasets("synthetic:plaza", Sources(synthetic=size | {"seed": 3, "distractors": 0}))
    assert (len(data_set.train), len(data_set.query), len(data_set.gallery)) == (6, 2, 1)
    assert all("synthetic:plaza/3/" in record.path for record in data_set.train)


@pytest.mark.parametrize("name", specs())
def test_missing_data_set_names_its_location(name, tmp_path):
    """In, or as, the folder that an archive is unpacked in."""
    spec = specs()[name]
    source = "https://.*" if spec.source else "download the data set and unpack it there .*"  # withdrawn
    with pytest.raises(NotThere, match=f"no folder {tmp_path}.*{source}{tmp_path} is empty"):
        load_datasets(name, Sources(tmp_path, "same", split_seed=2), split=1)
    wanted = tmp_path / spec.folder
    assert any(place == wanted or wanted in place.parents for place in spec.layout.places(tmp_path))


@pytest.mark.parametrize(
    ("name", "nearest"), [("Market1501", "market1501"), ("msmt17v2", "msmt17_v2"), ("csv", "csv:PATH"), ("", "")]
)
def test_unknown_name_names_the_nearest(name, nearest):
    with pytest.raises(InputError, match=f"unknown data set; the nearest name is {nearest}"):
        load_datasets(name, Sources("datasets"))


@pytest.mark.parametrize("name", ["shop", "my/shop"])
def test_path_without_scheme_suggests_the_scheme(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir(parents=True)
    with pytest.raises(InputError, match=f"^{name}: .*own:{name}, or csv:{name} "):
        load_datasets(name)


@pytest.mark.parametrize("name", ["dukemtmc", "DukeMTMC-reID", "dukemtmcreid"])
def test_duke_is_withdrawn(name):
    with pytest.raises(InputError, match="withdrawn.*lreid-order1-noduke"):
        load_datasets(name, Sources("datasets"))


def test_options_reach_the_readers_that_take_them(tmp_path):
    def options(**kind):
        seen = {}

        def read(home, **options):
            seen.update(options)
            return DataSet("x", (), (), ())

        Spec(name="x", read=read, title="X", layout=Layout(["."]), **kind).load(
            tmp_path, split=3, seed=5, cameras="same"
        )
        return seen

    assert options() == {}
    assert options(splits=10) == {"split": 3, "seed": 5}
    assert options(cameras=False) == {"cameras": "same"}
    assert options(splits=2, cameras=False) == {"split": 3, "seed": 5, "cameras": "same"}


@pytest.fixture
def registry(monkeypatch):
    """What a test registers is gone afterwards."""
    monkeypatch.setattr(datasets, "_registered", {})


def test_custom_data_set_is_registered(registry, make_images, tmp_path):
    make_images(tmp_path / "shop", ["a.jpg"])

    def read(home):
        return DataSet("shop", (Record(str(home / "a.jpg"), 0, 0),), (), ())

    register_dataset(Spec(name="shop", read=read, title="Shop", layout=Layout(["shop"]), splits=1))
    (data_set,) = load_datasets("shop", Sources(tmp_path))
    assert data_set.train[0].path == str(tmp_path / "shop" / "a.jpg")
    with pytest.raises(InputError, match=f"Shop: no folder {tmp_path}/none/shop"):
        load_datasets("shop", Sources(tmp_path / "none"))
    register_dataset(Spec(name="shop", read=read, title="Shop", layout=Layout(["shop"]), splits=4))
    assert split_count("shop") == 4 and "shop" in specs()


def test_identities_as_text_are_refused(registry, make_images, tmp_path):
    make_images(tmp_path / "shop", ["a.jpg"])
    records = (Record(str(tmp_path / "shop" / "a.jpg"), "ann", 0),)
    spec = Spec(name="shop", read=lambda home: DataSet("shop", (), records, ()), title="Shop", layout=Layout(["shop"]))
    register_dataset(spec)
    with pytest.raises(InputError, match="a.jpg.*'ann'"):
        load_datasets("shop", Sources(tmp_path))


FILE = """
from lreid.data.layout import read_folders
from lreid.data.spec import Layout, Spec

FOLDERS = {"train": "learn", "query": "ask", "gallery": "find"}


def read(home):
    return read_folders("kiosk", home, FOLDERS, r"(?P<pid>\\d+)_c(?P<camid>\\d)", "0001_c1.jpg")


SPECS = (Spec(name="kiosk", read=read, title="Kiosk", layout=Layout(("kiosk",), tuple(FOLDERS.values()))),)
"""


def test_a_data_set_is_one_file(make_images, tmp_path, monkeypatch):
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "kiosk.py").write_text(FILE)
    for folder, name in (("learn", "0002_c1.jpg"), ("ask", "0007_c1.jpg"), ("find", "0007_c2.jpg")):
        make_images(tmp_path / "kiosk" / folder, [name])
    monkeypatch.setattr(datasets, "__path__", [*datasets.__path__, str(tmp_path / "package")])
    monkeypatch.setattr(datasets, "_modules", datasets._modules.__wrapped__)
    (data_set,) = load_datasets("kiosk", Sources(tmp_path))
    assert [record[1:] for record in (*data_set.train, *data_set.query, *data_set.gallery)] == [(2, 1), (7, 1), (7, 2)]


def test_built_in_names_cannot_be_registered(registry):
    with pytest.raises(ArgumentError, match="viper"):
        register_dataset(spec_of("viper"))


def test_names_of_data_sets_are_unique():
    names = [spec.name for module in files() for spec in module.SPECS]
    assert len(set(names)) == len(names)


PATTERNS = {
    module.__name__.rpartition(".")[2]: getattr(module, "PATTERN", None) or getattr(module, "S2_PATTERN", "")
    for module in files()
}
# Data set, a file name that fits its pattern, identity and camera; camera 9 is that of the folder.
FITTING = [
    ("market1501", "0002_c12s3_000451_03", 2, 12),
    ("market1501", "0000_c1s1_000151_01", 0, 1),
    ("lpw", "0002_c10s1_000451_03", 2, 10),
    ("dukemtmc_reid", "0001_c12_f0046182", 1, 12),
    ("veri776", "0001_c020_00016450_0", 1, 20),
    ("cuhk01", "0971004", 971, 4),
    ("cuhk02", "001_0001", 1, 9),
    ("cuhk03", "1_001_2_06", 1, 2),
    ("cuhk_sysu", "00001_s00012_0000003_0", 1, 9),
    ("grid", "0001_12_25004_107_32_106_221", 1, 12),
    ("ilids", "0001012", 1, 12),
    ("prid2011", "person_0001", 1, 9),
    ("sensereid", "00001_12", 1, 12),
    ("viper", "000_45", 0, 9),
]


@pytest.mark.parametrize(("data_set", "name", "pid", "camid"), FITTING)
def test_file_names_are_matched_as_a_whole(data_set, name, pid, camid, tmp_path):
    """A pattern that matched the start of a name took camera 12 for camera 1."""
    pattern = PATTERNS[data_set]
    folder_tells = None if "camid" in pattern else 9
    for number, suffix in enumerate((".jpg", ".JPEG", ".png", ".jfif")):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / f"{name}{suffix}").touch()
        assert read_folder(folder, pattern, "", camid=folder_tells) == [
            Record(str(folder / f"{name}{suffix}"), pid, camid)
        ]
    for odd in (f"{name} (1).jpg", f"{name}-copy.jpg", f"{name}.jpg.jpg", f"x{name}.jpg", f"{name}\n.jpg"):
        (tmp_path / odd).touch()
        with pytest.raises(InputError, match="unexpected name"):
            read_folder(tmp_path, pattern, "", camid=folder_tells)
        (tmp_path / odd).unlink()


def test_two_names_that_differ_by_their_suffix_are_refused(tmp_path):
    """Sets of ``.bmp`` and ``.png`` get copies in ``.jpg``, which would count twice."""
    for suffix in (".bmp", ".jpg"):
        (tmp_path / f"000_45{suffix}").touch()
    with pytest.raises(InputError, match="000_45.jpg.*000_45.bmp"):
        read_folder(tmp_path, PATTERNS["viper"], "", camid=1)

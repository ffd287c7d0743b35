from __future__ import annotations

import pytest

from lreid.data import datasets
from lreid.data.datasets import LOADERS, load_datasets
from lreid.data.records import DataSet
from lreid.errors import InputError

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
    return [data_set.name for data_set in load_datasets(name, root, {})]


def test_csv_in_root_or_in_the_current_folder_or_absolute(root, tmp_path, monkeypatch):
    assert names("csv:pets/index.csv", root) == ["cats", "dogs"]
    assert names(f"csv:{root}/pets/index.csv", "elsewhere") == ["cats", "dogs"]
    monkeypatch.chdir(tmp_path / "pets")
    assert names("csv:index.csv", "elsewhere") == ["cats", "dogs"]


def test_csv_one_domain(root):
    assert names("csv:pets/index.csv#dogs", root) == ["dogs"]
    with pytest.raises(InputError, match="no domain dog; the nearest is dogs"):
        load_datasets("csv:pets/index.csv#dog", root, {})


def test_csv_in_a_path_with_the_sign_of_a_domain(root):
    (root / "pets").rename(root / "pets#2")
    assert names("csv:pets#2/index.csv", root) == ["cats", "dogs"]
    assert names("csv:pets#2/index.csv#dogs", root) == ["dogs"]
    (root / "pets#2" / "index.csv").rename(root / "pets#2" / "in#dex.csv")
    assert names("csv:pets#2/in#dex.csv#dogs", root) == ["dogs"]
    with pytest.raises(InputError, match="cats: no such CSV file"):
        load_datasets("csv:cats#index.csv#dogs", root, {})


def test_csv_missing(root):
    with pytest.raises(InputError, match=f"pet.csv: no such CSV file, neither here nor in {root}"):
        load_datasets("csv:pet.csv", root, {})


def test_synthetic_gets_its_keywords(monkeypatch):
    seen = {}

    def load_synthetic(domain, **keywords):
        seen[domain] = keywords
        return DataSet(domain, (), (), ())

    monkeypatch.setattr(datasets, "load_synthetic", load_synthetic)
    (data_set,) = load_datasets("synthetic:plaza", "datasets", {"seed": 3, "distractors": 0})
    assert data_set.name == "plaza"
    assert seen == {"plaza": {"seed": 3, "distractors": 0}}


@pytest.mark.parametrize("name", LOADERS)
def test_every_published_data_set_says_where_it_is_expected(name, tmp_path):
    with pytest.raises(InputError, match=f"no folder {tmp_path}.*https://.*{tmp_path} is empty"):
        load_datasets(name, tmp_path, {})


@pytest.mark.parametrize(
    ("name", "nearest"), [("Market1501", "market1501"), ("msmt17v2", "msmt17_v2"), ("csv", "csv:PATH"), ("", "")]
)
def test_unknown_name_names_the_nearest(name, nearest):
    with pytest.raises(InputError, match=f"unknown data set; the nearest known is {nearest}"):
        load_datasets(name, "datasets", {})


@pytest.mark.parametrize("name", ["dukemtmc", "DukeMTMC-reID", "dukemtmcreid"])
def test_duke_is_withdrawn(name):
    with pytest.raises(InputError, match="withdrawn.*lreid-order1-noduke, lreid-order2-noduke and lpw-order1"):
        load_datasets(name, "datasets", {})


def test_options_reach_the_loaders_that_take_them(monkeypatch):
    seen = {}

    def loader(name):
        def load(root, **options):
            seen[name] = options
            return DataSet(name, (), (), ())

        return load

    monkeypatch.setattr(datasets, "LOADERS", {name: loader(name) for name in LOADERS})
    for name in LOADERS:
        load_datasets(name, "datasets", {}, split=3, split_seed=5, cameras="same")
    assert seen["market1501"] == {}
    assert seen["viper"] == {"split": 3, "seed": 5}
    assert seen["cuhk_sysu_sub"] == {"cameras": "same"}
    assert seen["vehicleid_large"] == {"split": 3, "seed": 5, "cameras": "same"}


@pytest.mark.parametrize("name", LOADERS)
def test_loaders_take_the_options_that_are_handed_to_them(name, tmp_path):
    with pytest.raises(InputError, match="no folder"):
        load_datasets(name, tmp_path, {}, split=1, split_seed=2, cameras="same")

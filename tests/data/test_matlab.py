import numpy as np
import pytest
from matlab_files import WRITERS, cells, write_old

from lreid.data.matlab import MatlabFile, read_matlab
from lreid.errors import InputError

IMAGE = np.arange(24, dtype=np.uint8).reshape(4, 2, 3)


@pytest.mark.parametrize("version", WRITERS)
def test_both_versions_give_the_same(tmp_path, version):
    file = tmp_path / "content.mat"
    inner = cells([[IMAGE, np.zeros((0, 0))], [IMAGE + 1, IMAGE + 2]])
    WRITERS[version](file, {"numbers": np.array([[1.0, 2, 3]]), "outer": cells([inner]), "names": cells(["ab", "c"])})
    with MatlabFile(file) as content:
        assert content["numbers"].tolist() == [[1, 2, 3]]
        people = content.value(content["outer"][0, 0])
        assert people.shape == (2, 2)
        assert np.array_equal(content.value(people[0, 0]), IMAGE)
        assert np.array_equal(content.value(people[1, 1]), IMAGE + 2)
        assert content.value(people[0, 1]).ndim < 3
        assert [content.text(cell) for cell in np.ravel(content["names"])] == ["ab", "c"]
        with pytest.raises(KeyError):
            content["nothing"]


def test_structs_of_older_files(tmp_path):
    write_old(tmp_path / "content.mat", {"person": {"idname": "p12", "scene": {"imname": "s1.jpg"}}})
    assert read_matlab(tmp_path / "content.mat")["person"]["scene"]["imname"] == "s1.jpg"


def test_damage_is_named(tmp_path):
    file = tmp_path / "content.mat"
    WRITERS["v7.3"](file, {"numbers": np.ones((9, 9))})
    file.write_bytes(file.read_bytes()[:700])
    with pytest.raises(InputError, match="content.mat: "):
        MatlabFile(file)
    file.write_bytes(b"something else entirely")
    with pytest.raises(InputError, match="content.mat: "), MatlabFile(file) as content:
        content["numbers"]
    with pytest.raises(InputError, match="content.mat: "):
        read_matlab(file)

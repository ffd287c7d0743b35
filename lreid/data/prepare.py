"""From the archives of their authors to the folders that the loaders read.

Every step can be stopped and started again: files that are whole are not made twice, and nobody takes a half for
a whole, since files get their names when they are complete, and folders of crops get theirs at the very end.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple

import numpy as np
from PIL import Image
from tqdm import tqdm

from lreid.data.datasets import LOADERS, cuhk03, cuhk_sysu
from lreid.data.datasets.layout import describe_folder, find_home
from lreid.data.datasets.matlab import MatlabFile, read_matlab
from lreid.data.images import FORMATS
from lreid.errors import InputError

logger = logging.getLogger("lreid")

CUHK03_RELEASE = "cuhk03_release/cuhk-03.mat"
ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz")


def folder_of(name: str) -> str:
    """The folder below ``DATA.ROOT`` that the archive of a data set is unpacked in."""
    for start, folder in (
        ("msmt17", "msmt17"),
        ("cuhk03", "cuhk03"),
        ("cuhk_sysu", "cuhk-sysu"),
        ("lpw", "lpw"),
        ("vehicleid", "vehicleid"),
        ("veri_wild", "veri_wild"),
        ("veri776", "veri"),
    ):
        if name.startswith(start):
            return folder
    return name


def prepare(name: str, root: Path, archives: Sequence[Path] = ()) -> None:
    """Unpacks the archives of a data set and makes its images ready.

    Archives that lie in the data set's own folder are found there unless some are named. CUHK03 is written out of
    its MATLAB file and CUHK-SYSU is cropped; all other sets need nothing but unpacking.

    Args:
        name: of a loader, see :data:`lreid.data.datasets.LOADERS`.
        root: where the data sets lie.
        archives: zip or tar files to unpack.

    Raises:
        InputError: the name is unknown, an archive is damaged or unsafe, the disk is full, or there is nothing
            to prepare from.
    """
    if name not in LOADERS:
        raise InputError(f"{name}: unknown data set; choose from {', '.join(LOADERS)}")
    if not archives and _loads(name, root):
        logger.info("%s: there already, nothing to prepare", name)
        return
    folder = root / folder_of(name)
    if not archives and not _is_released(name, root):
        files = folder.iterdir() if folder.is_dir() else ()
        archives = sorted(path for path in files if path.name.lower().endswith(ARCHIVES))
        if not archives:
            raise InputError(
                f"{name}: nothing to prepare: {describe_folder(folder)}; put the archive there or name it with "
                "--archive (docs/datasets.md says where to get it)"
            )
    for archive in archives:
        unpack(archive, folder)
    for start, convert in CONVERTERS.items():
        if name.startswith(start):
            convert(root)


def _loads(name: str, root: Path) -> bool:
    try:
        LOADERS[name](root)
    except InputError:
        return False
    return True


def _is_released(name: str, root: Path) -> bool:
    """Whether a data set that has to be converted is there as its authors release it."""
    releases = {
        "cuhk03": [f"{home}/{CUHK03_RELEASE}" for home in cuhk03.HOMES],
        "cuhk_sysu": [f"{home}/annotation" for home in cuhk_sysu.RELEASES],
    }
    return any(
        (root / place).exists() for start, places in releases.items() if name.startswith(start) for place in places
    )


def unpack(archive: Path, folder: Path) -> None:
    """Unpacks a zip or tar file into a folder, which is made.

    Nothing is written when any member would land outside the folder or is a link or a device. Members that are
    there already with their full size are passed over.

    Raises:
        InputError: the archive is missing, damaged, locked by a password, unsafe, of another kind, or larger than
            the space on the disk.
    """
    try:
        with _members(archive) as members:
            for member in members:
                _require_safe(archive, member)
            missing = [
                member
                for member in members
                if not (target := folder / member.name).is_file() or target.stat().st_size != member.size
            ]
            folder.mkdir(parents=True, exist_ok=True)
            wanted, free = sum(member.size for member in missing), shutil.disk_usage(folder).free
            if wanted > free:
                raise InputError(
                    f"{folder}: {wanted / 2**30:.1f} GiB to unpack, {free / 2**30:.1f} GiB free; free some space"
                )
            logger.info("%s: %d files, %d there already", archive, len(members), len(members) - len(missing))
            for member in tqdm(missing, desc=f"unpack {archive.name}", unit="file", disable=None):
                with member.open() as source:
                    _write(folder / member.name, partial(shutil.copyfileobj, source))
    except InputError:
        raise
    except FileNotFoundError:
        raise InputError(f"{archive}: no such archive; check the path") from None
    except RuntimeError as error:  # how zipfile reports a password
        raise InputError(f"{archive}: cannot be unpacked ({error}); unpack it by hand into {folder}") from None
    except Exception as error:  # damage shows in the many ways of two kinds of archives
        reason = " ".join(str(error).split()) or type(error).__name__
        raise InputError(f"{archive}: cannot be unpacked ({reason}); get it again if it is damaged") from None


class Member(NamedTuple):
    """A file in an archive."""

    name: str
    size: int  # bytes
    plain: bool  # neither a link nor a device
    open: Callable[[], Any]  # a readable binary file


@contextmanager
def _members(archive: Path) -> Iterator[list[Member]]:
    """The files of an open archive, without its folders."""
    if archive.is_dir():
        raise InputError(f"{archive}: is a folder; name the zip or tar file")
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as content:
            yield [
                Member(
                    info.filename.replace("\\", "/"),
                    info.file_size,
                    not stat.S_ISLNK(info.external_attr >> 16),
                    partial(content.open, info),
                )
                for info in content.infolist()
                if not info.is_dir()
            ]
        return
    with tarfile.open(archive) as tar:
        yield [
            Member(info.name, info.size, info.isfile(), partial(tar.extractfile, info))
            for info in tar
            if not info.isdir()
        ]


def _require_safe(archive: Path, member: Member) -> None:
    path = PurePosixPath(member.name.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or (path.parts and path.parts[0].endswith(":")):
        raise InputError(
            f"{archive}: holds {member.name!r}, which lies outside the folder it is unpacked in; nothing was "
            "unpacked: get the archive from its authors again"
        )
    if not member.plain:
        raise InputError(
            f"{archive}: holds the link or device {member.name!r}; nothing was unpacked: get the archive from its "
            "authors again"
        )


def prepare_cuhk03(root: Path) -> None:
    """Writes the images of ``cuhk-03.mat`` as PNG files, and its 20 classic test sets as JSON.

    Files are named as in the lists of the new protocol: pair of cameras, person, view and number, from 1:
    ``1_001_2_06.png``. The first five images of a person are by view 1, the others by view 2; empty ones are
    passed over.

    Raises:
        InputError: the file is missing, or not that of CUHK03.
    """
    home = find_home(root, cuhk03.HOMES, folders=[], files=[CUHK03_RELEASE], title="CUHK03", source=cuhk03.SOURCE)
    with MatlabFile(home / CUHK03_RELEASE) as content:
        try:
            for boxes in ("detected", "labeled"):
                with _folder_at_once(home / f"images_{boxes}") as folder:
                    if folder is not None:
                        _write_people(content, boxes, folder)
            test_sets = [content.value(cell).tolist() for cell in np.ravel(content["testsets"])]
            test_sets = [[[int(pair), int(person)] for pair, person in people] for people in test_sets]
        except (KeyError, IndexError, TypeError, ValueError) as error:
            raise InputError(
                f"{home / CUHK03_RELEASE}: is not the file of CUHK03, which has detected, labeled and testsets "
                f"({error}); get it again"
            ) from None
    _write(home / cuhk03.TEST_SETS, lambda file: file.write(json.dumps(test_sets).encode()))


def _write_people(content: MatlabFile, boxes: str, folder: Path) -> None:
    pairs = np.ravel(content[boxes])
    for pair, cell in enumerate(pairs, start=1):
        people = content.value(cell)  # (people, 10) cells
        progress = tqdm(people, desc=f"{boxes}, cameras {pair} of {len(pairs)}", unit="person", disable=None)
        for person, images in enumerate(progress, start=1):
            for number, image in enumerate(images, start=1):
                file = folder / f"{pair}_{person:03d}_{1 if number <= 5 else 2}_{number:02d}.png"
                if file.exists():
                    continue
                pixels = content.value(image)  # (H, W, 3) uint8
                if pixels.ndim == 3 and pixels.size:
                    _write_image(file, Image.fromarray(np.ascontiguousarray(pixels)), "PNG")


class Crop(NamedTuple):
    """A box in a scene of CUHK-SYSU."""

    scene: str
    box: tuple[int, int, int, int]  # left, top, right, bottom in pixels
    file: str


def prepare_cuhk_sysu(root: Path) -> None:
    """Crops the people of CUHK-SYSU into ``cuhksysu4reid/{train,query,gallery}``.

    Training crops come from ``Train.mat``, queries and galleries from ``TestG50.mat``: in the gallery are the boxes of
    the query's person, and scenes without any are passed over. Names and JPEG quality (75) are those of
    AKA's code: ``00012_s00345_0000067_0.jpg`` has person, scene, number of the crop and whether it is a hard one.

    Raises:
        InputError: an annotation or scene is missing or damaged.
    """
    home = find_home(
        root,
        cuhk_sysu.RELEASES,
        folders=["Image/SSM"],
        files=["annotation/test/train_test/Train.mat", "annotation/test/train_test/TestG50.mat"],
        title="CUHK-SYSU",
        source=cuhk_sysu.SOURCE,
    )
    with _folder_at_once(home / cuhk_sysu.CROPS) as folder:
        if folder is not None:
            for split, crops in _read_annotations(home / "annotation" / "test" / "train_test").items():
                _write_crops(crops, home / "Image" / "SSM", folder / split)


def _read_annotations(folder: Path) -> dict[str, list[Crop]]:
    """What to crop for every split; a crop's number is its place in the annotation."""
    file = folder / "Train.mat"
    try:
        train = []
        for person in _listed(read_matlab(file)["Train"]):
            name, _, scenes = person.values()  # by position, as AKA's code
            for scene in _listed(scenes):
                train.append((name, dict(zip(("imname", "idlocate", "ishard"), scene.values(), strict=True))))
        crops = {"train": _numbered(train)}
        file = folder / "TestG50.mat"
        tests = _listed(read_matlab(file)["TestG50"])
        crops["query"] = _numbered((test["Query"]["idname"], test["Query"]) for test in tests)
        crops["gallery"] = _numbered(
            (test["Query"]["idname"], appearance)
            for test in tests
            for appearance in _listed(test["Gallery"])
            if np.size(appearance["idlocate"])
        )
        return crops
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise InputError(f"{file}: is not the annotation of CUHK-SYSU ({error!r}); get it again") from None


def _numbered(boxes: Iterable[tuple[str, dict[str, Any]]]) -> list[Crop]:
    return [_crop(name, box, number) for number, (name, box) in enumerate(boxes)]


def _crop(name: str, box: dict[str, Any], number: int) -> Crop:
    left, top, width, height = (int(value) for value in np.ravel(box["idlocate"]))
    scene = str(box["imname"])
    if Path(scene).name != scene:
        raise ValueError(f"scene {scene!r} is no file name")
    hard = int(np.ravel(box["ishard"])[0])
    file = f"{int(name.removeprefix('p')):05d}_{Path(scene).stem}_{number:07d}_{hard}.jpg"
    return Crop(scene, (left, top, left + width, top + height), file)


def _write_crops(crops: Sequence[Crop], scenes: Path, folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    missing = [crop for crop in crops if not (folder / crop.file).exists()]
    with tqdm(total=len(crops), initial=len(crops) - len(missing), desc=folder.name, disable=None) as progress:
        for scene, in_scene in groupby(sorted(missing), key=lambda crop: crop.scene):
            try:
                with Image.open(scenes / scene, formats=FORMATS) as image:
                    image = image.convert("RGB")
            except Exception as error:  # a damaged file makes PIL's decoders raise nearly anything
                raise InputError(f"{scenes / scene}: cannot be read ({error}); get the archive again") from None
            for crop in in_scene:
                _write_image(folder / crop.file, image.crop(crop.box), "JPEG")
                progress.update()


CONVERTERS: dict[str, Callable[[Path], None]] = {"cuhk03": prepare_cuhk03, "cuhk_sysu": prepare_cuhk_sysu}


@contextmanager
def _folder_at_once(folder: Path) -> Iterator[Path | None]:
    """A folder to fill that gets its name when all is in it; None where it has it already."""
    if folder.is_dir():
        logger.info("%s: there already", folder)
        yield None
        return
    unfinished = folder.with_name(f"{folder.name}.unfinished")
    unfinished.mkdir(parents=True, exist_ok=True)
    yield unfinished
    for left_over in unfinished.rglob("*.part"):
        left_over.unlink()
    unfinished.rename(folder)


def _write(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Writes a file under another name and renames it when it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(f".{path.name}.part")
    try:
        with open(part, "wb") as file:
            write(file)
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def _write_image(path: Path, image: Image.Image, kind: str) -> None:
    try:
        _write(path, lambda file: image.save(file, kind))
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error}); free some space, then run this again") from None


def _listed(value: Any) -> list[Any]:
    """MATLAB's only element of a list, alone or in a list, as a list."""
    return [value] if isinstance(value, dict) else list(value)

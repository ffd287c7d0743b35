"""Commands whose process is killed, or whose disk fails, at one call; and what must hold afterwards."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import logging
import shutil
import signal
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import safetensors.torch
from disk_faults import DiskFaults
from example_files import synthetic_people, write_checkpoint, write_images, write_model_and_images
from PIL import Image
from processes import fork_process, wait_for_exit
from tiny import FEW, TINY, as_arguments, tiny_config
from zoo_entries import card_of, write_card

from lreid.apps.cli import run_command
from lreid.checkpoint import load_checkpoint, load_newest
from lreid.errors import InputError
from lreid.gallery import Gallery
from lreid.gallery.gallery import place_of
from lreid.serve.served_gallery import Absent, Conflict, ServedGallery
from lreid.training.run import train
from lreid.utils.files import leftovers
from lreid.utils.reading import read_json, read_tensors
from lreid.zoo import read_card, read_entry

# What is counted, besides kills and failures: each must be 0.
WRONG = ("lost", "damaged", "tracebacks", "leftovers", "resumes not bit-equal", "wrong exit status")
KEYS = FEW | {"DEVICE": "cpu", "BENCHMARK.TASKS_PER_DATASET": 2, "TRAIN.EPOCHS": 1, "TRAIN.CHECKPOINT_STEPS": 2}


@dataclass
class Counts:
    """Numbers of trials and of faults, with a line about each fault."""

    numbers: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)

    def wrong(self, what: str, about: str) -> None:
        self.numbers[what] += 1
        self.faults.append(f"{what}: {about}")

    def add(self, other: Counts) -> None:
        self.numbers += other.numbers
        self.faults += other.faults


def outcome(run: Path) -> Any:
    """Results and exact weights of the last task of a run, without times and the commit."""
    results = read_json(run / "results.json")
    for name in ("seconds", "images_per_second", "peak_memory_mib"):
        results.pop(name, None)
    results.get("versions", {}).pop("commit", None)
    last = max((run / "checkpoints").glob("task-*.pt"))
    weights = {name: each.numpy().tobytes() for name, each in read_tensors(last)["model"].items()}
    return results, weights


@dataclass(frozen=True)
class World:
    """The input of the commands: two models, images, and a finished run."""

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> World:
        write_model_and_images(folder, identities=2, images=3)
        for seed, name in enumerate(("model.pt", "other.pt")):
            write_checkpoint(folder / name, seed, MODEL__BACKBONE="few")
        drawn = synthetic_people(2, 3, distractors=1, place="station")
        write_images(folder / "more", drawn.gallery, "p{pid}/{number}.png")
        frames = write_images(folder / "frames", drawn.query[:1] + drawn.gallery[:1], "{number}.png")
        for hour in (8, 9):  # two tracklets, of one frame each
            width, height = Image.open(frames[0]).size
            (folder / "tracks.txt").write_text("".join(f"{i},{i},0,0,{width},{height},1\n" for i in (1, 2)))
            clip = f"{{video: frames, tracks: tracks.txt, start: 2026-03-02T0{hour}:00:00, rate: 1}}"
            (folder / f"{hour}.yaml").write_text(f"cameras: {{gate: {clip}}}\n")
        train(tiny_config(KEYS), folder / "run")
        state = load_checkpoint(folder / "model.pt")
        (folder / "model.safetensors").write_bytes(safetensors.torch.save(state["model"]))
        return cls(folder)

    def search(self, *words: object) -> list[str]:
        return ["search", *map(str, words)]

    def build(self, name: str, images: str = "g", model: str = "model.pt") -> None:
        words = ("--checkpoint", self.folder / model, "--device", "cpu")
        call(self.search("build", name, self.folder / images, *words), Path())


@contextlib.contextmanager
def within(folder: Path) -> Iterator[None]:
    """Change the current folder within a context."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        yield


def call(words: list[str], folder: Path) -> tuple[int, str]:
    """Run a command in a folder; return its exit status (1 for an exception) and standard error."""
    err, level = io.StringIO(), logging.root.level
    handlers = mock.patch.object(logging.root, "handlers", [])  # others write to other streams
    with handlers, contextlib.redirect_stderr(err), contextlib.redirect_stdout(io.StringIO()), within(folder):
        try:
            status = 0 if words[0] == "serve" else run_command(words[0], words[1:], prog="lreid")
            if words[0] == "serve":
                serve(*words[1:])
        except SystemExit as end:
            status = int(end.code or 0)
        except InputError as error:
            status = 2
            print(error, file=err)
        except Exception:
            traceback.print_exc()
            status = 1
    logging.root.setLevel(level)
    return status, err.getvalue()


def serve(name: str, change: str = "", image: str = "") -> None:
    """Start the server's gallery, and add an image or remove all that were uploaded for ``anna``."""
    served = ServedGallery(name, device="cpu")
    with contextlib.suppress(Conflict, Absent):  # the change was done before the kill
        if change == "add":
            served.add(Path(image).read_bytes(), "anna")
        elif change == "remove":
            served.remove(identity="anna")
        elif change == "undo":
            served.undo(str(served.info()["undo"]))


def uploaded(folder: Path) -> Any:
    """Names and identities of the images in the gallery; the stored files of uploaded ones must exist."""
    rows = [(Path(path), identity) for path, identity in galleries(folder)["people.gallery"][3]]
    stored = {path.name for path in (folder / "people.gallery.images").glob("*")}
    if lost := {path.name for path, _ in rows if path.parent.name.endswith(".images")} - stored:
        raise InputError(f"{lost}: a stored image is missing")
    return sorted((path.name, identity) for path, identity in rows)


def versions(folder: Path) -> Iterator[Gallery]:
    """Every version of every gallery in a folder, opened."""
    for name in ("people.gallery", "copy.gallery"):
        place = place_of(folder / name)
        for version in [place, *place.others()] if place.exists() else []:
            yield Gallery.load(version, unfinished=True)


def galleries(folder: Path) -> Any:
    """Paths, identities and model of every version of every gallery in a folder."""
    found = {}
    for named in versions(folder):
        labels, about = named.store.labels(), named.about
        rows = sorted(zip(labels.paths, labels.ids.tolist(), strict=True))
        found[Path(named.where).name] = (about.model, about.whole, about.threshold, tuple(rows))
    return found


def checked(folder: Path) -> Any:
    """The galleries, and the figures of ``lreid search check`` except times."""
    figures = folder / "checked" / "check.json"
    return galleries(folder) | {"check.json": read_json(figures)["today"] if figures.exists() else None}


def rewritten(folder: Path) -> None:
    """Save every version of every gallery again."""
    for named in versions(folder):
        named.save()


def linked(folder: Path) -> Any:
    """The content of ``identities.json``, and the names of its crops in the gallery."""
    with contextlib.suppress(FileNotFoundError):
        record = read_json(folder / "linked" / "identities.json")
        keys = {f"tracklets/{each['key']}" for each in record["tracklets"]}
        images = Gallery.load(folder / "linked" / "people.gallery").images()
        names = sorted((image.path, image.identity) for image in images if image.path.rpartition("/")[0] in keys)
        return {"identities.json": record, "people.gallery": names}
    return {"identities.json": None, "people.gallery": None}


def swept(folder: Path) -> None:
    """Run a command that deletes the files which the record of ``lreid link`` does not name."""
    assert call(["link", "remove", "linked", "--keep-days", "1e6"], folder) == (0, "")
    assert len(Gallery.load(folder / "linked" / "people.gallery").images()) == len(linked(folder)["people.gallery"])


def trained(folder: Path) -> Any:
    """The outcome of a finished run, None for others; requires a valid checkpoint if there are checkpoints."""
    load_newest(folder / "run" / "checkpoints")
    with contextlib.suppress(OSError):
        if len(read_json(folder / "run" / "results.json")["mAP"]) == 2:
            return outcome(folder / "run")
    return None


def entry(folder: Path) -> Any:
    """Hash and weights of the zoo entry."""
    card, state = read_entry(read_card(folder / "zoo" / "mine.json"))
    return card.sha256, {name: each.numpy().tobytes() for name, each in state.items()}


def downloaded(folder: Path) -> Any:
    """The complete downloads in the cache."""
    return {file.name: file.read_bytes() for file in (folder / "cache").glob("*.safetensors")}


def files(*names: str) -> Callable[[Path], Any]:
    """A function that returns the contents of files, None for missing ones."""
    return lambda folder: {name: (folder / name).read_bytes() if (folder / name).exists() else None for name in names}


@dataclass(frozen=True)
class Command:
    """A command line and what it changes.

    Attributes:
        words: the command line for :func:`call`.
        prepare: function that creates the initial files in the current folder.
        state: function that reads the state of a folder; an InputError means damage.
        parts: whether the command changes several things one after the other, each in one step.
        resumes: whether the same command resumes its interrupted work, of which a part may stay until then.
        rewrite: function that writes the files again and so deletes leftovers; None if the command itself does.
        orphans: files that may stay after a kill.
    """

    words: list[str]
    prepare: Callable[[], Any]
    state: Callable[[Path], Any]
    parts: bool = False
    resumes: bool = False
    rewrite: Callable[[Path], Any] | None = None
    orphans: frozenset[str] = frozenset()


def commands(world: World) -> dict[str, Command]:
    """All commands that write files, on small input."""
    there, device = world.folder, ("--device", "cpu")
    model, other = (("--checkpoint", there / name, *device) for name in ("model.pt", "other.pt"))
    weights = there / "model.safetensors"

    def gallery_command(prepare: Callable[[], Any], name: str, *words: object, **more: Any) -> Command:
        return Command(world.search(name, "people.gallery", *words), prepare, galleries, rewrite=rewritten, **more)

    def serve_command(change: str, prepare: Callable[[], Any]) -> Command:
        words = ["serve", "people.gallery", change, str(min((there / "more").rglob("*.png")))]
        return Command(words, prepare, uploaded, rewrite=lambda folder: call(words[:2], folder))

    def served() -> None:
        built()
        call(["serve", "people.gallery", "add", str(min((there / "more").rglob("*.png")))], Path())

    def emptied() -> None:
        served()
        call(["serve", "people.gallery", "remove"], Path())

    def link(hour: int) -> list[str]:
        words = ("link", "add", "linked", there / f"{hour}.yaml", *(model if hour == 8 else device))
        return [str(word) for word in (*words, "--threshold", 0.9999, "--raw")]

    def link_command(words: list[str], *hours: int) -> Command:
        def prepare() -> None:
            for hour in hours:
                assert call(link(hour), Path()) == (0, "")

        return Command(words, prepare, linked, parts=True, rewrite=swept)

    somebody = min(path.name for path in (there / "more").iterdir())

    def nothing() -> None:
        pass

    def built() -> None:
        world.build("people.gallery")

    def with_versions() -> None:
        world.build("people.gallery", "more")
        for version in ("next", "previous"):
            world.build(f"people.gallery.{version}", "more", "other.pt")

    def calibrated() -> None:
        built()
        call(world.search("calibrate", "people.gallery", there / "q", *device), Path())

    def reindexed() -> None:
        built()
        call(world.search("reindex", "people.gallery", *other), Path())

    def removed() -> None:
        with_versions()
        call(world.search("remove", "people.gallery", "--identity", somebody), Path())

    def published() -> None:
        Path("zoo").mkdir()
        card = write_card(Path("zoo/mine.json").absolute(), weights.read_bytes())
        card.weights.write_bytes(weights.read_bytes())

    def to_download() -> None:
        write_card(Path("mine.json").absolute(), weights.read_bytes(), url=weights.as_uri())

    def with_results() -> None:
        shutil.copytree(there / "run", "run")

    train_words = ["train", "--resume", "--out", "run", *as_arguments(TINY, KEYS)]
    query = world.search("query", "people.gallery", there / "q", "--out", "matches", *device)
    check = ("check", "people.gallery", "--new", there / "other.pt", "--images", there / "q", "--out", "checked")
    old_weights = f"zoo/{card_of(Path('mine.json'), weights.read_bytes()).weights.name}"
    publish = ["zoo", "publish", str(there / "run"), "mine", "--licence", "MIT", "--out", "zoo"]
    report = ["report", "run", "--html", "compared.html"]
    return {
        "build": gallery_command(nothing, "build", there / "g", *model),
        "add": gallery_command(built, "add", there / "more", *device),
        "remove": gallery_command(with_versions, "remove", "--identity", somebody, "--everywhere", parts=True),
        "rename": gallery_command(with_versions, "rename", somebody, "anna"),
        "undo": gallery_command(removed, "undo"),
        "calibrate": gallery_command(built, "calibrate", there / "q", *device),
        "query": Command(query, built, files("matches/matches.json", "matches/matches.html"), parts=True),
        "check": Command(world.search(*check, *device), calibrated, checked, parts=True),
        "reindex": gallery_command(built, "reindex", *other, resumes=True),
        "reindex-map": gallery_command(built, "reindex", *other, "--map", there / "more", "--force", resumes=True),
        "rollback": gallery_command(reindexed, "rollback", resumes=True),
        "migrate": gallery_command(built, "migrate", "copy.gallery"),
        "publish": Command(publish, published, entry, orphans=frozenset({old_weights})),
        "download": Command(["zoo", "download", "mine.json"], to_download, downloaded, resumes=True),
        "report": Command(report, with_results, files("run/report.html", "compared.html"), parts=True),
        "serve-add": serve_command("add", built),
        "serve-remove": serve_command("remove", served),
        "serve-undo": serve_command("undo", emptied),
        "link-first": link_command(link(8)),
        "link-add": link_command(link(9), 8),
        "link-merge": link_command(["link", "merge", "linked", "1", "2"], 8),
        "link-undo": link_command(["link", "undo", "linked"], 8, 9),
        "link-remove": link_command(["link", "remove", "linked", "--identity", "1"], 8, 9),
        "train": Command(train_words, nothing, trained, resumes=True),
    }


# Files of the user with names similar to lreid's; no command may change them.
STRANGERS = ("mine-0123456789ab.safetensors", "mine.json.orig", "people.gallery.old", "notes.part", "last.pt")
STRANGERS += (".people.gallery.0123abcd.lreid.txt", "people.gallery.unfinished")


@dataclass
class Trial:
    """A command that is repeated with one failing call each; ``folder`` is where it works."""

    name: str
    command: Command
    folder: Path

    def __post_init__(self) -> None:
        self.template = self.folder / f"{self.name}-before"
        self.template.mkdir(parents=True)
        with within(self.template):
            self.command.prepare()
        for folder, name in itertools.product(
            (self.template, *(self.template / each for each in ("zoo", "linked"))), STRANGERS
        ):
            if folder.is_dir():
                (folder / name).write_text(f"content of {name}")
        done = self._copy("after")
        with DiskFaults(done, None).patched() as faults:
            status, err = call(self.command.words, done)
        assert status == 0, err
        self.calls = faults.calls
        self.before, self.after = self.command.state(self.template), self.command.state(done)
        assert self.before != self.after
        self.names = names_in(self.template), names_in(done)
        self.strangers = [name for name in self.names[0] if Path(name).name in STRANGERS]

    def run(self, step: int = 1) -> Counts:
        """Kill the process at each call (or at every ``step``-th), and let the call fail; return the counts."""
        counts = Counts()
        numbers = range(0, len(self.calls), step)
        for number, kill in itertools.product(numbers, (True, False)):
            fault = "kill" if kill else ("EIO", "ENOSPC")[number // step % 2]
            here = self._copy(f"{number}-{fault}")
            self._once(here, number, fault, counts)
            shutil.rmtree(here)
        return counts

    def _copy(self, name: str) -> Path:
        to = self.folder / f"{self.name}-{name}"
        shutil.copytree(self.template, to)
        return to

    def _once(self, here: Path, number: int, fault: str, counts: Counts) -> None:
        command, answer = self.command, self.folder / f"{here.name}.answer"

        def act(number: int | None) -> None:
            with DiskFaults(here, number, fault).patched() as faults:
                status, err = call(command.words, here)
            answer.write_text(json.dumps([status, err, faults.failed]))

        killed = wait_for_exit(fork_process(lambda: act(number))) == -signal.SIGKILL
        status, err, failed = (None, "", ["kill"]) if killed else json.loads(answer.read_text())
        about = f"{self.name}, {fault} at call {number} of {len(self.calls)} ({self.calls[number : number + 1]}): {err}"
        counts.numbers[f"{'kills' if fault == 'kill' else 'failures'}"] += bool(failed)
        if status == 1 or "Traceback" in err or err.count("\n") > 1:
            counts.wrong("tracebacks", about)
        if not self._is_sound(here, counts, about):
            return
        names = names_in(here)
        found = command.state(here)
        if names_in(here) != names:
            counts.wrong("lost", f"{about}; reading changed {sorted(names_in(here) ^ names)}")
        if not killed:
            several = command.parts or command.resumes  # of which a message names one
            done = status == 0 or "done, but" in err
            if done != (found == self.after) and (status == 0 or not several):
                counts.wrong("wrong exit status", about)
        if found == self.after and command.rewrite:
            command.rewrite(here)
            self._count_leftovers(here, self.names[1], counts, about)
        else:
            wait_for_exit(fork_process(lambda: act(None)))
            status, err, _ = json.loads(answer.read_text())
            if status != 0:
                counts.wrong("lost", f"{about}; then {err}")
                return
            if not self._is_sound(here, counts, about):
                return
            if command.state(here) != self.after:
                counts.wrong("resumes not bit-equal" if self.name == "train" else "lost", about)
            self._count_leftovers(here, self.names[1] | command.orphans, counts, about)
        answer.unlink(missing_ok=True)

    def _is_sound(self, here: Path, counts: Counts, about: str) -> bool:
        """Whether everything can be opened and equals the state before or after the command."""
        try:
            found = self.command.state(here)
        except InputError as error:
            counts.wrong("damaged", f"{about}: {error}")
            return False
        for path in self.strangers:
            if not (here / path).is_file() or (here / path).read_bytes() != (self.template / path).read_bytes():
                counts.wrong("lost", f"{about}; {path} is not what it was")
                return False
        whole = found in (self.before, self.after)
        if self.command.parts or (self.command.resumes and isinstance(found, dict)):
            keys = (
                {"people.gallery"}
                if self.name in ("reindex", "reindex-map", "rollback")
                else {*self.before, *self.after}
            )
            whole = all(found.get(key) in (self.before.get(key), self.after.get(key)) for key in keys)
        if not whole:
            counts.wrong("lost", about)
        return whole

    def _count_leftovers(self, here: Path, expected: set[str], counts: Counts, about: str) -> None:
        if strange := leftovers_in(here) | (names_in(here) - expected):
            counts.wrong("leftovers", f"{about}: {sorted(strange)}")


def leftovers_in(folder: Path) -> set[str]:
    """Temporary files of ended processes."""
    return {str(path) for each in (folder, *folder.rglob("*")) if each.is_dir() for path in leftovers(each)}


def names_in(folder: Path) -> set[str]:
    """Relative paths of all files."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}

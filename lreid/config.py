"""Build a config: merge config files and command-line values with the defaults of :mod:`lreid.config_keys`.

A config file can extend other files, which it lists under ``_BASE_``. Each entry of ``_BASE_`` is a path relative to
the file, or the name of a config file of lreid. Later sources override earlier ones. lreid applies the files under
``_BASE_`` before the file that lists them. Benchmark files, which set ``BENCHMARK.TRAIN``, come before all other files,
and the ``KEY VALUE`` pairs of the command line come last. The placeholder ``{METHOD.RECIPE}`` in ``_BASE_`` stands for
the recipe of the chosen method, so that a benchmark trains each method as its paper does. The functions of
:mod:`lreid.build` pass values of the config to classes as plain arguments, because no class accepts a config.
"""

import ast
import logging
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from lreid.config_keys import FREE_KEYS, KEYS, Config, MethodSection, Section
from lreid.errors import InputError, nearest_name
from lreid.utils.extras import imported
from lreid.utils.reading import parse_yaml, read_text

logger = logging.getLogger("lreid")

CONFIGS = Path(__file__).parent / "configs"  # lreid's own files: benchmarks, methods, recipes, augmentations
BEFORE_PATH = re.compile(r"^(rotated:[^:]*:|dev:)*(csv:|folder:|own:|zoo:)?")
RECIPE = "{METHOD.RECIPE}"  # placeholder in _BASE_
COMMAND_LINE = "command line"  # name of the overrides in messages
ARGUMENTS = {  # config keys that replace names of arguments in errors, for lreid.errors.naming_keys
    "accuracy": "EVAL.ACCURACY",
    "backbone": "MODEL.BACKBONE",
    "batch_size": "EVAL.BATCH_SIZE",
    "cache_gib": "DATA.CACHE_GIB",
    "camera_filter": "EVAL.CAMERA_FILTER",
    "cameras": "BENCHMARK.CAMERAS",
    "device": "DEVICE",
    "index_device": "EVAL.INDEX_DEVICE",
    "index_float16": "EVAL.INDEX_FLOAT16",
    "resume": "--resume",
    "root": "DATA.ROOT",
    "skip_bad": "DATA.SKIP_BAD_IMAGES",
    "workers": "DATA.WORKERS",
}
CHOSEN = "what lreid chose"  # name in messages for keys that come from no file

Source = str | Path | Mapping[str, Any]  # a file, or keys by their full names
Layer = tuple[str, dict[str, Any]]  # name of a source in messages, and the keys that it sets, by their full names


def load_config(files: Sequence[Source] = (), overrides: Sequence[str] = (), *, report: bool = True) -> Config:
    """Build a config from the defaults, config files and ``KEY VALUE`` pairs; later values override earlier ones.

    Benchmark files come before all other files; apart from this, files are applied in the given order.

    Args:
        files: YAML files, or names of lreid's config files; each file may extend others under ``_BASE_``. The first
            entry may instead be a dictionary from full key names to values.
        overrides: flat list ``[key, value, key, value, …]``; values are Python literals or plain strings.
        report: whether to warn in two cases: if a file changes a key that another file sets and the command line does
            not set, and if the command line sets a key to two different values.

    Returns:
        The frozen config.

    Raises:
        InputError: a file is missing or is not a YAML mapping; a key is unknown, has no value or occurs twice in a
            file; a value has the wrong type; two files other than benchmarks name different methods and the command
            line names none; or the config needs a plug-in that is not imported.
    """
    cfg = Config()
    given = _given(overrides, report=report)
    stacks = _stacks(files, given)
    states = []
    for stack in stacks:
        for source, keys in stack:
            _set_all(cfg, keys, source)
        states.append(dict(leaves(cfg)))
    benchmarks = {stack[-1][0] for stack in stacks if _is_benchmark(stack)}
    for later, earlier, changed in _changes(stacks, states):
        names = [name for name in changed if name not in given]
        if "METHOD.NAME" in names and earlier not in benchmarks:
            raise InputError(f"{later}: names a method other than that of {earlier}; remove one of the two files")
        if names and report:
            logger.warning("%s: changes %s of %s; set these on the command line", later, ", ".join(names), earlier)
    _set_all(cfg, given, COMMAND_LINE)
    for each in cfg.IMPORTS:
        if os.path.basename(each).removesuffix(".py") not in imported:
            raise InputError(f"IMPORTS: {each} is not imported; pass --import {each}")
    cfg.IMPORTS = list(imported.values())
    cfg.freeze()
    return cfg


def layers(files: Sequence[Source] = (), overrides: Sequence[str] = ()) -> Iterator[Layer]:
    """Yield the name of each source of :func:`load_config`, with the keys that it sets, in order of application."""
    given = _given(overrides, report=False)
    yield from chain.from_iterable(_stacks(files, given))
    yield COMMAND_LINE, given


def _given(overrides: Sequence[str], *, report: bool) -> dict[str, Any]:
    """Return the keys that ``KEY VALUE`` pairs set; for a key that occurs several times, the last value counts."""
    if len(overrides) % 2:
        raise InputError(f"{overrides[-1]}: the key has no value; write KEY VALUE pairs")
    given: dict[str, Any] = {}
    for name, value in zip(overrides[::2], overrides[1::2], strict=True):
        if report and given.get(name, value) != value:
            logger.warning("%s: sets %s to %s and then to %s; remove one", COMMAND_LINE, name, given[name], value)
        given[name] = value
    return given


def _stacks(files: Sequence[Source], given: dict[str, Any]) -> list[list[Layer]]:
    """Return the layers of each file in order of application: first the files that it extends, then the file."""
    chosen = Config()  # used only to find the recipe
    for source, keys in (*chain.from_iterable(_stacks_for("", files)), (COMMAND_LINE, given)):
        _set_all(chosen, {name: keys[name] for name in ("METHOD.NAME", "METHOD.RECIPE") if name in keys}, source)
    return _stacks_for(chosen.METHOD.RECIPE, files)


def _stacks_for(recipe: str, files: Sequence[Source]) -> list[list[Layer]]:
    """Return the result of :func:`_stacks` for a recipe; with an empty ``recipe``, recipe files are left out."""
    stacks = [
        [(CHOSEN, dict(file))] if isinstance(file, Mapping) else list(_file_layers(find_config(file), recipe))
        for file in files
    ]
    return sorted(stacks, key=_is_benchmark, reverse=True)  # a stable sort keeps the order within each kind


def _is_benchmark(stack: list[Layer]) -> bool:
    return any(source == CHOSEN or "BENCHMARK.TRAIN" in keys for source, keys in stack)


def _changes(stacks: list[list[Layer]], states: list[dict[str, Any]]) -> Iterator[tuple[str, str, list[str]]]:
    """Yield pairs of files with the keys that the earlier file sets itself and the later file changes.

    A file that extends a file with ``METHOD.NAME`` counts as setting this key itself. The argument ``states`` contains
    the values of all keys after each stack.
    """
    own: dict[str, tuple[str, Any]] = {}  # for each key, the file that sets it itself, and the value
    for stack, state in zip(stacks, states, strict=True):
        source, names = stack[-1][0], set(stack[-1][1])
        names |= {"METHOD.NAME"} & set(chain.from_iterable(keys for _, keys in stack))
        changed: dict[str, list[str]] = {}
        for name in [name for name, (_, value) in own.items() if state.get(name) != value]:
            changed.setdefault(own.pop(name)[0], []).append(name)
        yield from ((source, earlier, sorted(lost)) for earlier, lost in changed.items())
        if source != CHOSEN:
            own |= {name: (source, state[name]) for name in names & state.keys()}


def find_config(name: str | Path, folder: Path = Path()) -> Path:
    """Find a file relative to a folder, or one of lreid's own config files.

    Args:
        name: a path, or the name of a config file of lreid, such as ``configs/benchmarks/vehicles.yaml``,
            ``benchmarks/vehicles`` or ``vehicles``.
        folder: folder to which the path is relative.
    """
    local = folder / name
    if os.path.exists(local) and not local.is_dir():
        return local
    files = {file.relative_to(CONFIGS).with_suffix("").as_posix(): file for file in sorted(CONFIGS.glob("*/*.yaml"))}
    wanted = str(name).removeprefix("configs/").removesuffix(".yaml")
    candidates = [each for each in files if wanted in (each, Path(each).name)]
    if len(candidates) == 1:
        return files[candidates[0]]
    if candidates:
        raise InputError(f"{name}: may mean {' or '.join(candidates)}; write the folder, too")
    if os.path.exists(local):
        raise InputError(f"{local}: is a folder; name a YAML file in it")
    last = {Path(each).name: each for each in files}
    nearest = last[nearest_name(Path(wanted).name, last)]
    raise InputError(f"{local}: no such config file; the nearest config of lreid is {nearest}")


def check_values(cfg: Config, groups: str | tuple[str, ...] = "") -> None:
    """Before a run starts, check the values of all keys whose names begin with ``groups``.

    Raises:
        InputError: a value is out of range; the message names the first such key and its rule.
    """
    for name, value in leaves(cfg):
        if not name.startswith(groups):
            continue
        numbers = value if isinstance(value, (list, tuple)) else [value]
        if any(isinstance(number, float) and not math.isfinite(number) for number in numbers):
            raise InputError(f"{name} is {value}; it must be a finite number")
        if name in KEYS and (fault := KEYS[name].rule.fault(value)):
            raise InputError(f"{name} is {value!r}; {fault}")


def config_from_text(text: str, source: str, overrides: Sequence[str] = ()) -> Config:
    """Read text that ``cfg.dump()`` returned, and return a frozen config.

    Args:
        source: name of the text in error messages.
        overrides: see :func:`load_config`.
    """
    cfg = Config()
    _set_all(cfg, dict(leaves(_parsed(text, source))), source)
    _set_all(cfg, _given(overrides, report=True), COMMAND_LINE)
    cfg.freeze()
    return cfg


def method_options(cfg: Config) -> dict[str, Any]:
    """Return the method's options in a config as keyword arguments of the method's class, in lower case."""
    return {key.lower(): value for key, value in cfg.METHOD.items() if f"METHOD.{key}" not in KEYS}


def without_folders(cfg: Config) -> Config:
    """Return a frozen copy without private folders, for publication: ``own:/home/anna/shop`` becomes ``own:shop``.

    ``DATA.ROOT`` gets its default value, and paths in lreid's own benchmark files do not change.
    """
    shared = cfg.clone()
    shared.defrost()
    file = CONFIGS / "benchmarks" / f"{cfg.BENCHMARK.NAME}.yaml"
    defaults = dict(leaves(load_config([file]))) if file.exists() else {}
    for name, value in leaves(cfg):
        if name in KEYS and KEYS[name].paths and value != defaults.get(name):
            group, _, key = name.rpartition(".")
            section = shared[group] if group else shared
            section[key] = [*map(_last_part, value)] if isinstance(value, list) else _last_part(value)
    shared.DATA.ROOT = KEYS["DATA.ROOT"].default
    shared.freeze()
    return shared


def _last_part(value: str) -> str:
    path = BEFORE_PATH.sub("", value)
    if not path or (path.startswith("configs/") and (CONFIGS.parent / path).exists()):  # a config file of lreid
        return value
    return value.removesuffix(path) + os.path.basename(os.path.abspath(path))


def method_title(cfg: Config) -> str:
    """Return the name of a config's method as it appears in results and tables."""
    return cfg.METHOD.ALIAS or cfg.METHOD.NAME


def differing_keys(one: Config, other: Config) -> list[str]:
    """List the full names of all keys whose values differ between two configs, in sorted order."""
    left, right = dict(leaves(one)), dict(leaves(other))
    return sorted(key for key in left.keys() | right.keys() if left.get(key) != right.get(key))


def recorded_config(keys: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a config, except the seed and the keys that do not affect results."""
    return {key: value for key, value in keys.items() if key not in ("SEED", *FREE_KEYS)}


def leaves(tree: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the full name and the value of every key."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _file_layers(file: Path, recipe: str, seen: tuple[Path, ...] = ()) -> Iterator[Layer]:
    if file.resolve() in seen:
        raise InputError(f"{file}: extends itself through _BASE_; remove the cycle")
    try:
        content = _parsed(read_text(file), str(file))
    except OSError as error:
        raise InputError(f"{file}: cannot be read ({error.strerror}); correct its permissions") from None
    except ValueError as error:
        raise InputError(f"{file}: cannot be read as UTF-8 text ({error}); name a YAML file") from None
    bases = content.pop("_BASE_", [])
    bases = [bases] if isinstance(bases, str) else bases
    if not isinstance(bases, list) or not all(isinstance(base, str) for base in bases):
        raise InputError(f"{file}: _BASE_ must be a path or a list of paths, got {bases!r}")
    for base in bases:
        if recipe or RECIPE not in base:
            named = _with_recipe(base, recipe)
            try:
                base_file = find_config(named, file.parent)
            except InputError as error:
                raise InputError(f"{file}: _BASE_: {error}") from None
            yield from _file_layers(base_file, recipe, (*seen, file.resolve()))
    yield str(file), {name: _placed(name, value, file.parent) for name, value in leaves(content)}


def _with_recipe(base: str, recipe: str) -> str:
    """Replace the placeholder in an entry of ``_BASE_`` by the name of the recipe."""
    recipes = sorted(file.stem for file in CONFIGS.glob("recipes/*.yaml"))
    if RECIPE in base and recipe not in recipes:
        nearest = nearest_name(recipe, recipes)
        raise InputError(f"METHOD.RECIPE is {recipe!r}, no file of configs/recipes; the nearest name is {nearest}")
    return base.replace(RECIPE, recipe)


def _placed(name: str, value: Any, folder: Path) -> Any:
    """Make paths in a value absolute if they are relative to the folder of the file."""
    if isinstance(value, list):
        return [_placed(name, each, folder) for each in value]
    for kind in KEYS[name].paths if name in KEYS and isinstance(value, str) else ():
        path = value.removeprefix(kind)
        exists = {"folder:": os.path.isdir, "own:": os.path.exists}.get(kind, os.path.isfile)
        parts = (path, path.rpartition("#")[0])  # the second is the path in csv:PATH#DOMAIN
        if value.startswith(kind) and any(part and exists(folder / part) for part in parts):
            full, configs = (folder / path).resolve(), CONFIGS.resolve()
            if full.is_relative_to(configs):  # use a name that does not depend on where lreid is installed
                return f"{kind}configs/{full.relative_to(configs).as_posix()}"
            return kind + os.path.abspath(folder / path)
    return value


def _parsed(text: str, source: str) -> dict[str, Any]:
    try:
        content = parse_yaml(text)
    except ValueError as error:
        raise InputError(f"{source}: not valid YAML: {error}; correct it, or name another file") from None
    if not isinstance(content, dict):
        raise InputError(f"{source}: must contain lines KEY: value, not a {type(content).__name__}")
    names = [name for name, _ in leaves(content)]
    if twice := [name for name in names if names.count(name) > 1]:  # such as TRAIN.LR, and LR below TRAIN
        raise InputError(f"{source}: {twice[0]} is set twice; remove one of the two")
    return content


def _set_all(cfg: Config, keys: dict[str, Any], source: str) -> None:
    # Set METHOD.NAME first, because a new method drops the options of the previous method.
    for name in sorted(keys, key=lambda name: name != "METHOD.NAME"):
        _set(cfg, name, keys[name], source)


def _set(cfg: Config, name: str, value: Any, source: str) -> None:
    """Set a key after checking that it exists and that the value has the right type."""
    group, _, last = name.rpartition(".")
    section = cfg.get(group) if group else cfg
    value = _decoded(value, name, source)
    if isinstance(section, MethodSection) and last == "NAME" and value != section.NAME:
        cfg.METHOD = section = MethodSection(NAME=section.NAME)  # the options of a different method do not apply
        content = method_file(value)
        _set_all(cfg, content, source)
        if "METHOD.NAME" in content:
            return
    if isinstance(section, Section) and last in section:
        section[last] = _typed(value, section[last], name, source)
    elif isinstance(section, MethodSection):  # an option of the method, which is checked when the method is built
        section[last] = value
    else:
        keys = [each for each, _ in leaves(cfg)]
        nearest = nearest_name(name.upper(), keys)
        raise InputError(f"{source}: unknown key {name}; the nearest name is {nearest}")


def _decoded(value: Any, name: str, source: str) -> Any:
    """Convert text to the number, list or boolean that it represents; YAML reads some numbers (1e-4) as text."""
    if not isinstance(value, str):
        return value
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value
    except (MemoryError, RecursionError):  # Python's parser fails on thousands of brackets
        raise InputError(f"{source}: {name} is nested too deeply") from None


def method_file(name: Any) -> dict[str, Any]:
    """Return all keys except ``METHOD.NAME`` of the file ``name`` in ``configs/methods``; {} without such a file."""
    file = CONFIGS / "methods" / f"{name}.yaml"
    if not (isinstance(name, str) and name.isidentifier() and file.exists()):
        return {}
    content = dict(leaves(_parsed(read_text(file), str(file))))
    return {key: value for key, value in content.items() if (key, value) != ("METHOD.NAME", name)}


def _typed(value: Any, default: Any, name: str, source: str) -> Any:
    if isinstance(default, Section):
        raise InputError(f"{source}: {name} is a group of keys, not a value; set {name}.{next(iter(default))} …")
    if isinstance(default, float) and type(value) is int:
        return float(value)
    if isinstance(default, list) and not isinstance(value, (list, dict)):
        return list(value) if isinstance(value, tuple) else [value]
    if isinstance(default, str) and value is None:  # YAML's and Python's "none", written without quotes
        return "none"
    if isinstance(default, str) and type(value) in (int, float):  # text that looks like a number
        return str(value)
    if type(value) is not type(default):
        raise InputError(f"{source}: {name} must be of type {type(default).__name__} (like {default!r}), got {value!r}")
    return value

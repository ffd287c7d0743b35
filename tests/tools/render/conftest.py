"""Made assets, and a renderer where there is OpenGL."""

from pathlib import Path

import pytest
from tiny_makehuman import write_assets

from lreid.errors import InputError
from render.assets import Assets
from render.renderer import Renderer


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the assets of a person of boxes; it is only read."""
    return write_assets(tmp_path_factory.mktemp("assets") / "makehuman")


@pytest.fixture(scope="module")
def assets(home: Path) -> Assets:
    return Assets(home)


@pytest.fixture(scope="module")
def renderer(assets: Assets) -> Renderer:
    """Draws 64 x 32 pixels; skips where that is impossible."""
    try:
        return Renderer(assets, height=64, width=32)
    except InputError as error:
        pytest.skip(str(error))

"""python tools/render from the command line."""

from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["people"], "makehuman/3dobjs/base.obj: no such file and 181 more; datasets/README.md says where"),
        (["people", "--images", "1"], "--images is 1; it must be from 2"),
        (["people", "--train-identities", "0", "--test-identities", "0"], "--test-identities is 0; it must be above"),
    ],
)
def test_bad_input_is_one_line(
    run_tool: Callable[..., int], capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert run_tool("render", *arguments) == 2
    assert message in capsys.readouterr().err.splitlines()[-1]

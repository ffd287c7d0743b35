import io
import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from lreid.report.rendering import (
    THUMBNAIL_HEIGHT,
    VERDICTS,
    Match,
    RankedQuery,
    Tile,
    ranked_panel,
    thumbnail,
    write_ranked,
)


def noise(height: int, width: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (height, width, 3), dtype=np.uint8)


def page(tmp_path: Path, *matches: Match, **options: object) -> str:
    query = Tile(thumbnail(noise(8, 4)), "q.jpg", ("id 1", "cam <2>"))
    section = ranked_panel("north & south", "mAP 3.0", [RankedQuery(query, "AP 3.0 %", matches)], **options)
    write_ranked(tmp_path / "page.html", "A <title>", ["line one"], [section])
    return (tmp_path / "page.html").read_text()


def match(rank: int, verdict: str, jpeg: bytes | None = b"jpeg") -> Match:
    return Match(rank, "0.875", verdict, Tile(jpeg, f"{rank}.jpg", (f"id {rank}",)))


def test_every_verdict_has_a_sign_a_frame_and_a_line_in_the_legend(tmp_path: Path) -> None:
    text = page(tmp_path, match(1, "wrong"), match(2, "right"), match(3, "distractor"))
    legend, body = text.split('<ul class="legend">')[1].split("</ul>", 1)
    tiles = re.findall(r'<figure class="tile (\w*)" title="([^"]*)">.*?</figure>', body)
    assert tiles == [("", "q.jpg"), ("wrong", "1.jpg"), ("right", "2.jpg"), ("distractor", "3.jpg")]
    for verdict in ("wrong", "right", "distractor"):
        sign, meaning = VERDICTS[verdict]
        badge = f'<span class="sign {verdict}" role="img" aria-label="{meaning}">{sign}</span>'
        assert legend.count(badge) == 1 and body.count(badge) == 1
        assert f".{verdict} .frame" in text  # the style of its frame
    assert "threshold" not in legend
    assert len({sign for sign, _ in (VERDICTS[verdict] for verdict in ("wrong", "right", "distractor"))}) == 3


def test_text_is_escaped_and_page_is_self_contained(tmp_path: Path) -> None:
    text = page(tmp_path, match(1, "right"))
    assert "<h1>A &lt;title&gt;</h1>" in text and "<h2>north &amp; south</h2>" in text
    assert "cam &lt;2&gt;" in text and "cam <2>" not in text
    assert (
        text.count("<script>") == 1 == text.count("<script")
        and "http" not in text
        and 'src="data:image/jpeg;base64,' in text
    )
    assert "prefers-color-scheme: dark" in text and "width=device-width" in text


def test_later_match_follows_a_separator(tmp_path: Path) -> None:
    body = page(tmp_path, match(1, "wrong"), match(2, "wrong"), match(57, "right"))
    assert re.findall(r"<li( class=\"far\")?><figure.*?<b>(\d+)</b>", body) == [
        ("", "1"),
        ("", "2"),
        (' class="far"', "57"),
    ]


def test_missing_image_has_a_placeholder(tmp_path: Path) -> None:
    body = page(tmp_path, match(1, "", jpeg=None)).split("<main>")[1]
    assert body.count("image not found") == 1 and body.count("<img") == 1  # that of the query
    assert 'class="legend"' not in body and 'class="sign' not in body


def test_wide_images_get_wide_tiles(tmp_path: Path) -> None:
    assert 'class="wide">' in page(tmp_path, wide=True)
    assert 'class="wide">' not in page(tmp_path)


@pytest.mark.parametrize(("shape", "size"), [((256, 128), (72, 144)), ((64, 32), (32, 64)), ((100, 900), (288, 32))])
def test_thumbnails_keep_their_shape_and_small_ones_their_size(shape: tuple[int, int], size: tuple[int, int]) -> None:
    image = Image.open(io.BytesIO(thumbnail(noise(*shape))))
    assert image.format == "JPEG" and image.size == size and image.height <= THUMBNAIL_HEIGHT

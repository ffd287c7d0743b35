import re
from html.parser import HTMLParser

import pytest

from lreid.errors import InputError
from lreid.report import write_report

VOID = {"meta", "path"}


class Page(HTMLParser):
    """Checks that elements close in order, and collects text and table lines."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.lines, self.text = [], [], [], ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag == "tr":
            self.lines.append([])
        if tag in ("td", "th"):
            self.lines[-1].append("")
        if tag not in VOID and tag != "br":
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.lines[-1][-1] += f" {data.strip()}"


def read(folder):
    path = write_report(folder)
    assert path == folder / "report.html"
    return Page(path.read_text(encoding="utf-8"))


def test_page_holds_the_figures(results, run_folder):
    page = read(run_folder(results()))
    lines = [[cell.strip() for cell in line] for line in page.lines]
    assert ["2 city 2/4", "10.0 30.0", "11.0 31.0", "12.0 32.0", "10.0 30.0", "12.0 32.0"] in lines
    before = [attributes for tag, attributes in page.tags if "before" in attributes.get("class", "").split()]
    assert len(before) == 2  # harbor after tasks 1 and 2
    assert page.text.count("dwopp on synthetic-4") == 2  # title and heading
    for text in (
        "20.5",
        "-1.2",
        "+11.2",
        "+20.0",
        "Unfinished: 3 of 4 tasks",
        "1 h 2 min",
        "1 min 1 s",
        "812 images/s",
    ):
        assert text in page.text
    for text in ("rectangular", "2.4.0", "17", "dmml", "distill"):
        assert text in page.text
    assert "lr" not in re.findall(r"\w+", page.text)  # no term of the loss


def test_hardest_identities_come_first(results, run_folder):
    page = read(run_folder(results(rows=2)))
    start = next(place for place, line in enumerate(page.lines) if line[0].strip() == "identity")
    people = [[cell.strip() for cell in line] for line in page.lines[start + 1 :]]
    assert people[:3] == [
        ["71", "plaza", "5.0", "5.0"],
        ["71", "harbor", "6.0", "6.0"],
        ["71", "mall", "7.0", "7.0"],
    ]
    assert people[3] == ["72", "mall", "28.0", "28.0"]


def test_every_name_is_escaped(results, run_folder):
    evil = '<script>alert("x")</script>&amp;\'"'
    run = results(method=evil, benchmark=evil, seen=(evil, "b"), tasks=[evil] * 4, ap=evil, seed=evil)
    run["versions"] = {evil: evil}
    run["loss_history"] = [{"task": 0, "epoch": 1, "lr": 0.1, evil: 1.0}]
    run["identity_ap"][evil]["ids"] = [evil, evil]
    page = read(run_folder(run))
    assert "script" not in {tag for tag, _ in page.tags}
    names = {
        "class",
        "style",
        "title",
        "role",
        "aria-label",
        "viewbox",
        "lang",
        "charset",
        "name",
        "content",
        "scope",
    }
    names |= {"d", "x", "y", "cx", "cy", "r", "text-anchor", "points"}
    assert {name for _, attributes in page.tags for name in attributes} <= names
    assert page.text.count(evil) >= 8


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_any_number_of_finished_tasks(results, run_folder, rows):
    page = read(run_folder(results(rows=rows)))
    assert ("Unfinished" in page.text) == (rows < 4)
    assert ("Results matrix" in page.text) == (rows > 0)


def test_what_is_missing_is_left_out(results, run_folder):
    run = results(unseen=())
    for key in ("loss_history", "identity_ap", "versions", "seconds", "images_per_second", "exemplars"):
        del run[key]
    run["summary"] |= {"forgetting": None, "plasticity": None, "backward_transfer": None}
    page = read(run_folder(run))
    for text in ("unseen", "forgetting", "Loss", "Hardest", "None", "images/s"):
        assert text not in page.text


def test_page_needs_no_network_and_no_script(results, run_folder):
    folder = run_folder(results())
    page = read(folder)
    text = (folder / "report.html").read_text()
    assert "//" not in text and "url(" not in text and "@import" not in text
    assert not {tag for tag, _ in page.tags} & {"script", "link", "iframe", "img"}
    assert not any(name in attributes for _, attributes in page.tags for name in ("src", "href"))
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text


def test_page_is_replaced_whole(results, run_folder):
    folder = run_folder(results(rows=1))
    write_report(folder)
    run_folder(results(rows=4))
    assert "Unfinished" not in read(folder).text
    assert {path.name for path in folder.iterdir()} == {"results.json", "report.html"}


def test_no_results_no_page(tmp_path):
    with pytest.raises(InputError, match="results.json"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lreid import report
from lreid.report import write_page, write_report
from lreid.results import METRICS

VOID = {"meta", "input", "br"}


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
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if "style" in self.open or "script" in self.open:
            return
        self.text += data
        if "td" in self.open or "th" in self.open:
            self.lines[-1][-1] = f"{self.lines[-1][-1]} {data.strip()}".strip()


def read_page(path, runs):
    write_page(path, runs)
    return Page(path.read_text(encoding="utf-8"))


def read(folder):
    path = write_report(folder)
    assert path == folder / "report.html"
    return Page(path.read_text(encoding="utf-8"))


def test_page_holds_the_figures(results, run_folder):
    page = read(run_folder(results()))
    lines = page.lines
    assert ["2 city 2/4", "10.0 30.0", "11.0 31.0", "12.0 32.0", "10.0 30.0"] in lines
    before = [attributes for tag, attributes in page.tags if "before" in attributes.get("class", "").split()]
    assert len(before) == 2  # harbor after tasks 1 and 2
    assert page.text.count("dwopp on synthetic-4") == 2  # title and heading
    figures = ("20.5", "-1.2", "+11.2", "+20.0", "11.0", "1 h 2 min", "1 min 1 s", "812 images/s", "2.4.0", "17")
    for text in (*figures, "Unfinished: 3 of 4 tasks", "rectangular", "dmml", "distill"):
        assert text in page.text
    assert "lr" not in re.findall(r"\w+", page.text)  # no term of the loss


def test_hardest_identities_come_first(results, run_folder):
    names = {"plaza": {"71": "car_0002 <b>"}, "mall": {}}
    lines = read(run_folder(results(rows=2) | {"identity_names": names})).lines
    start = next(place for place, line in enumerate(lines) if line[0] == "identity")
    assert lines[start + 1 : start + 5] == [
        ["car_0002 <b>", "plaza", "5.0", "5.0"],
        ["71", "harbor", "6.0", "6.0"],
        ["71", "mall", "7.0", "7.0"],
        ["72", "mall", "28.0", "28.0"],
    ]


def test_every_name_is_escaped(results, run_folder, real_charts):
    evil = '<script>alert("x")</script>&amp;\'"'
    run = results(method=evil, benchmark=evil, seen=(evil, "b"), tasks=[evil] * 4, ap=evil)
    run["versions"] = {evil: evil}
    run["loss_history"] = [{"task": 0, "epoch": 1, "lr": 0.1, evil: 1.0}]
    folder = run_folder(run)
    pages = [read(folder), read_page(folder / "many.html", [run, run | {"method": evil + "2"}])]
    names = {"class", "style", "title", "role", "aria-label", "viewbox", "lang", "charset", "name", "content", "scope"}
    names |= {"d", "x", "y", "width", "height", "transform", "clip-path", "tabindex", "data-name", "data-value"}
    names |= {"id", "for", "type", "placeholder", "autocomplete", "aria-live", "data-of"}  # of the filter
    names |= {"open", "href"}  # of sections, and of the links to them
    for page in pages:
        assert [attributes for tag, attributes in page.tags if tag == "script"] == [{}]
        assert {name for _, attributes in page.tags for name in attributes} <= names
        assert page.text.count(evil) >= 8
    assert (folder / "report.html").read_text().count("script>") == 2  # that of the page


@pytest.mark.parametrize("rows", [0, 1, 4])
def test_any_number_of_finished_tasks(results, run_folder, rows):
    page = read(run_folder(results(rows=rows)))
    assert ("Unfinished" in page.text) == (rows < 4)
    assert ("Results matrix" in page.text) == (rows > 0)


def test_initial_model_has_a_row(results, run_folder):
    run = results(rows=1)
    run["initial"] = {metric: [11.1, *run[metric][0][1:]] for metric in ("mAP", "rank1")}
    page = read(run_folder(run))
    (first,) = [line for line in page.lines if line[0] == "before training"]
    assert first[1] == "11.1 11.1" and "mean mAP" not in page.text
    page = read(run_folder(results()))
    assert "mean mAP" in page.text and "Bands: one standard deviation" not in page.text


def test_missing_values_are_left_out(results, run_folder):
    run = results(unseen=())
    for key in ("loss_history", "identity_ap", "versions", "seconds", "images_per_second", "exemplars"):
        del run[key]
    run["summary"] |= {"forgetting": None, "plasticity": None, "backward_transfer": None}
    page = read(run_folder(run))
    for text in ("unseen", "forgetting", "Loss", "Hardest", "None", "images/s"):
        assert text not in page.text


def test_page_needs_no_network(results, run_folder, real_charts):
    folder = run_folder(results())
    page = read(folder)
    text = (folder / "report.html").read_text()
    assert "//" not in text and "@import" not in text and not re.search(r"url\((?!#)", text)
    assert not {tag for tag, _ in page.tags} & {"link", "iframe", "img"}
    assert not any("src" in attributes for _, attributes in page.tags)
    addresses = [attributes["href"] for _, attributes in page.tags if "href" in attributes]
    assert addresses and all(re.match(r"#|[\w.]+$", address) for address in addresses)  # on the page or in its folder
    assert "prefers-color-scheme: dark" in text and 'name="viewport"' in text
    for name in ("style.css", "script.js", "copy.js"):
        assert (Path(report.__file__).parent / "static" / name).read_text() in text


def test_runs_of_one_config_share_a_row(results, tmp_path):
    runs = [results(rows=4, seed=seed, shift=shift) for seed, shift in enumerate((0.0, 1.0, 5.0))]
    runs += [results(rows=4, method="dmml_ft"), results(rows=2, seed=3)]
    page = read_page(tmp_path / "many.html", runs)
    lines = page.lines
    compared = [[*line[:3], *line[-2:]] for line in lines]
    assert ["dwopp", "22.5 ± 2.6", "42.5 ± 2.6", "4", "3"] in compared
    assert ["dwopp", "20.5", "40.5", "2/4", "1"] in compared
    assert ["dmml_ft", "20.5", "40.5", "4", "1"] in compared
    assert ["dwopp", "plaza", "seen", "2.0 ± 2.6", "32.0 ± 2.6", "32.0 ± 2.6"] in [line[:6] for line in lines]
    matrix = next(line for line in lines if line[0] == "4 city 4/4")  # of the first group, its mean
    assert matrix[1:3] == ["32.0 52.0", "33.0 53.0"]
    assert "dmml_ft, dwopp" not in page.text and "5 runs, 4 seeds (0, 1, 2, 3)" in page.text
    assert ": 1 of 5 runs." in page.text and "Bands: one standard deviation" in page.text


def test_every_benchmark_has_its_own_sections(results, tmp_path):
    page = read_page(tmp_path / "many.html", [results(), results(benchmark="other")])
    for title in ("Learning curve", "Results matrix", "Forgetting and plasticity", "Loss", "Protocol"):
        assert f"{title}, synthetic-4" in page.text and f"{title}, other" in page.text
    assert ["method", "benchmark", "seen mAP"] in [line[:3] for line in page.lines]


def test_differing_keys_are_shown(results, tmp_path):
    common = {"TRAIN.EPOCHS": 30, "METHOD.NAME": "x", "EVAL.METRIC": "cosine", "EVAL.CAMERA_FILTER": False}
    runs = [
        results(rows=4, method="a", protocol="0123abcd", config=common | {"METHOD.MARGIN": 0.25}),
        results(
            rows=4, method="b", protocol="0123abcd", config=common | {"METHOD.MARGIN": 0.5, "METHOD.EXTRA": [1, 2]}
        ),
        results(rows=4, method="c", protocol="0123abcd", config=common | {"METHOD.NAME": "y"}),
    ]
    page = read_page(tmp_path / "many.html", runs)
    start = next(place for place, line in enumerate(page.lines) if line[0] == "key")
    assert page.lines[start : start + 3] == [
        ["key", "a", "b", "c"],
        ["METHOD.MARGIN", "0.25", "0.5", "–"],
        ["METHOD.EXTRA", "–", "[1, 2]", "–"],
    ]
    assert "TRAIN.EPOCHS" not in page.text and "METHOD.NAME" not in page.text
    assert re.search(r"fingerprint\s*0123abcd", page.text) and re.search(r"camera filter\s*off", page.text)


def test_hardest_identities_of_several_runs_are_means(results, tmp_path):
    runs = [results(rows=4, seed=0), results(rows=4, seed=1), results(rows=1, seed=2)]  # the last does not count
    runs[1]["identity_ap"]["plaza"]["ap"][-1] = [1.0, 80.0]
    lines = read_page(tmp_path / "a.html", runs).lines
    start = next(place for place, line in enumerate(lines) if line[0] == "identity")
    assert lines[start + 1] == ["71", "plaza", "8.0", "12.5"]  # (15 + 1) / 2 and (15 + 10) / 2


def test_hardest_identities_are_listed_per_ap_convention(results, tmp_path):
    both = results(rows=4, unseen=("mall", "all"))
    both["galleries"][-1]["kind"] = "merged"  # holds the people of the mall once more
    page = read_page(tmp_path / "a.html", [both, results(rows=4, ap="trapezoidal")])
    assert page.text.count("out of 6 test identities") == 2
    assert "Hardest identities, rectangular AP" in page.text and "Hardest identities, trapezoidal AP" in page.text
    assert "Hardest identities, " not in read_page(tmp_path / "b.html", [both, results(rows=4, seed=1)]).text


def test_loss_is_drawn_in_the_middle_of_its_epoch(results, tmp_path, charted):
    """So that of a task's only epoch is not drawn at the tick where the next task begins."""
    history = [{"task": task, "epoch": 1, "dmml": 1.0} for task in range(4)]
    write_page(tmp_path / "a.html", [results(rows=4, loss_history=history)])
    assert charted["dmml"][0].points == tuple((task + 0.5, 1.0) for task in range(4))


def test_drift_has_a_chart_for_each_set_of_images(results, tmp_path):
    curves = {"step": [0.1, 0.2], "since_switch": [0.1, 0.3]}
    run = results(drift=[{"task": task, "buffer": curves, "held out: a": curves} for task in (1, 2)])
    text = read_page(tmp_path / "a.html", [run]).text
    for title in ("buffer, since the switch", "buffer, in each update", "held out: a, since the switch"):
        assert title in text
    assert "Drift" not in read_page(tmp_path / "b.html", [results(drift=[])]).text


def test_gradients_of_stored_images_need_a_memory(results, tmp_path, charted):
    switches = [{"task": task, "stored": [None, None], "incoming": [0.2, 0.4]} for task in (1, 2)]
    text = read_page(tmp_path / "a.html", [results(gradient_norms=switches)]).text
    assert "Feature-gradient norm" in text and "incoming images" in text and "stored images" not in text
    switches[1]["stored"] = [0.5, 0.25]
    assert "stored images" in read_page(tmp_path / "b.html", [results(gradient_norms=switches)]).text
    assert charted["stored images"][0].points == ((1, 0.5), (2, 0.25))


def test_classification_and_alignment(results, tmp_path, charted):
    kinds = {kind: {"anytime_accuracy": [90.0, 60.0, 50.0]} for kind in ("class", "task")}
    measured = {
        "accuracy_summary": {"knn": kinds, "nearest_mean": kinds},
        "alignment": [{"0": 0.75}, {"0": 0.5, "1": 1.0}, {}],
    }
    page = read_page(tmp_path / "a.html", [results(**measured)])
    assert "nearest mean" in page.text
    values = ((1, 90.0), (2, 60.0), (3, 50.0))
    assert [line.points for line in charted["class-incremental"]] == [values, values]
    assert [line.points for line in charted["similarity"]] == [((1, 0.75), (2, 0.75))]
    write_page(tmp_path / "b.html", [results(**measured), results(method="er", **measured)])
    assert [line.points for line in charted["task-incremental, nearest mean"]] == [values, values]
    assert "Classification" not in read_page(tmp_path / "c.html", [results()]).text


def test_joint_training_is_a_horizontal_line(results, tmp_path, charted):
    joint = results(method="joint", rows=1, tasks=["all"])
    for gallery in joint["galleries"]:
        gallery["first_task"] = 0
    write_page(tmp_path / "a.html", [results(rows=4), joint])
    (first, level), (last, other) = charted["mAP, seen"][1].points
    assert (first, last, level) == (1, 4, other) and len(charted["mAP, seen"][0].points) == 4


def test_command_and_changed_keys_are_shown(results, tmp_path):
    made = {"command": "python tools/train.py SEED 0 TRAIN.LR 0.1", "config": {"TRAIN.LR": 0.1, "NEW": "<b>"}}
    one = results(**made, changed={"TRAIN.LR": 0.001, "NEW": None})
    page = read_page(tmp_path / "a.html", [one])
    assert "python tools/train.py SEED 0 TRAIN.LR 0.1" in page.text
    assert ["TRAIN.LR", "0.1", "0.001"] in page.lines and ["NEW", "<b>", "–"] in page.lines
    page = read_page(tmp_path / "b.html", [one, results(command="python tools/train.py SEED 9", method="other")])
    assert "TRAIN.LR 0.1" in page.text and "SEED 9" in page.text and "0.001" not in page.text


def test_all_metrics_are_shown(results, tmp_path):
    run = results()
    run["summary"] |= {f"seen_{metric.name}": 50.0 + place for place, metric in enumerate(METRICS)}
    page = read_page(tmp_path / "a.html", [run])
    heads = next(line for line in read_page(tmp_path / "b.html", [run, run | {"seed": 1}]).lines if line[0] == "method")
    for place, metric in enumerate(METRICS):
        assert f"seen {metric.title}" in heads and f"5{place}.0" in page.lines[-1]
        assert (f"5{place}.0seen {metric.title}" in page.text) == metric.main  # a tile at the top


def test_accuracy_within_tasks_is_a_curve_by_images(results, tmp_path, charted):
    points = [
        {"task": 0, "images": images, "accuracy": {"nearest_mean": {"class": 70.0 - place, "task": 90.0}}}
        for place, images in enumerate((100, 200, 400))
    ]
    assert "Learning curve within tasks" in read_page(tmp_path / "a.html", [results(accuracy_curve=points)]).text
    assert charted["nearest mean, class-incremental"][0].points == ((100, 70.0), (200, 69.0), (400, 68.0))


def test_links_lead_to_existing_files(results, run_folder, tmp_path):
    folder = run_folder(results())
    for name in ("log.txt", "test/market one/ranked.html", "test/ranked.html"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("")
    addresses = [attributes["href"] for tag, attributes in read(folder).tags if tag == "a"]
    files = [address for address in addresses if not address.startswith("#")]
    assert files == ["results.json", "log.txt", "test/market%20one/ranked.html", "test/ranked.html"]
    (tmp_path / "pages").mkdir()
    write_page(tmp_path / "pages" / "a.html", [results(), results(seed=1)], folders=[folder, folder])
    assert 'href="../report.html"' in (tmp_path / "pages" / "a.html").read_text()


def test_contents_lead_to_sections(results, tmp_path):
    page = read_page(tmp_path / "many.html", [results(), results(benchmark="other", method="b")])
    named = [attributes["id"] for tag, attributes in page.tags if tag == "section"]
    links = [attributes["href"][1:] for tag, attributes in page.tags if tag == "a"]
    assert links == named and len(set(named)) == len(named) > 10
    opened = [attributes for tag, attributes in page.tags if tag == "details" and "open" in attributes]
    assert len(opened) < len(named) / 2
    page = read_page(tmp_path / "one.html", [results()])
    assert all("open" in attributes for tag, attributes in page.tags if tag == "details")


def test_before_and_after_open_the_page_of_custom_images(results, run_folder):
    run = results(unseen=())
    run["initial"] = {metric: [40.0, 2.5] for metric in ("mAP", "rank1")}
    for name, history in run["identity_ap"].items():
        history["queries"] = [3, 1]
        run.setdefault("initial_ap", {})[name] = [4.0, 41.0]
    page = read(run_folder(run))
    (head, plaza, harbor) = page.lines[:3]
    rows = {column: (a, b) for column, a, b in zip(head, plaza, harbor, strict=True)}
    # The AP of the identities changes from 4 and 41 to 10 + column and 30 - column.
    assert rows["test set"] == ("plaza", "harbor") and rows["mAP"] == ("40.0 → 20.0", "2.5 → 21.0")
    assert rows["gain (95 % interval)"][0].startswith("-20.0 (") and rows["people"] == ("2", "2")
    assert (rows["better"], rows["worse"]) == (("1", "1"), ("1", "1"))
    cards = [text for tag, text in page.tags if text.get("class") == "card"]
    assert len(cards) <= 6 and "1 worse, 1 better" in page.text and "-1.2forgetting" not in page.text

"""Checks the pages that .ci/pages has made: FOLDER NAME..., where each name has a page and the JSON of the same run."""

import json
import re
import subprocess
import sys
import tempfile
from html.parser import HTMLParser
from pathlib import Path

# A page has at least so many figures that come from its JSON, and so many pictures.
LEAST = {"advise": (100, 4), "check": (30, 3), "replay": (6, 1), "simulate": (30, 1)}


def chromium(page: Path, *options: str) -> subprocess.CompletedProcess:
    """Loads a page in a browser that cannot reach any network."""
    with tempfile.TemporaryDirectory() as profile:
        command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
        command += ["--proxy-server=127.0.0.1:9", "--enable-logging=stderr", "--v=0", *options, page.resolve().as_uri()]
        return subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)


class Figures(HTMLParser):
    """What the browser made of a page: texts by the JSON pointer beside them, the JSON, and how many lines and bars there are."""

    def __init__(self, dom: str) -> None:
        super().__init__()
        self.figures: list[tuple[str, str]] = []
        self.report, self.pictures, self.marks, self.asks = "", 0, 0, []
        self.at, self.in_report = None, False
        self.feed(dom)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.at = attributes.get("data-at")
        self.in_report = attributes.get("id") == "report"
        self.pictures += tag == "svg"
        self.marks += tag in ("polyline", "rect")
        self.asks += [value for name, value in attrs if name in ("src", "href") and value != "data:,"]

    def handle_endtag(self, tag):
        self.at, self.in_report = None, False

    def handle_data(self, data):
        if self.at is not None:
            self.figures.append((self.at, data))
        if self.in_report:
            self.report += data


def look_up(report, pointer: str):
    for key in pointer.strip("/").split("/"):
        report = report[int(key)] if isinstance(report, list) else report[key]
    return report


def shown(text: str) -> tuple[float, float]:
    """The first number of a text, and half a unit of its last digit."""
    number = re.search(r"[-+]?\d+(?:\.(\d+))?(e[-+]?\d+)?", text)
    assert number, f"no number in {text!r}"
    exponent = int(number[2][1:]) if number[2] else 0
    return float(number[0]), 0.51 * 10.0 ** (exponent - len(number[1] or ""))


def check(folder: Path, name: str) -> None:
    page, report = folder / f"{name}.html", json.loads((folder / f"{name}.json").read_text())
    loaded = chromium(page, "--dump-dom")
    errors = [line for line in loaded.stderr.splitlines() if "CONSOLE" in line]
    assert not errors, f"{name}: the console says {errors}"
    dom = Figures(loaded.stdout)
    assert not dom.asks, f"{name}: asks for {dom.asks}"
    assert json.loads(dom.report) == report, f"{name}: the page's JSON is not that of --json"
    for pointer, text in dom.figures:
        figure, half = shown(text)
        value = look_up(report, pointer)
        if "%" in text:
            value *= 100
        assert abs(figure - value) <= half, f"{name}: {text!r} is not {value} of {pointer}"
    figures, pictures = LEAST[name]
    assert len(dom.figures) >= figures and dom.pictures >= pictures, f"{name}: {len(dom.figures)}, {dom.pictures}"
    assert dom.marks > dom.pictures, f"{name}: empty pictures"
    sizes = []
    for scheme in ("light", "dark"):
        picture = folder / f"{name}-{scheme}.png"
        dark = ["--blink-settings=preferredColorScheme=0"] if scheme == "dark" else []
        chromium(page, f"--screenshot={picture.resolve()}", "--window-size=1000,3000", *dark)
        sizes.append(picture.read_bytes())
    assert min(map(len, sizes)) > 20_000, f"{name}: an empty screenshot"
    assert sizes[0] != sizes[1], f"{name}: dark is as light"
    print(f"{name}: {len(dom.figures)} figures and {dom.pictures} pictures hold")


if __name__ == "__main__":
    for each in sys.argv[2:]:
        check(Path(sys.argv[1]), each)

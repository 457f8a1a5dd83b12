"""Look at the built site in Chromium: `make docs && python tests/docs/browse.py [FOLDER]`; pictures go to FOLDER.

It opens pages from their files, on a desktop and in a frame as wide as a phone, and searches. Exit code 1 if a page
prints an error to the console, is wider than its frame, or a search finds nothing.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SITE = Path(__file__).parents[2] / "site"
PAGES = ("index", "start/log", "tutorials/own_text", "models", "faq")
PAGES += ("reference/cli", "reference/config", "reference/api", "results", "fidelity")
PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (1280, 390)  # pixels: a desktop, a phone
# A window of Chromium cannot be narrower than 500 pixels, so a frame in it stands for the device.
FRAME = """<!doctype html><title>-</title><body style="margin: 0">
<iframe src="{url}" style="border: 0; width: {width}px; height: 844px" onload="setTimeout(() => {{
const page = this.contentDocument.documentElement;
document.title = `width ${{page.scrollWidth}} of ${{page.clientWidth}}`
}}, 1000)"></iframe>"""
WIDE = re.compile(r"<title>width (\d+) of (\d+)</title>")
SEARCHES = ("transfer", "int8")
ERROR = re.compile(r'CONSOLE.*?"(.*?(?:Error|Failed|Uncaught|ERR_).*?)"')


def chromium(url: str, *options: str) -> subprocess.CompletedProcess:
    """Open a page without a network, and return what the browser prints."""
    if PROGRAM is None:
        sys.exit("No Chromium is on this machine. Install it, on Debian with `apt-get install chromium`.")
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--v=0"]
        flags += [f"--user-data-dir={profile}", "--allow-file-access-from-files", "--virtual-time-budget=8000"]
        flags += ["--host-resolver-rules=MAP * ~NOTFOUND"]
        return subprocess.run([PROGRAM, *flags, *options, url], capture_output=True, text=True, timeout=120)


def main(argv: list[str]) -> int:
    """Open every page and search; print one line for each."""
    folder = Path(argv[0] if argv else tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    if missing := [page for page in PAGES if not (SITE / f"{page}.html").exists()]:
        sys.exit(f"{SITE} lacks {', '.join(missing)}. Build the site with `make docs`.")
    failed = False
    for page in PAGES:
        for width in WIDTHS:
            picture = folder / f"{page.replace('/', '_')}_{width}.png"
            frame = folder / "frame.html"
            frame.write_text(FRAME.format(url=(SITE / f"{page}.html").as_uri(), width=width))
            window = f"--window-size={max(width, 500)},844"
            done = chromium(frame.as_uri(), window, f"--screenshot={picture}", "--dump-dom")
            errors = ERROR.findall(done.stderr)
            sizes = [tuple(map(int, pair)) for pair in WIDE.findall(done.stdout)]
            failed |= bool(errors) or not picture.exists() or [size <= (width, width) for size in sizes] != [True]
            print(f"{page} at {width} pixels: {errors or 'no error'}, width and frame {sizes}, {picture}")
    for word in SEARCHES:
        text = chromium(f"{(SITE / 'index.html').as_uri()}?q={word}", "--dump-dom").stdout
        results = re.findall(r'<a href="([^"]*)" class="md-search-result__link"', text)
        failed |= not results
        print(f"search for {word}: {len(results)} results, such as {[Path(one).name for one in results[:3]]}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

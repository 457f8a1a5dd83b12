"""Look at the built site in Chromium: `make docs && python tests/docs/browse.py [FOLDER]`; pictures go to FOLDER.

It opens pages from their files, at the widths of a desktop and of a phone, and searches. Exit code 1 if a page prints
an error to the console or a search finds nothing.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SITE = Path(__file__).parents[2] / "site"
PAGES = ("index", "tutorials/own_text", "reference/cli", "reference/config", "reference/api", "results", "fidelity")
WIDTHS = (1280, 500)  # pixels; a window of Chromium cannot be narrower than 500
SEARCHES = ("transfer", "int8")
ERROR = re.compile(r'CONSOLE.*?"(.*?(?:Error|Failed|Uncaught|ERR_).*?)"')


def chromium(url: str, *options: str) -> subprocess.CompletedProcess:
    """Open a page without a network, and return what the browser prints."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        sys.exit("No Chromium is on this machine. Install it, on Debian with `apt-get install chromium`.")
    with tempfile.TemporaryDirectory() as profile:
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--v=0"]
        flags += [f"--user-data-dir={profile}", "--allow-file-access-from-files", "--virtual-time-budget=8000"]
        flags += ["--host-resolver-rules=MAP * ~NOTFOUND"]
        return subprocess.run([program, *flags, *options, url], capture_output=True, text=True, timeout=120)


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
            done = chromium((SITE / f"{page}.html").as_uri(), f"--window-size={width},900", f"--screenshot={picture}")
            errors = ERROR.findall(done.stderr)
            failed |= bool(errors) or not picture.exists()
            print(f"{page} at {width} pixels: {errors or 'no error'}, {picture}")
    for word in SEARCHES:
        text = chromium(f"{(SITE / 'index.html').as_uri()}?q={word}", "--dump-dom").stdout
        results = re.findall(r'<a href="([^"]*)" class="md-search-result__link"', text)
        failed |= not results
        print(f"search for {word}: {len(results)} results, such as {[Path(one).name for one in results[:3]]}")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

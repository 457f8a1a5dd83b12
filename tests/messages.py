"""Check that messages and docs/formats.md name values, options, keys and files, whatever their wording."""

import json
import re
from pathlib import Path

import pytest

FORMATS = Path(__file__).parents[1] / "docs" / "formats.md"
NUMBER = re.compile(r"\d[\d.,]*")


def pattern(part: object) -> str:
    """Return a regular expression for the text of `part`; a number must stand alone, not in 24, 4.5 or gw4."""
    text = re.escape(str(part))
    return rf"(?<![\w.]){text}(?!\w|[.,]\d)" if NUMBER.fullmatch(str(part)) else text


def mentions(message: str, *parts: object) -> bool:
    """Return True if a message holds every part; otherwise an assertion error lists the missing ones."""
    missing = [str(part) for part in parts if not re.search(pattern(part), message)]
    assert not missing, f"{missing} not in: {message}"
    return True


def mentioning(*parts: object) -> str:
    """Return a pattern for `pytest.raises(match=…)` that matches messages with every part, in any order."""
    return "(?s)" + "".join(f"(?=.*{pattern(part)})" for part in parts)


def refused(capsys: pytest.CaptureFixture, *parts: object) -> str:
    """Return the one line of error that a command printed, after no output; it names every part."""
    out, err = capsys.readouterr()
    assert out == "" and err.count("\n") == 1 and mentions(err, *parts), err
    assert "should not happen" not in err
    return err


def undocumented(directory: Path) -> set[str]:
    """Return the names that docs/formats.md lacks: of files in a directory, of JSON keys and of events."""
    code = " ".join(re.findall(r"`([^`\n]+)`", FORMATS.read_text(encoding="utf-8")))
    names = {path.name for path in directory.iterdir()}
    for file in directory.glob("*.json"):
        content = json.loads(file.read_text(encoding="utf-8"))
        names |= {name for record in (content if isinstance(content, list) else [content]) for name in record}
    for file in directory.glob("metrics.jsonl"):
        records = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        names |= {name for record in records for name in (*record, record.get("event", "event"))}
    return names - set(re.findall(r"[\w.-]+", code))

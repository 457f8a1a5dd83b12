"""The names of what stands beside a file for phones."""

from pathlib import Path


def companions(file: Path) -> tuple[str, str]:
    """Of the JSON that says what the file is, and of the folder with what an app and its tests need."""
    return f"{file.stem}.json", f"{file.stem}.files"

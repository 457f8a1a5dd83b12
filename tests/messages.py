"""What a message must name, whatever its wording: values, option names, keys and files."""

import re

NUMBER = re.compile(r"\d[\d.,]*")


def pattern(part: object) -> str:
    """Of a number the whole number, so that 4 is not found in 24, 4.5 or gw4; of anything else its text."""
    text = re.escape(str(part))
    return rf"(?<![\w.]){text}(?!\w|[.,]\d)" if NUMBER.fullmatch(str(part)) else text


def mentions(message: str, *parts: object) -> bool:
    """Whether a message holds every part; an assertion error lists those that it lacks."""
    missing = [str(part) for part in parts if not re.search(pattern(part), message)]
    assert not missing, f"{missing} not in: {message}"
    return True


def mentioning(*parts: object) -> str:
    """A pattern for `pytest.raises(match=…)` of messages that hold every part, in any order."""
    return "(?s)" + "".join(f"(?=.*{pattern(part)})" for part in parts)

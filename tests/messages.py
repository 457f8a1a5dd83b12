"""What a message must name, whatever its wording: values, option names, keys and files."""

import re


def mentions(message: str, *parts: object) -> bool:
    """Whether a message holds every part; an assertion error lists those that it lacks."""
    missing = [str(part) for part in parts if str(part) not in message]
    assert not missing, f"{missing} not in: {message}"
    return True


def mentioning(*parts: object) -> str:
    """A pattern for `pytest.raises(match=…)` of messages that hold every part, in any order."""
    return "(?s)" + "".join(f"(?=.*{re.escape(str(part))})" for part in parts)

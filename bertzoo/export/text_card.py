"""The parts of a model card that differ for a file that takes texts."""

from collections.abc import Iterator, Mapping
from typing import Any

from bertzoo.core import markdown

_CLASSES = {"classifier": "TextClassifier", "embedder": "TextEmbedder"}


def mediapipe_steps(description: Mapping[str, Any]) -> list[str]:
    """Return sentences for app developers: the task to load, how to prepare a text, and how to test the app."""
    proof, head = description["mediapipe"], description["head"]
    (length,) = {one["length"] for one in description["signatures"].values()}
    several = head.get("problem_type") == "multi_label_classification"
    total = "one for each label on its own" if several else "they sum to 1"
    result = {
        "classifier": f"the categories are the labels, and their scores are probabilities ({total}).",
        "embedder": "one embedding; compare texts by the cosine (`TextEmbedder.cosineSimilarity`).",
    }
    return [
        f"Load: this file is the whole model of MediaPipe's `{_CLASSES[proof['task']]}`, with vocabulary and labels: "
        "`com.google.mediapipe:tasks-text` on Android, `MediaPipeTasksText` on iOS, `@mediapipe/tasks-text` on the "
        "web, `mediapipe` in Python.",
        f"Text: one string. Before the task gets it, {_preparation(description)}. bertzoo's tokenizer does so, "
        "MediaPipe's does not.",
        f"Length: the task keeps the first {length - 2} tokens of a longer text. It takes no pairs of texts.",
        f"Result: {result[proof['task']]}",
        "Test: `golden.json` has texts and the outputs of the file. Give the task the texts, and compare the scores.",
    ]


def onnx_steps(description: Mapping[str, Any], result: str) -> list[str]:
    """Return sentences for app developers as `mediapipe_steps` does. result: the sentence on the outputs."""
    proof, longest = description["text"], description["lengths"]["longest"]
    return [
        f"Load: register the library of onnxruntime-extensions {proof['version']} in the session's options before ONNX "
        "Runtime opens the file: `com.microsoft.onnxruntime:onnxruntime-extensions-android` on Android, "
        "`onnxruntime-extensions-c` on iOS, `onnxruntime-extensions` in Python.",
        f"Text: `text` holds one string (1), or the two of a pair (2). Before the file gets a string, "
        f"{_preparation(description)}. The file's tokenizer does so for Western European letters only.",
        f"Length: the file cuts a row to {longest} tokens, and keeps the last [SEP].",
        result,
        "Test: `golden.json` has texts and the outputs of the file. Give the file the texts, and compare the outputs.",
    ]


def _preparation(description: Mapping[str, Any]) -> str:
    """Return a clause on how an app prepares a text, as `golden.prepared` does."""
    normalization = description["tokenizer"]["normalization"]
    rules = ["make a space of white space", "remove the Unicode categories Cc, Cf and Co and U+FFFD"]
    rules += ["normalise to NFD and remove the category Mn"] * normalization["strip_accents"]
    rules += ["lower-case each character on its own"] * normalization["lowercase"]
    return f"{', '.join(rules[:-1])}, and {rules[-1]} (`normalize` in bertzoo's `examples/android`)"


def token_differences(proof: Mapping[str, Any]) -> Iterator[str]:
    """Yield Markdown: how a file was tested on texts, and a table of texts that it tokenises differently from training.

    proof: the entry "mediapipe" or "text" of the file's metadata JSON.
    """
    tokenizer = f"The {_CLASSES[proof['task']]} of mediapipe" if "task" in proof else "onnxruntime-extensions"
    count, left = len(proof["differences"]), len(proof["prepared_differences"])
    yield (
        f"{tokenizer} {proof['version']} ran this file on {proof['texts']} texts. The results differ from those on the "
        f"same ids by at most {proof['largest_difference']:.2g}. Plain English is tokenised as in training. Of "
        f"{proof['tricky']} texts with other characters, {count} are tokenised differently, and {left} if the app "
        "prepares them as above."
    )
    if count:
        yield ""
        rows = [
            [_visible(one["text"]), *(_visible(" ".join(one[side])) for side in ("ours", "theirs"))]
            for one in proof["differences"]
        ]
        yield markdown.table(["text", "tokens in training", "the file's tokens"], rows)


def _visible(text: str) -> str:
    """Return a text as code with invisible characters escaped."""
    shown = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
    return f"`{shown}`"

"""Write model cards in Hugging Face's format for exported files (from the metadata JSON) and for model directories."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from bertzoo.conversion import sentence_modules
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import config, tables
from bertzoo.core.documents import read_json
from bertzoo.core.errors import visible
from bertzoo.core.version import __version__
from bertzoo.export.options import LITERT
from bertzoo.heads import KINDS
from bertzoo.heads.labels import threshold_rule
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.metrics import is_threshold

# Others have their own name.
_LIBRARIES = {"huggingface": "transformers", "onnx-text": "onnx"}
_DATASETS = {**dict.fromkeys(GLUE, "nyu-mll/glue"), "squad1": "rajpurkar/squad", "squad2": "rajpurkar/squad_v2"}
_METRICS = {"matthews": "matthews_correlation", "pearson": "pearsonr", "spearman": "spearmanr"}  # others: own name
_NAMES = {"huggingface": "Hugging Face", "pytorch": "PyTorch"}
_SOURCES = {
    "run": "a pretraining run",
    "finetune": "a fine-tuning run",
    "prune": "a pruning run",
    "huggingface": "a Hugging Face directory",
    "tensorflow": "a TensorFlow 1 checkpoint",
}
_LICENSES = {"apache license": "apache-2.0", "mit license": "mit", "the mit license (mit)": "mit"}  # by first line
_LICENSE_IDS = ("apache-2.0", "mit", "cc0-1.0", "bsd-2-clause", "bsd-3-clause", "gpl-3.0", "mpl-2.0", "openrail")
_TEXT_TASKS = {"classifier": "TextClassifier", "embedder": "TextEmbedder"}  # of MediaPipe
_UNKNOWN_LICENSE = (
    "The licence is unknown: the source of the weights states none. `bertzoo convert --license=…` records one."
)
_LIMITS = (
    "For each length, {rows} sequences of {texts} ran in this file ({precision}, {runtime}'s runtime on the machine "
    "that wrote it) and in the model (float32, JAX). The largest error is the largest absolute difference between an "
    "output's values in the file and in the model. The cosine compares all values of the output as one vector. A file "
    "is not written if an error exceeds {error:g} times the output's largest value, or a cosine is below {cosine:g}."
)
_TEXTS = (
    "{tokenizer} {version} ran this file on {texts} texts. The results differ from those on the same ids by at most "
    "{largest_difference:.2g}. Plain English is tokenised as in training. Of {tricky} texts with other characters, "
    "{count} are tokenised differently, and {left} if the app prepares them as above."
)


def card(name: str, description: Mapping[str, Any]) -> str:
    """Return an exported file's model card in Markdown. description: the content of the file's metadata JSON."""
    scores, flops = description["scores"], description.get("flops")
    errors = [
        [signature, output, f"{of['max_error']:.2g}", f"{of['largest']:.3g}", f"{of['cosine']:.6f}"]
        + ([f"{flops[signature]:,}"] if flops else [])
        for signature, measured in description["signatures"].items()
        for output, of in measured["outputs"].items()
    ]
    head = ["signature", "output", "largest error", "of values up to", "cosine", *["FLOPs"] * bool(flops)]
    litert = description["format"] in LITERT
    limits = _LIMITS.format(
        rows=next(iter(description["signatures"].values()))["rows"],
        texts="random ids" if description["sentences"] == "random ids" else "English sentences",
        precision=description["precision"],
        runtime="litert" if litert else description["format"],
        **description["limits"],
    )
    differences = [tables.markdown(head, errors), limits]
    if scores:
        points = ", ".join(
            f"{metric} {value:.2f} (the model's {scores['model'][metric]:.2f})"
            for _, metric, value in _points({"": scores["file"]})
        )
        examples = f"{scores['examples']:,} of {scores['of']:,} examples"
        differences.append(f"{scores['task']}, {scores['split']}, {examples}: {points}.")
    sections = {
        "Use": "\n".join(f"{number}. {step}" for number, step in enumerate(use_steps(description), 1)),
        "Licence": _license(description["source"]),
        "Differences from the source model": "\n\n".join(differences),
        "Texts": _texts(description.get("mediapipe") or description.get("text")),
        "Operators": _delegated(description),
    }
    return _page(name, description, {scores["split"]: scores["file"]} if scores else {}, sections)


def directory_card(directory: Path, name: str, form: str, pretrained: Pretrained, origin: Mapping[str, Any]) -> str:
    """Return README.md of a model directory whose other files are complete.

    directory: it may have a temporary name.
    name: the directory's final name.
    form: the directory's format.
    origin: the model's source, such as path and task.
    """
    scores: Mapping[str, Mapping[str, float]] = origin.get("scores", {})
    description = {
        "bertzoo": __version__,
        "format": form,
        "parameters": pretrained.parameter_count,
        "layers": pretrained.model.layers,
        "model": config.plain(pretrained.model),
        "head": config.plain(pretrained.head),
        "source": origin,
    }
    use = ["```", f"bertzoo convert {name} {name}.tflite --to=litert", "```"]
    if (directory / sentence_modules.MODULES).is_file():
        loads = ["from sentence_transformers import SentenceTransformer", "", f'model = SentenceTransformer("{name}")']
        use = ["```python", *loads, 'vectors = model.encode(["A text.", "Another text."])', "```"]
    elif form == "huggingface":
        (model,) = read_json(directory / "config.json")["architectures"]
        classes = ["AutoTokenizer", model] if (directory / "tokenizer.json").is_file() else [model]
        loads = [f'{"model" if one == model else "tokenizer"} = {one}.from_pretrained("{name}")' for one in classes]
        use = ["```python", f"from transformers import {', '.join(classes)}", "", *loads, "```"]
    elif form == "pytorch":
        use = ["```python", "from modeling_bertzoo import load  # of this directory", "", f'model = load("{name}")']
        use.append("```")
    rows = [[split, metric, f"{value:.2f}"] for split, metric, value in _points(scores)]
    sections = {
        "Use": "\n".join(use),
        "Scores": tables.markdown(["split", "metric", "points"], rows) if rows else "",
        "Licence": _license(origin),
    }
    return _page(name, description, scores, sections)


def _page(
    name: str, description: Mapping[str, Any], scores: Mapping[str, Mapping[str, float]], sections: Mapping[str, str]
) -> str:
    """Return a card: its metadata, title and summary, and the sections that have a text, by title."""
    head, model, form, source = (description[key] for key in ("head", "model", "format", "source"))
    summary = (
        f"A {model['kind']} model of {description['layers']} layers"
        + (f", a hidden size of {model['hidden_size']}" if "hidden_size" in model else "")
        + f" and {description['parameters']:,} parameters with the head {head['kind']}, "
        + (
            f"as {'an' if form[0] in 'aeiou' else 'a'} {form} file of {description['bytes'] / 1e6:,.1f} MB in "
            f"{description['precision']}"
            if "bytes" in description
            else f"in {_NAMES.get(form, form)}'s format"
        )
        + f", written by bertzoo {description['bertzoo']}."
        + (f" Its labels are {', '.join(map(str, head['labels']))}." if head.get("labels") else "")
        + (f" Running it takes {size / 1e6:,.1f} MB of memory." if (size := description.get("memory")) else "")
        + (f" SHA-256 {description['sha256']}." if "sha256" in description else "")
    )
    left_out = ("format", "license", "own", "prompts", "scores")
    details = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in source.items() if key not in left_out)
    blocks = [
        f"---\n{metadata(name, description, scores).to_yaml().rstrip()}\n---",
        f"# {name}",
        summary,
        f"Made from {_SOURCES.get(source.get('format', ''), 'a model')} ({details}).",
        *(f"## {title}\n\n{text}" for title, text in sections.items() if text),
    ]
    return "\n\n".join(blocks) + "\n"


def _points(scores: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, str, float]]:
    """Yield (split, metric, points) of every score that is no threshold."""
    for split, values in scores.items():
        yield from ((split, metric, value) for metric, value in values.items() if not is_threshold(metric))


def metadata(
    name: str, description: Mapping[str, Any], scores: Mapping[str, Mapping[str, float]] | None = None
) -> ModelCardData:
    """Return a card's metadata for the Hugging Face Hub. scores: points by split and metric."""
    head, source, form = description["head"]["kind"], description["source"], description["format"]
    task, pipeline, precision = source.get("task"), KINDS[head].pipeline, description.get("precision", "fp32")
    dataset, (license, license_name) = _DATASETS.get(task), _license_id(source.get("license"))
    results = [
        EvalResult(
            task_type=pipeline or "other",
            dataset_type=dataset or "other",
            dataset_name=str(task),
            dataset_config=task if task in GLUE else None,
            dataset_split=split,
            metric_type=_METRICS.get(metric, metric),
            metric_name=f"{metric} in points",
            metric_value=round(value, 2),
        )
        for split, metric, value in _points(scores or {})
    ]
    tags = ["bertzoo", description["model"]["kind"], *["tflite"] * (form in LITERT)]
    return ModelCardData(
        license=license,
        license_name=license_name,
        language=source.get("language"),
        library_name="sentence-transformers"
        if (head, form) == ("embedding", "huggingface")
        else _LIBRARIES.get(form, form),
        pipeline_tag=pipeline,
        base_model=source.get("base_model"),
        datasets=[dataset] if dataset else None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        tags=[*tags, *[precision] * (precision != "fp32")],
        model_name=name if results else None,  # required with eval_results
        eval_results=results or None,
    )


def _license_id(license: str | None) -> tuple[str, str | None]:
    """Return (Hugging Face's identifier of a licence, None) or, if there is none, ("other", the licence's name)."""
    if not license:
        return "unknown", None
    known = _LICENSES.get(license.lower(), license.lower())
    if known in _LICENSE_IDS or known.startswith("cc-by"):
        return known, None
    return "other", re.sub(r"[^a-z0-9.]+", "-", known).strip("-")


def _license(source: Mapping[str, Any]) -> str:
    license = source.get("license")
    stated = f"{license} for the weights, as stated by their source or by the person who converted them."
    return stated if license else _UNKNOWN_LICENSE


def use_steps(description: Mapping[str, Any]) -> list[str]:
    """Return sentences for app developers: how to tokenise, build and pad a sequence, read outputs and test the app."""
    tokenizer, source, head = description["tokenizer"], description["source"], KINDS[description["head"]["kind"]]
    task, rules = GLUE.get(source.get("task")), tokenizer["normalization"]
    if "mediapipe" in description:
        return _mediapipe_steps(description, _preparation(rules))
    result = f"Result: {head.result(description, task and task.range)}"
    if "text" in description:
        return _onnx_steps(description, _preparation(rules), result)
    kind = {"wordpiece": "WordPiece", "sentencepiece": "SentencePiece", "byte_bpe": "byte pairs"}[tokenizer["kind"]]
    case = "Lower-case the text" if rules["lowercase"] else "Keep upper and lower case"
    accents = "strip accents" if rules["strip_accents"] else "keep accents"
    chinese = "" if rules.get("split_cjk", True) else ", do not split Chinese characters"
    special = {name: f"{one['token']} ({one['id']})" for name, one in tokenizer["specials"].items()}
    cls, sep = special["cls"], special["sep"]
    single, pair = f"{cls} text {sep}", f"{cls} A {sep} B {sep}"
    if head.form == "question":
        row = f"{cls} question {sep} text {sep}"
    elif task is not None:
        row = pair if task.pair else single
    else:
        row = single if head.form == "text" else f"{single}, or of a pair {pair}"
    types = f" `token_type_ids` are 0 up to the first {sep.split()[0]}, 1 behind it."
    types *= "token_type_ids" in description["inputs"]
    if "masked_positions" in head.inputs:
        types += f" A blank is {special['mask']}; `masked_positions` (1,1) holds its position, counted from 0."
    lengths = [str(one["length"]) for one in description["signatures"].values()]
    span, fill = description.get("lengths", {"shortest": 0, "longest": 0}), "Fill it with"
    if span["shortest"] != span["longest"]:
        size, fill = f"Sequences have {span['shortest']} to {span['longest']} tokens", "Padding, if any, is"
    elif len(lengths) == 1:
        size = f"Every sequence has {lengths[0]} tokens"
    else:
        size = f"Run the shortest of {', '.join(lengths)} tokens that holds the sequence"
    library = "" if "algorithm" in tokenizer else " `tokenizer.json` does this and the next step."
    trained = f" (training had at most {source['max_length']})" if source.get("max_length") else ""
    return [
        f"Tokens: {case}, {accents}{chinese}, and split it with {kind} (`{tokenizer['file']}`, "
        f"{tokenizer['entries']:,} tokens).{library}",
        f"Sequence: `input_ids` are {row}.{types}",
        f"Length: {size}{trained}. {fill} {special['pad']}; `attention_mask` is 1 for tokens and 0 for padding. Cut "
        f"longer texts, but keep the last {sep}. All inputs are int32 with a first axis of 1.",
        result,
        "Test: `golden.json` has texts with their ids, and the outputs of the file and of the model. Compare your ids "
        "with its ids, then your outputs with those of the file.",
    ]


def _preparation(rules: Mapping[str, bool]) -> str:
    """Return a clause on how an app prepares a text for the file's tokenizer, as `golden.prepared` does."""
    steps = ["make a space of white space", "remove the Unicode categories Cc, Cf and Co and U+FFFD"]
    steps += ["normalise to NFD and remove the category Mn"] * rules["strip_accents"]
    steps += ["lower-case each character on its own"] * rules["lowercase"]
    return f"{', '.join(steps[:-1])}, and {steps[-1]} (`normalize` in bertzoo's `examples/android`)"


def _mediapipe_steps(description: Mapping[str, Any], preparation: str) -> list[str]:
    task = description["mediapipe"]["task"]
    (length,) = {one["length"] for one in description["signatures"].values()}
    several = description["head"].get("problem_type") == "multi_label_classification"
    total = "one for each label alone" if several else "they sum to 1"
    result = {
        "classifier": f"the categories are the labels, and their scores are probabilities ({total})."
        + threshold_rule(description["head"]),
        "embedder": "one embedding; compare texts by the cosine (`TextEmbedder.cosineSimilarity`).",
    }
    return [
        f"Load: this file is the whole model of MediaPipe's `{_TEXT_TASKS[task]}`, with vocabulary and labels: "
        "`com.google.mediapipe:tasks-text` on Android, `MediaPipeTasksText` on iOS, `@mediapipe/tasks-text` on the "
        "web, `mediapipe` in Python.",
        f"Text: one string. Before the task gets it, {preparation}. bertzoo's tokenizer does so, MediaPipe's does not.",
        f"Length: the task keeps the first {length - 2} tokens of a longer text. It takes no pairs of texts.",
        f"Result: {result[task]}",
        "Test: `golden.json` has texts and the outputs of the file. Give the task the texts, and compare the scores.",
    ]


def _onnx_steps(description: Mapping[str, Any], preparation: str, result: str) -> list[str]:
    return [
        f"Load: register the library of onnxruntime-extensions {description['text']['version']} in the session's "
        "options before ONNX Runtime opens the file: `com.microsoft.onnxruntime:onnxruntime-extensions-android` on "
        "Android, `onnxruntime-extensions-c` on iOS, `onnxruntime-extensions` in Python.",
        f"Text: `text` holds one string (1), or the two of a pair (2). Before the file gets a string, {preparation}. "
        "The file's tokenizer does so for Western European letters only.",
        f"Length: the file cuts a sequence to {description['lengths']['longest']} tokens, and keeps the last [SEP].",
        result,
        "Test: `golden.json` has texts and the outputs of the file. Give the file the texts, and compare the outputs.",
    ]


def _texts(proof: Mapping[str, Any] | None) -> str:
    """Return Markdown on how a file was tested on texts; proof: "mediapipe" or "text" of its metadata JSON."""
    if not proof:
        return ""
    tokenizer = f"The {_TEXT_TASKS[proof['task']]} of mediapipe" if "task" in proof else "onnxruntime-extensions"
    different, left = proof["differences"], len(proof["prepared_differences"])
    tested = _TEXTS.format(tokenizer=tokenizer, count=len(different), left=left, **proof)
    columns = ((one["text"], " ".join(one["ours"]), " ".join(one["theirs"])) for one in different)
    rows = [[f"`{visible(text)}`" for text in texts] for texts in columns]
    return "\n\n".join(
        [tested, *[tables.markdown(["text", "tokens in training", "the file's tokens"], rows)] * bool(rows)]
    )


def _delegated(description: Mapping[str, Any]) -> str:
    """Return Markdown: how many nodes of an ExecuTorch file XNNPACK takes, and the others; "" for other formats."""
    if "delegated" not in description:
        return ""
    taken, nodes, partitions = (description[name] for name in ("delegated", "nodes", "delegates"))
    left = ", ".join(f"{name} {times}" for name, times in description["not_delegated"].items())
    return f"XNNPACK takes {taken} of {nodes} nodes, in {partitions} partitions." + (
        f"\nLeft to the runtime: {left}." if left else ""
    )

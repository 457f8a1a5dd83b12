"""Write model cards in Hugging Face's format for exported files (from the metadata JSON) and for model directories."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core import config, markdown
from bertzoo.core.documents import read_json
from bertzoo.core.version import __version__
from bertzoo.export.options import LITERT
from bertzoo.export.text_card import mediapipe_steps, onnx_steps, token_differences
from bertzoo.heads import KINDS
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.metrics import is_threshold

# Others have their own name.
_LIBRARIES = {"huggingface": "transformers", "torch-export": "pytorch", "torchscript": "pytorch", "onnx-text": "onnx"}
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


def card(name: str, description: Mapping[str, Any]) -> str:
    """Return an exported file's model card in Markdown. description: the content of the file's metadata JSON."""
    head = ["signature", "output", "largest error", "of values up to", "cosine", *["FLOPs"] * ("flops" in description)]
    differences, scores = [markdown.table(head, _errors(description)), _limits(description)], description["scores"]
    if scores:
        points = ", ".join(
            f"{metric} {value:.2f} (the model's {scores['model'][metric]:.2f})"
            for _, metric, value in _points({"": scores["file"]})
        )
        examples = f"{scores['examples']:,} of {scores['of']:,} examples"
        differences.append(f"{scores['task']}, {scores['split']}, {examples}: {points}.")
    proof = description.get("mediapipe") or description.get("text")
    sections = {
        "Use": "\n".join(f"{number}. {step}" for number, step in enumerate(use_steps(description), 1)),
        "Licence": _license(description["source"]),
        "Differences from the source model": "\n\n".join(differences),
        "Texts": "\n".join(token_differences(proof)) if proof else "",
        "Operators": "\n".join(_operators(description)),
    }
    return _page(name, description, {scores["split"]: scores["file"]} if scores else {}, sections)


def write_directory_card(
    directory: Path, name: str, form: str, pretrained: Pretrained, origin: Mapping[str, Any]
) -> None:
    """Write README.md into a model directory whose other files are complete.

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
    rows = [[split, metric, f"{value:.2f}"] for split, metric, value in _points(scores)]
    sections = {
        "Use": "\n".join(_directory_use(directory, name, form)),
        "Scores": markdown.table(["split", "metric", "points"], rows) if rows else "",
        "Licence": _license(origin),
    }
    (directory / "README.md").write_text(_page(name, description, scores, sections), encoding="utf-8")


def _page(
    name: str,
    description: Mapping[str, Any],
    scores: Mapping[str, Mapping[str, float]],
    sections: Mapping[str, str],
) -> str:
    """Return a card: its metadata, title and summary, and the sections that have a text, by title."""
    header = f"---\n{metadata(name, description, scores).to_yaml().rstrip()}\n---"
    parts = [header, f"# {name}", _summary(description), f"Made from {_source(description['source'])}."]
    return "\n\n".join([*parts, *(f"## {title}\n\n{text}" for title, text in sections.items() if text)]) + "\n"


def _points(scores: Mapping[str, Mapping[str, float]]) -> Iterator[tuple[str, str, float]]:
    """Yield (split, metric, points) of every score that is no threshold."""
    for split, values in scores.items():
        yield from ((split, metric, value) for metric, value in values.items() if not is_threshold(metric))


def _directory_use(directory: Path, name: str, form: str) -> list[str]:
    """Return Markdown lines: code that loads a model directory, or a command that converts one in bertzoo's format."""
    match form:
        case "huggingface":
            (model,) = read_json(directory / "config.json")["architectures"]
            classes = ["AutoTokenizer", model] if (directory / "tokenizer.json").is_file() else [model]
            loads = [f'{"model" if one == model else "tokenizer"} = {one}.from_pretrained("{name}")' for one in classes]
            return ["```python", f"from transformers import {', '.join(classes)}", "", *loads, "```"]
        case "pytorch":
            code = ["from modeling_bertzoo import load  # of this directory", "", f'model = load("{name}")']
            return ["```python", *code, "```"]
        case _:
            return ["```", f"bertzoo convert {name} {name}.tflite --to=litert", "```"]


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
    return ModelCardData(
        license=license,
        license_name=license_name,
        language=source.get("language"),
        library_name=_LIBRARIES.get(form, form),
        pipeline_tag=pipeline,
        base_model=source.get("base_model"),
        datasets=[dataset] if dataset else None,
        metrics=list(dict.fromkeys(result.metric_type for result in results)) or None,
        tags=[
            "bertzoo",
            description["model"]["kind"],
            *["tflite"] * (form in LITERT),
            *[precision] * (precision != "fp32"),
        ],
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


def use_steps(description: Mapping[str, Any]) -> list[str]:
    """Return sentences for app developers: how to tokenise, build and pad a row, read the outputs and test the app."""
    if "mediapipe" in description:
        return mediapipe_steps(description)
    if "text" in description:
        return onnx_steps(description, _outputs(description))
    return [
        _tokens(description["tokenizer"]),
        _row(description),
        _padding(description),
        _outputs(description),
        "Test: `golden.json` has texts with their ids, and the outputs of the file and of the model. Compare your ids "
        "with its ids, then your outputs with those of the file.",
    ]


def _tokens(tokenizer: Mapping[str, Any]) -> str:
    rules, kind = tokenizer["normalization"], {"wordpiece": "WordPiece", "sentencepiece": "SentencePiece"}
    case = "Lower-case the text" if rules["lowercase"] else "Keep upper and lower case"
    accents = "strip accents" if rules["strip_accents"] else "keep accents"
    chinese = "" if rules.get("split_cjk", True) else ", do not split Chinese characters"
    return (
        f"Tokens: {case}, {accents}{chinese}, and cut it with {kind[tokenizer['kind']]} (`{tokenizer['file']}`, "
        f"{tokenizer['entries']:,} entries). `tokenizer.json` does this and the next step."
    )


def _row(description: Mapping[str, Any]) -> str:
    specials, head, task = _specials(description), KINDS[description["head"]["kind"]], description["source"].get("task")
    cls, sep = specials["cls"], specials["sep"]
    single, pair = f"{cls} text {sep}", f"{cls} A {sep} B {sep}"
    if head.form == "question":
        row = f"{cls} question {sep} text {sep}"
    elif task in GLUE:
        row = pair if GLUE[task].pair else single
    else:
        row = single if head.form == "text" else f"{single}, or of a pair {pair}"
    types = ""
    if "token_type_ids" in description["inputs"]:
        types = f" `token_type_ids` are 0 up to the first {sep.split()[0]}, 1 behind it."
    if "masked_positions" in head.inputs:
        types += f" A blank is {specials['mask']}; `masked_positions` (1,1) holds its place, counted from 0."
    return f"Row: `input_ids` are {row}.{types}"


def _padding(description: Mapping[str, Any]) -> str:
    lengths = [str(one["length"]) for one in description["signatures"].values()]
    specials, span = _specials(description), description.get("lengths", {"shortest": 0, "longest": 0})
    if span["shortest"] != span["longest"]:
        size, fill = f"Rows have any length from {span['shortest']} to {span['longest']} tokens", "Padding, if any, is"
    elif len(lengths) == 1:
        size, fill = f"Every row has {lengths[0]} tokens", "Fill it with"
    else:
        size, fill = f"Run the shortest of {', '.join(lengths)} tokens that holds the row", "Fill it with"
    longest = description["source"].get("max_length")
    trained = f" (training had at most {longest})" if longest else ""
    return (
        f"Length: {size}{trained}. {fill} {specials['pad']}; `attention_mask` is 1 for tokens and 0 for padding. Cut "
        f"longer texts, but keep the last {specials['sep']}. All inputs are int32 with a first axis of 1."
    )


def _outputs(description: Mapping[str, Any]) -> str:
    task = description["source"].get("task")
    limits = GLUE[task].range if task in GLUE else None
    return f"Result: {KINDS[description['head']['kind']].result(description, limits)}"


def _specials(description: Mapping[str, Any]) -> dict[str, str]:
    """Return special tokens with their ids by name, such as {"cls": "[CLS] (2)"}."""
    return {
        name: f"{special['token']} ({special['id']})" for name, special in description["tokenizer"]["specials"].items()
    }


def _license(source: Mapping[str, Any]) -> str:
    if license := source.get("license"):
        return f"{license} for the weights, as stated by their source or by the person who converted them."
    return "The licence is unknown: the source of the weights states none. `bertzoo convert --license=…` records one."


def _limits(description: Mapping[str, Any]) -> str:
    """Return sentences that explain a card's error table and state the limits that a file's errors must meet."""
    rows, limits = next(iter(description["signatures"].values()))["rows"], description["limits"]
    runtime = "litert" if description["format"] in LITERT else description["format"]
    texts = "random ids" if description["sentences"] == "random ids" else "English sentences"
    return (
        f"For each length, {rows} rows of {texts} ran in this file ({description['precision']}, "
        f"{runtime}'s runtime on the machine that wrote it) and in the model (float32, JAX). The largest "
        "error is the largest absolute difference between an output's values in the file and in the model. The cosine "
        "compares all values of the output as one vector. A file is not written if an error exceeds "
        f"{limits['error']:g} times the output's largest value, or a cosine is below {limits['cosine']:g}."
    )


def _summary(description: Mapping[str, Any]) -> str:
    head, model, kind = description["head"], description["model"], description["format"]
    width = f", {model['hidden_size']} units" if "hidden_size" in model else ""
    form = f"in {_NAMES.get(kind, kind)}'s format"
    if "bytes" in description:
        article, size = "an" if kind[0] in "aeiou" else "a", f"{description['bytes'] / 1e6:,.1f} MB"
        form = f"as {article} {kind} file of {size} in {description['precision']}"
    labels = f" Its labels are {', '.join(map(str, head['labels']))}." if head.get("labels") else ""
    memory = f" Running it takes {size / 1e6:,.1f} MB of memory." if (size := description.get("memory")) else ""
    hashed = f" SHA-256 {description['sha256']}." if "sha256" in description else ""
    return (
        f"A {model['kind']} model of {description['layers']} layers{width} and {description['parameters']:,} "
        f"parameters with the head {head['kind']}, {form}, written by bertzoo {description['bertzoo']}."
        f"{labels}{memory}{hashed}"
    )


def _source(source: Mapping[str, Any]) -> str:
    left_out = ("format", "license", "own", "scores")
    details = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in source.items() if key not in left_out)
    return f"{_SOURCES.get(source.get('format', ''), 'a model')} ({details})"


def _errors(description: Mapping[str, Any]) -> Iterator[list[str]]:
    for signature, measured in description["signatures"].items():
        for output, errors in measured["outputs"].items():
            cells = [f"{errors['max_error']:.2g}", f"{errors['largest']:.3g}", f"{errors['cosine']:.6f}"]
            flops = [f"{description['flops'][signature]:,}"] if "flops" in description else []
            yield [signature, output, *cells, *flops]


def _operators(description: Mapping[str, Any]) -> Iterator[str]:
    """Yield Markdown on the operators: a table of the first graph's, and what XNNPACK runs of them, if known."""
    if "operators" in description:
        delegated = description.get("xnnpack")
        head = ["operator", "times", *["by XNNPACK"] * bool(delegated)]
        cells = description["operators"].items()
        counts = delegated["operators"] if delegated else {}
        yield markdown.table(head, ([name, str(times), str(counts.get(name, 0))][: len(head)] for name, times in cells))
        if delegated:
            yield ""
            yield f"XNNPACK takes them in {delegated['parts']} part{'s' * (delegated['parts'] != 1)}."
    if "delegated" in description:  # an ExecuTorch file
        nodes, parts = description["nodes"], description["delegates"]
        yield f"XNNPACK takes {description['delegated']} of {nodes} nodes, in {parts} parts."
        if left := description["not_delegated"]:
            yield f"Left to the runtime: {', '.join(f'{name} {times}' for name, times in left.items())}."

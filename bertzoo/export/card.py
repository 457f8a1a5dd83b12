"""The model card of a file for phones, from the description in its JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

from bertzoo.core import markdown
from bertzoo.tasks.metrics import is_threshold


def card(name: str, description: Mapping[str, Any]) -> str:
    """The card as Markdown; `name` is the file's, `description` the content of its JSON."""
    first = next(iter(description["signatures"].values()))
    rows = "random ids" if description["sentences"] == "random ids" else "English sentences"
    lines = [
        f"# {name}",
        "",
        _summary(description),
        "",
        f"Made from {_source(description['source'])}.",
        "",
        "## Beside the model it was made from",
        "",
        markdown.table(
            [
                "signature",
                "output",
                "largest error",
                "of values up to",
                "cosine",
                *["FLOPs"] * ("flops" in description),
            ],
            _errors(description),
        ),
        "",
        f"Rows are {first['rows']} a length, of {rows}. An error may be {description['limits']['error']:g} of an "
        "output's largest value.",
    ]
    if scores := description["scores"]:
        points = ", ".join(
            f"{metric} {value:.2f} (the model's {scores['model'][metric]:.2f})"
            for metric, value in scores["file"].items()
            if not is_threshold(metric)
        )
        examples = f"{scores['examples']:,} of {scores['of']:,} examples"
        lines += ["", f"{scores['task']}, {scores['split']}, {examples}: {points}."]
    if "operators" in description:
        lines += ["", "## Operators", "", *_operators(description)]
    if "delegated" in description:
        lines += ["", "## Operators", "", *_delegation(description)]
    lines += [
        "",
        "`golden.json` has texts with their ids and outputs, to test an app with; docs/phone.md explains how.",
    ]
    return "\n".join(lines) + "\n"


def _summary(description: Mapping[str, Any]) -> str:
    head, model, kind = description["head"], description["model"], description["format"]
    width = f" and {model['hidden_size']} units" if "hidden_size" in model else ""
    labels = f" Its labels are {', '.join(map(str, head['labels']))}." if head.get("labels") else ""
    memory = f" Running it takes {size / 1e6:,.1f} MB of memory." if (size := description.get("memory")) else ""
    return (
        f"A {model['kind']} model of {description['layers']} layers{width} and {description['parameters']:,} "
        f"parameters, head {head['kind']}, as {'an' if kind[0] in 'aeiou' else 'a'} {kind} file of "
        f"{description['bytes'] / 1e6:,.1f} MB in {description['precision']}, written by bertzoo "
        f"{description['bertzoo']}.{labels}{memory} SHA-256 {description['sha256']}."
    )


def _source(source: Any) -> str:
    if isinstance(source, Mapping):
        source = ", ".join(f"{key} {value}" for key, value in source.items())
    return str(source or "a model of unknown origin")


def _errors(description: Mapping[str, Any]) -> Iterator[list[str]]:
    for signature, measured in description["signatures"].items():
        for output, errors in measured["outputs"].items():
            cells = [f"{errors['max_error']:.2g}", f"{errors['largest']:.3g}", f"{errors['cosine']:.6f}"]
            flops = [f"{description['flops'][signature]:,}"] if "flops" in description else []
            yield [signature, output, *cells, *flops]


def _operators(description: Mapping[str, Any]) -> Iterator[str]:
    """Operators of the first graph, with how many of each XNNPACK runs if that is known."""
    delegated = description.get("xnnpack")
    yield markdown.table(
        ["operator", "times", *["by XNNPACK"] * bool(delegated)],
        (
            [operator, str(times), *([str(delegated["operators"].get(operator, 0))] if delegated else [])]
            for operator, times in description["operators"].items()
        ),
    )
    if delegated:
        yield ""
        yield f"XNNPACK takes them in {delegated['parts']} part{'s' * (delegated['parts'] != 1)}."


def _delegation(description: Mapping[str, Any]) -> Iterator[str]:
    """ExecuTorch: what XNNPACK runs, and the operators that it leaves."""
    nodes, parts = description["nodes"], description["delegates"]
    yield f"XNNPACK takes {description['delegated']} of {nodes} nodes, in {parts} parts."
    if left := description["not_delegated"]:
        yield f"Left to the runtime: {', '.join(f'{name} {times}' for name, times in left.items())}."

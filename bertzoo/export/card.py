"""What a person is told of a file for phones: its model card, out of what its JSON says."""

from collections.abc import Iterator, Mapping
from typing import Any

from bertzoo.core import markdown
from bertzoo.tasks.metrics import is_threshold


def card(name: str, said: Mapping[str, Any]) -> str:
    """Markdown; `name` is the file's, `said` what its JSON holds."""
    head, model = said["head"], said["model"]
    labels = f", whose labels are {', '.join(map(str, head['labels']))}" if head.get("labels") else ""
    lines = [
        f"# {name}",
        "",
        f"A {model['kind']} model of {said['layers']} layers{_width(model)} and {said['parameters']:,} parameters,"
        f" head {head['kind']}{labels}, as {_article(said['format'])} file of {said['bytes'] / 1e6:,.1f} MB in"
        f" {said['precision']}, written by bertzoo {said['bertzoo']}.{_memory(said)} SHA-256 {said['sha256']}.",
        "",
        "Made from " + (_source(said["source"]) or "a model whose origin is not known") + ".",
        "",
        "## Beside the model it was made from",
        "",
        markdown.table(
            ["signature", "output", "largest error", "of values up to", "cosine", *["FLOPs"] * ("flops" in said)],
            _measured(said),
        ),
        "",
        f"Rows are {said['signatures'][next(iter(said['signatures']))]['rows']} a length, of "
        + ("random ids." if said["sentences"] == "random ids" else "English sentences.")
        + f" An error may be {said['limits']['error']:g} of an output's largest value.",
    ]
    if scores := said["scores"]:
        points = ", ".join(
            f"{metric} {value:.2f} (the model's {scores['model'][metric]:.2f})"
            for metric, value in scores["file"].items()
            if not is_threshold(metric)
        )
        asked = f"{scores['examples']:,} of {scores['of']:,} examples"
        lines += ["", f"{scores['task']}, {scores['split']}, {asked}: {points}."]
    if "operators" in said:
        lines += ["", "## Operators", "", *_operators(said)]
    if "delegated" in said:
        lines += ["", "## Operators", "", *_left(said)]
    lines += [
        "",
        "`golden.json` has texts with their ids and outputs, on which an app is tested; docs/phone.md says how.",
    ]
    return "\n".join(lines) + "\n"


def _article(word: str) -> str:
    return f"an {word}" if word[0] in "aeiou" else f"a {word}"


def _left(said: Mapping[str, Any]) -> Iterator[str]:
    """ExecuTorch: what XNNPACK takes, and the operators that it leaves."""
    yield f"XNNPACK takes {said['delegated']} of {said['nodes']} nodes, in {said['delegates']} parts."
    if said["not_delegated"]:
        yield (
            "Left to the runtime: "
            + ", ".join(f"{name} {times}" for name, times in said["not_delegated"].items())
            + "."
        )


def _memory(said: Mapping[str, Any]) -> str:
    return f" Running it takes {said['memory'] / 1e6:,.1f} MB of memory at its longest." if "memory" in said else ""


def _width(model: Mapping[str, Any]) -> str:
    return f" and {model['hidden_size']} units" if "hidden_size" in model else ""


def _source(source: Any) -> str:
    return (
        ", ".join(f"{key} {value}" for key, value in source.items())
        if isinstance(source, Mapping)
        else str(source or "")
    )


def _measured(said: Mapping[str, Any]) -> Iterator[list[str]]:
    for signature, one in said["signatures"].items():
        for output, figures in one["outputs"].items():
            cells = [
                signature,
                output,
                f"{figures['max_error']:.2g}",
                f"{figures['largest']:.3g}",
                f"{figures['cosine']:.6f}",
            ]
            cells += [f"{said['flops'][signature]:,}"] if "flops" in said else []
            yield cells


def _operators(said: Mapping[str, Any]) -> Iterator[str]:
    """Of the first graph, with how many of each XNNPACK takes where that is known."""
    delegated = said.get("xnnpack")
    yield markdown.table(
        ["operator", "times", *["by XNNPACK"] * bool(delegated)],
        (
            [operator, str(times), *([str(delegated["operators"].get(operator, 0))] if delegated else [])]
            for operator, times in said["operators"].items()
        ),
    )
    if delegated:
        yield ""
        yield f"XNNPACK takes them in {delegated['parts']} part{'s' * (delegated['parts'] != 1)}."

"""The model card of a file for phones, from the description in its JSON."""

from collections.abc import Iterator, Mapping
from typing import Any

from bertzoo.core import markdown
from bertzoo.tasks.glue import GLUE
from bertzoo.tasks.metrics import is_threshold

SPANS = ("span", "joint_span")


def card(name: str, description: Mapping[str, Any]) -> str:
    """The card as Markdown; `name` is the file's, `description` the content of its JSON."""
    head = ["signature", "output", "largest error", "of values up to", "cosine", *["FLOPs"] * ("flops" in description)]
    lines = [
        f"# {name}",
        "",
        _summary(description),
        "",
        f"Made from {_source(description['source'])}.",
        "",
        "## Use",
        "",
        *(f"{number}. {step}" for number, step in enumerate(use_steps(description), 1)),
        "",
        "## Licence",
        "",
        _license(description["source"]),
        "",
        "## Differences from the model it was made from",
        "",
        markdown.table(head, _errors(description)),
        "",
        _limits(description),
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
    return "\n".join(lines) + "\n"


def use_steps(description: Mapping[str, Any]) -> list[str]:
    """How an app reads text with the file: tokens, row, padding, outputs, and how to test it."""
    return [
        _tokens(description["tokenizer"]),
        _row(description),
        _padding(description),
        _outputs(description),
        "Test: `golden.json` has texts with their ids and the outputs of the file and of the model (docs/phone.md).",
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
    specials, kind, task = _specials(description), description["head"]["kind"], description["source"].get("task")
    cls, sep = specials["cls"], specials["sep"]
    single, pair = f"{cls} text {sep}", f"{cls} A {sep} B {sep}"
    if kind in SPANS:
        row = f"{cls} question {sep} text {sep}"
    elif task in GLUE:
        row = pair if GLUE[task].pair else single
    else:
        row = single if kind == "token_classification" else f"{single}, or of a pair {pair}"
    types = ""
    if "token_type_ids" in description["inputs"]:
        types = f" `token_type_ids` are 0 up to the first {sep.split()[0]}, 1 behind it."
    if kind == "masked":
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
    head, source = description["head"], description["source"]
    order = ", ".join(f"`{label}`" for label in head.get("labels", ()))
    match head["kind"]:
        case "sequence_classification" if head.get("problem_type") == "regression" or len(head["labels"]) == 1:
            scale, task = float(source.get("scale", 1)), source.get("task")
            limits = GLUE[task].range if task in GLUE else None
            held = f", limited to {limits[0]:g} to {limits[1]:g}" if limits else ""
            return f"Result: `logits` (1,1) times {scale:g} is the number{held}; no softmax."
        case "sequence_classification":
            several = head.get("problem_type") == "multi_label_classification"
            function = "the sigmoid of each is the probability" if several else "their softmax is the probabilities"
            return f"Result: `logits` (1,{len(head['labels'])}); {function} of the labels in this order: {order}."
        case "token_classification":
            return (
                f"Result: `logits` (1,length,{len(head['labels'])}); the softmax over the last axis is the "
                f"probabilities of the tags in this order: {order}. A word has the tag of its first token."
            )
        case "span" | "joint_span" as kind:
            return f"Result: {_answer(kind, description['decoding'])}"
        case "masked":
            entries = description["tokenizer"]["entries"]
            result = f"the softmax of the first {entries:,} `masked_logits` is the probabilities of the token ids."
            return f"Result: {result}{_sentence_head(description)}"
        case "replaced":
            return "Result: `logits` (1,length); a token whose logit is above 0 (sigmoid above 0.5) was replaced."
        case _:
            pooling = {"mean": "the mean of the tokens' states", "first": "the pooled first token"}
            return f"Result: `embedding` is {pooling[description['pooling']]}; compare texts by the cosine. No softmax."


def _sentence_head(description: Mapping[str, Any]) -> str:
    """What the two classes of a masked model's second head are; empty without one."""
    if not description["head"].get("sentence"):
        return ""
    classes = {"sop": ("B follows A", "A follows B"), "nsp": ("B follows A", "B is from another text")}
    true, false = classes.get(description["source"].get("sentence"), ("B continues A", "it does not"))
    return f" Of a pair, the softmax of `sentence_logits` (1,2) is the probabilities that {true} and that {false}."


def _answer(kind: str, decoding: Mapping[str, Any]) -> str:
    """How an answer is found in the outputs of a head for questions."""
    text = f"inside the text, with the end at most {decoding['longest'] - 1} tokens behind the start"
    if kind == "span":
        none = f"there is no answer if the first token's sum is higher by more than {decoding['threshold']:g}"
        score = "the start and end with the largest sum of `start_logits` and `end_logits` (1,length)"
    else:
        none = f"there is no answer if `null_logit` is above {decoding['threshold']:g}"
        score = (
            "the start k and end with the largest sum of the log-softmax of `start_logits` at `starts`[k] and of "
            "`end_logits`[k]"
        )
    nulls = f"; {none}" if decoding["nulls"] else ""
    return f"{score}, {text}, are the first and last token of the answer{nulls}."


def _specials(description: Mapping[str, Any]) -> dict[str, str]:
    """Every special token with its id, as `[CLS] (2)`."""
    return {
        name: f"{special['token']} ({special['id']})" for name, special in description["tokenizer"]["specials"].items()
    }


def _license(source: Mapping[str, Any]) -> str:
    if license := source.get("license"):
        return f"Of the weights: {license}, as stated by their source or by who converted them."
    return "Of the weights: unknown; their source states none. `bertzoo convert --license=…` records one."


def _limits(description: Mapping[str, Any]) -> str:
    """What the columns of errors mean, and what the conversion allows."""
    rows, limits = next(iter(description["signatures"].values()))["rows"], description["limits"]
    texts = "random ids" if description["sentences"] == "random ids" else "English sentences"
    return (
        f"The largest error is the largest absolute difference of any value of the output, on {rows} rows of {texts} a "
        f"length, between this file ({description['precision']}, {description['format']}'s runtime on the machine that "
        "wrote it) and the model in float32 (JAX). The cosine is that of all those values as one vector. A file whose "
        f"error exceeds {limits['error']:g} times the largest value, or whose cosine is below {limits['cosine']:g}, is "
        "not written."
    )


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
        source = ", ".join(f"{key} {value}" for key, value in source.items() if key not in ("license", "own"))
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

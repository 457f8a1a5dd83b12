# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""Write .onnx files by PyTorch, in float32.

A file that takes texts has a graph with BERT's tokenizer, followed by the model's. The tokenizer is an operator of
onnxruntime-extensions: https://github.com/microsoft/onnxruntime-extensions/blob/main/docs/custom_text_ops.md
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from string import Template
from typing import Any

import numpy as np

from bertzoo.conversion import pytorch
from bertzoo.conversion.pretrained import Pretrained
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.export.check import golden
from bertzoo.export.failure import REWRITE, tool_errors
from bertzoo.export.runtimes import EXTENSIONS, OnnxText
from bertzoo.runs.runner import Runner

DIMENSION = "length"
Rows = Mapping[str, np.ndarray]

Operators = dict[str, int]  # count of each operator, the most frequent first


def onnx(pretrained: Pretrained, rows: Rows, lengths: Sequence[int]) -> tuple[bytes, Operators]:
    """Return the bytes of an .onnx file and the counts of its operators.

    rows: example inputs by name.
    lengths: the only length that the file accepts, or the shortest and the longest, in tokens.

    Raises ExportFailed if the exporter rejects the model.
    """
    import torch

    from bertzoo.export.pytorch import phone_module  # imports torch

    with tool_errors("torch's ONNX exporter"):
        description = pytorch.describe_module(pretrained.module()[0])
        params = {path.replace("/", "."): torch.from_numpy(array) for path, array in pretrained.params.items()}
        module = phone_module.Phone(pytorch.modeling().make(description, params.pop, ""), tuple(rows))
        tensors = tuple(torch.from_numpy(np.ascontiguousarray(row)) for row in rows.values())
        outputs, shapes = list(module(*tensors)), None
        if len(lengths) > 1:
            length = torch.export.Dim(DIMENSION, min=lengths[0], max=lengths[-1])
            # A tuple of one tuple, because `forward` takes all inputs as one parameter.
            shapes = (tuple({} if name == "masked_positions" else {1: length} for name in rows),)
        exported = torch.export.export(module, tensors, dynamic_shapes=shapes)
        program = torch.onnx.export(exported, tensors, input_names=list(rows), verbose=False)
        assert program is not None
        operators = _rename(program.model, outputs)
        content = program.model_proto.SerializeToString()
    return content, operators


def _rename(model: Any, outputs: Sequence[str]) -> Operators:
    """Name outputs as in `outputs`, other values uniquely, drop metadata; return the counts of operators."""
    for number, node in enumerate(model.graph):
        node.name = f"node_{number}"
        node.metadata_props.clear()
        node.doc_string = None
        for index, value in enumerate(node.outputs):
            value.name = f"value_{number}_{index}"
            value.metadata_props.clear()
            value.shape = value.shape if value in model.graph.outputs else None
    for value, name in zip(model.graph.outputs, outputs, strict=True):
        value.name = name
    for value in (*model.graph.inputs, *model.graph.outputs):
        value.shape = type(value.shape)([size if isinstance(size, int) else DIMENSION for size in value.shape])
    return dict(Counter(node.op_type for node in model.graph).most_common())


PACKAGES = ("torch", "onnx", "onnxscript", "onnxruntime", EXTENSIONS)
TOLERANCE = 1e-5  # largest error of a file's outputs for texts, as `golden.check_same` measures it
# The tokenizer's graph, which comes before the model's. It cuts a row to `longest` tokens, keeping [SEP] at its end,
# and pads it to `shortest` tokens. Names that start with text_ are no names of the model's graph.
_TOKENIZER = Template("""
<ir_version: $ir_version, opset_import: ["": $opset, "ai.onnx.contrib": 1]>
tokenizer (string[texts] text)
    => (int32[1, length] input_ids, int32[1, length] token_type_ids, int32[1, length] attention_mask)
    <int64[1] text_zero = {0}, int64[1] text_last = {-1}, int64[1] text_end = {$end}, int64 text_pad = {$pad},
     int64[1] text_shortest = {$shortest}, int64[1] text_longest = {$longest}, int64[1] text_before_last = {$before}>
{
    text_ids, text_types, text_mask = ai.onnx.contrib.BertTokenizer (text)
    text_inner = Slice (text_ids, text_zero, text_last)
    text_cut = Slice (text_inner, text_zero, text_before_last)
    text_sep = Slice (text_ids, text_last, text_end)
    text_cut_ids = Concat <axis = 0> (text_cut, text_sep)
    text_cut_types = Slice (text_types, text_zero, text_longest)
    text_cut_mask = Slice (text_mask, text_zero, text_longest)
    text_size = Shape (text_ids)
    text_missing = Sub (text_shortest, text_size)
    text_padding = Max (text_missing, text_zero)
    text_pads = Concat <axis = 0> (text_zero, text_padding)
    text_row_ids = Pad (text_cut_ids, text_pads, text_pad)
    text_row_types = Pad (text_cut_types, text_pads)
    text_row_mask = Pad (text_cut_mask, text_pads)
    text_batch_ids = Unsqueeze (text_row_ids, text_zero)
    text_batch_types = Unsqueeze (text_row_types, text_zero)
    text_batch_mask = Unsqueeze (text_row_mask, text_zero)
    input_ids = Cast <to = 6> (text_batch_ids)
    token_type_ids = Cast <to = 6> (text_batch_types)
    attention_mask = Cast <to = 6> (text_batch_mask)
}
""")


def onnx_text(pretrained: Pretrained, rows: Rows, lengths: Sequence[int]) -> tuple[bytes, Operators]:
    """Return the bytes of an .onnx file whose input is `text`, and the counts of its operators.

    `text` holds one string, in shape (1), or the two strings of a pair, in shape (2). Arguments and errors are as in
    `onnx`.
    """
    import onnx as package

    content, _ = onnx(pretrained, rows, lengths)
    assert pretrained.tokenizer is not None
    with tool_errors("onnx.compose"):
        model = package.load_from_string(content)
        inputs, outputs = ([value.name for value in ports] for ports in (model.graph.input, model.graph.output))
        tokenizer = _tokenizer_graph(pretrained.tokenizer, lengths[0], lengths[-1], model)
        merged = package.compose.merge_models(tokenizer, model, [(name, name) for name in inputs], outputs=outputs)
        # `split` needs the types of the ids.
        untyped = {*inputs} - {value.name for value in merged.graph.value_info}
        merged.graph.value_info.extend(value for value in tokenizer.graph.output if value.name in untyped)
    operators = Counter(node.op_type for node in merged.graph.node)
    return merged.SerializeToString(), dict(operators.most_common())


def _tokenizer_graph(tokenizer: Tokenizer, shortest: int, longest: int, model: Any) -> Any:
    """Return an ONNX model that turns texts into a row of `shortest` to `longest` tokens, in `model`'s ONNX version."""
    import onnx

    (opset,) = (one.version for one in model.opset_import if one.domain == "")
    graph = onnx.parser.parse_model(
        _TOKENIZER.substitute(
            ir_version=model.ir_version,
            opset=opset,
            pad=tokenizer.specials.pad,
            shortest=shortest,
            longest=longest,
            before=longest - 1,
            end=np.iinfo(np.int64).max,
        )
    )
    rules = tokenizer.config.normalization
    # The operator skips empty lines. No token has a space, so a space stands for an empty token.
    tokens = (tokenizer.token(index) or " " for index in range(tokenizer.vocab_size))
    attributes = {
        "vocab_file": "\n".join(tokens),
        "do_lower_case": int(rules["lowercase"]),
        "strip_accents": int(rules["strip_accents"]),
        "tokenize_chinese_chars": int(rules["split_cjk"]),
    }
    graph.graph.node[0].attribute.extend(onnx.helper.make_attribute(*pair) for pair in attributes.items())
    return graph


def split(file: Path) -> tuple[bytes, bytes]:
    """Return an `onnx_text` file's graphs: the tokenizer, from texts to ids, and the model, from ids to outputs."""
    import onnx

    with tool_errors("onnx", "the file", REWRITE):
        model = onnx.load(file)
        ports = ("input_ids", "token_type_ids", "attention_mask")
        inputs = [value.name for value in model.graph.value_info if value.name in ports]
        extract = onnx.utils.Extractor(model).extract_model
        outputs = [value.name for value in model.graph.output]
        graphs = extract(["text"], inputs), extract(inputs, outputs)
        return graphs[0].SerializeToString(), graphs[1].SerializeToString()


def check_texts(
    file: Path, run: Runner, pretrained: Pretrained, lengths: Sequence[int], longest: int
) -> dict[str, Any]:
    """Compare a file's outputs for texts with its model's outputs for the ids that bertzoo makes of these texts.

    A text that the file tokenises differently from bertzoo is compared on the file's ids. Returns entries of the file's
    metadata JSON.

    run: the model inside the file. lengths: row lengths to which golden.json pads, shortest first. longest: tokens of
    the file's longest row.

    Raises ExportFailed if an output differs, or if the file tokenises plain English differently from bertzoo.
    """
    tokenizer, runtime = pretrained.tokenizer, "onnxruntime-extensions"
    assert tokenizer is not None
    full = golden.long_text(longest)
    plain = [*golden.TEXTS, ("",), (full,), (full, golden.QUESTION), (golden.QUESTION, full)]
    inputs = golden.tokenizer_texts(tokenizer, plain)
    tokens, model, pairs, theirs = OnnxText(split(file)[0]), OnnxText(file), [], []
    for texts in inputs:
        row, (ids, types) = tokens.run(texts), golden.cut_texts(tokenizer, texts, longest)
        theirs.append(row["input_ids"][0, : row["attention_mask"].sum()])
        if not np.array_equal(ids, theirs[-1]):
            ids, types = theirs[-1], np.zeros_like(theirs[-1])
        length = next((length for length in lengths if length >= len(ids)), longest)
        padded = golden.pad_row(row, tokenizer, ids, types, length)
        expected, outputs = run({name: array[None] for name, array in padded.items()}), model.run(texts)
        pairs += [(outputs[name], array) for name, array in expected.items()]
    differences = golden.token_differences(runtime, tokenizer, plain, theirs, longest)
    worst = golden.check_same(pairs, TOLERANCE, "the file", "onnx")
    return {"version": version(runtime), "texts": len(inputs), "largest_difference": worst, **differences}

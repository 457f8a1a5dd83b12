# pyright: reportMissingImports=false, reportMissingModuleSource=false
"""Pack LiteRT files for MediaPipe's text tasks, which take a string, and run these tasks to check a file.

MediaPipe finds the tokenizer and the labels by the metadata in a file (mediapipe/tasks/metadata/metadata_schema.fbs).
"""

import importlib.util
import io
import json
import runpy
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from bertzoo.conversion.pretrained import Pretrained
from bertzoo.core.child import start_python
from bertzoo.core.documents import parse_json
from bertzoo.data.tokenizers.vocabulary import Tokenizer
from bertzoo.export.check import golden
from bertzoo.export.failure import ExportFailed
from bertzoo.export.litert import flatbuffer, write
from bertzoo.runs.runner import Runner

PROCESS = Path(__file__).with_name("mediapipe_process.py")
# Names by which MediaPipe finds a model's inputs, by ours in the order of its default.
NAMES = {"input_ids": "ids", "token_type_ids": "segment_ids", "attention_mask": "mask"}
VOCABULARY, LABELS = "vocab.txt", "labels.txt"
PARSER = "1.1.0"  # version of the metadata schema that first had BertTokenizerOptions
TOLERANCE = 1e-3  # largest error of a task's results, as `golden.check_same` measures it


def task_name(pretrained: Pretrained) -> str:
    """Return the name of the task that runs a model: "classifier", or "embedder" if its head embeds texts."""
    return "embedder" if pretrained.head.kind == "embedding" else "classifier"


class TaskGraph(struct.PyTreeNode):
    """A model's graph as MediaPipe expects it: three inputs, and probabilities instead of logits.

    graph: a training graph or an export graph. function: from logits to probabilities, "softmax", "sigmoid" or, for
    embeddings, "none".
    """

    graph: Any
    function: str = struct.field(pytree_node=False)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the inputs, int32 arrays of shape (L). `token_type_ids` is always among them."""
        return tuple(NAMES)

    @property
    def model(self) -> Any:
        """The Linen model, if `graph` is a training graph."""
        return self.graph.model

    def __call__(self, **inputs: jax.Array) -> dict[str, jax.Array]:
        outputs = self.graph(**{name: inputs[name] for name in self.graph.inputs})
        match self.function:
            case "softmax":
                return {"probabilities": jax.nn.softmax(outputs["logits"], axis=-1)}
            case "sigmoid":
                return {"probabilities": jax.nn.sigmoid(outputs["logits"])}
        return outputs


class _Echo(struct.PyTreeNode):
    """A graph whose embedding (L) shows how MediaPipe tokenises a text: id + 1 at a token, 0 at padding."""

    @property
    def inputs(self) -> tuple[str, ...]:
        return tuple(NAMES)

    def __call__(self, **inputs: jax.Array) -> dict[str, jax.Array]:
        ids_L = inputs["input_ids"] + inputs["token_type_ids"] + 1
        return {"embedding": (ids_L * inputs["attention_mask"]).astype(jnp.float32)}


def packed(content: bytes, tokenizer: Tokenizer, labels: Sequence[str]) -> bytes:
    """Add MediaPipe's metadata, the vocabulary and any labels to a LiteRT file that has one signature."""
    files = {VOCABULARY: tokenizer.contents}
    if labels:
        files[LABELS] = "".join(f"{label}\n" for label in labels).encode()
    (ports,) = flatbuffer.ports(content).values()
    order = [name for name, _, _ in ports["inputs"]]
    whole = flatbuffer.with_metadata(content, "TFLITE_METADATA", _metadata(order, bool(labels)))
    stream = io.BytesIO(whole)
    with zipfile.ZipFile(stream, "a", zipfile.ZIP_STORED) as archive:
        for name, data in files.items():
            archive.writestr(zipfile.ZipInfo(name), data)  # without a date, so that the same model gives the same file
    return stream.getvalue()


def _metadata(order: Sequence[str], labelled: bool) -> bytes:
    """Return MediaPipe's metadata as a flatbuffer; order: names of the inputs, labelled: whether labels follow."""
    # Only the file of the schema: the package imports TensorFlow for its documentation, and Keras writes into ~/.keras.
    package = importlib.util.find_spec("mediapipe")
    assert package is not None and package.submodule_search_locations
    schema = Path(package.submodule_search_locations[0], "tasks", "metadata", "metadata_schema_py_generated.py")
    types: Any = SimpleNamespace(**runpy.run_path(str(schema)))
    vocabulary = types.AssociatedFileT(name=VOCABULARY, type=types.AssociatedFileType.VOCABULARY)
    tokenizer = types.BertTokenizerOptionsT(vocabFile=[vocabulary])
    unit = types.ProcessUnitT(optionsType=types.ProcessUnitOptions.BertTokenizerOptions, options=tokenizer)
    inputs = [types.TensorMetadataT(name=NAMES[name]) for name in order]
    output = types.TensorMetadataT(name="probability" if labelled else "embedding")
    if labelled:
        labels = types.AssociatedFileT(name=LABELS, type=types.AssociatedFileType.TENSOR_AXIS_LABELS)
        output.associatedFiles = [labels]
    graph = types.SubGraphMetadataT(inputTensorMetadata=inputs, outputTensorMetadata=[output], inputProcessUnits=[unit])
    model = types.ModelMetadataT(subgraphMetadata=[graph], minParserVersion=PARSER)
    return flatbuffer.to_bytes(model, b"M001")


def check_task(file: Path, run: Runner, pretrained: Pretrained, length: int) -> dict[str, Any]:
    """Compare MediaPipe's results for texts with the outputs of `run`, the file in LiteRT, for MediaPipe's ids.

    The texts are `golden.tokenizer_texts`, an empty text, and one longer than the row. Returns entries of the JSON.
    Raises ExportFailed if a result, a label's name or the tokens of plain English differ.
    """
    assert pretrained.tokenizer is not None
    tokenizer, name = pretrained.tokenizer, task_name(pretrained)
    plain = [*(texts for texts in golden.TEXTS if len(texts) == 1), ("",), (golden.long_text(length),)]
    texts = [text for (text,) in golden.tokenizer_texts(tokenizer, plain)]
    with tempfile.TemporaryDirectory() as folder:
        echo = Path(folder) / "echo.tflite"
        echo.write_bytes(packed(write.convert(_Echo(), (length,)), tokenizer, ()))
        answer = _run_tasks([("embedder", echo, texts), (name, file, texts)])
    labels = [*pretrained.head.labels]
    if answer["labels"][1] != labels:
        raise ExportFailed(
            f"MediaPipe's {name} names the labels {answer['labels'][1]}, but the model's are {labels}. Use --to=litert."
        )
    pairs, theirs = [], []
    for echoed, result in zip(*answer["results"], strict=True):
        ids = np.array([round(value) - 1 for value in echoed if value], np.int32)
        row = golden.pad_row(NAMES, tokenizer, ids, 0 * ids, length)
        (expected,) = run({key: array[None] for key, array in row.items()}).values()
        pairs.append((np.array(result), expected[0]))
        theirs.append(ids)
    worst = golden.check_same(pairs, TOLERANCE, f"MediaPipe's {name}", "litert")
    return {
        "task": name,
        "version": answer["version"],
        "texts": len(texts),
        "largest_difference": worst,
        **golden.token_differences("MediaPipe", tokenizer, plain, theirs, length),
    }


def _run_tasks(jobs: Sequence[tuple[str, Path, Sequence[str]]]) -> dict[str, Any]:
    """Run MediaPipe's tasks in another process; return what mediapipe_process.py prints.

    jobs: (name of the task, file, texts). Raises ExportFailed if MediaPipe rejects a file.
    """
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with start_python([str(PROCESS)], text=True, **pipes) as process:
        output, errors = process.communicate(json.dumps(jobs, default=str))
    answer = parse_json(output or "{}")
    if "results" not in answer:
        reason = answer.get("error") or errors[-300:] or f"its process ended with {process.returncode}"
        raise ExportFailed(f"MediaPipe does not take the file: {' '.join(reason.split())[:300]}. Use --to=litert.")
    return answer

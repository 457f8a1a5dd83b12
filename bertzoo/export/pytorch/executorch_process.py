# pyright: reportMissingImports=false
"""Write and run ExecuTorch files, in a Python that has executorch and safetensors; needs no bertzoo.

    python executorch_process.py make       read a request, write its file, print a description
    python executorch_process.py run FILE   load FILE with one thread and print {}; then print outputs for each row

Requests and rows are lines of JSON on stdin; answers are lines of JSON on stdout. An error is {"error": text}.
"""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

OUTPUTS = "output_names"  # method that returns the outputs' names, since a .pte file does not store them
INPUTS = "input_names"


def make_file(request: Mapping[str, Any]) -> dict[str, Any]:
    """Write the .pte file request["file"] and return how many of its nodes XNNPACK runs and does not run.

    Other keys of `request`: "directory", written by `bertzoo convert --to=pytorch`; "rows", example inputs by name;
    "int8", whether weights become int8.
    """
    sys.path.insert(0, request["directory"])
    import modeling_bertzoo
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.devtools.backend_debug import get_delegation_info
    from executorch.exir import to_edge_transform_and_lower
    from phone_module import Int8Table, Phone, spell_out

    rows = {name: torch.tensor(row, dtype=torch.int32) for name, row in request["rows"].items()}
    model = modeling_bertzoo.load(request["directory"])
    # XNNPACK has only the erf gelu and would replace the tanh gelu by it.
    spell_out(model, modeling_bertzoo.FUNCTIONS["gelu_tanh"])
    module = Phone(model, tuple(rows))
    names = list(module(*rows.values()))
    if request["int8"]:
        embedding = module.model.embedding
        embedding.word = Int8Table(embedding.word)
    exported = torch.export.export(module, tuple(rows.values()))
    if request["int8"]:
        exported = int8_dense(exported, tuple(rows.values()))
    methods = {INPUTS: ",".join(rows), OUTPUTS: ",".join(names)}
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()], constant_methods=methods)
    counted = get_delegation_info(lowered.exported_program().graph_module)
    Path(request["file"]).write_bytes(lowered.to_executorch().buffer)
    left = {name: one.non_delegated for name, one in counted.delegation_by_operator.items() if one.non_delegated}
    return {
        "nodes": counted.num_delegated_nodes + counted.num_non_delegated_nodes,
        "delegated": counted.num_delegated_nodes,
        "delegates": counted.num_delegated_subgraphs,
        "not_delegated": dict(sorted(left.items(), key=lambda pair: -pair[1])),
    }


def int8_dense(exported: Any, example: tuple[Any, ...]) -> Any:
    """Return an exported program with dense kernels in int8, with a scale per output channel.

    The program scales activations at run time. Convolutions, norms and products of activations stay in float32.
    """
    import torch
    from executorch.backends.xnnpack.quantizer import xnnpack_quantizer
    from torchao.quantization.pt2e import quantize_pt2e

    int8 = xnnpack_quantizer.get_symmetric_quantization_config(is_per_channel=True, is_dynamic=True)
    quantizer = xnnpack_quantizer.XNNPACKQuantizer().set_operator_type(torch.ops.aten.linear.default, int8)
    prepared = quantize_pt2e.prepare_pt2e(exported.module(), quantizer)
    prepared(*example)  # observes the kernels
    return torch.export.export(quantize_pt2e.convert_pt2e(prepared), example)


def open_program(file: str, threads: int) -> tuple[list[str], list[str], Any]:
    """Load a .pte file, to be run with `threads` threads.

    Return the names of its inputs, those of its outputs, and the method that takes and returns tensors in that order.
    """
    from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
    from executorch.runtime import Runtime

    _unsafe_reset_threadpool(threads)
    program = Runtime.get().load_program(file)
    inputs, outputs = (program.load_method(name).execute([])[0].split(",") for name in (INPUTS, OUTPUTS))
    return inputs, outputs, program.load_method("forward")


def run_file(file: str, answer: Callable[[Mapping[str, Any]], None]) -> None:
    """Call answer({}) once the file is loaded, then answer({"outputs": …}) for each line of stdin."""
    import torch

    inputs, outputs, method = open_program(file, 1)
    answer({})
    for line in sys.stdin:
        row = json.loads(line)
        results = method.execute([torch.tensor(row[name], dtype=torch.int32) for name in inputs])
        arrays = {name: array.numpy() for name, array in zip(outputs, results, strict=True)}
        described = {name: (str(array.dtype), array.shape, array.ravel().tolist()) for name, array in arrays.items()}
        answer({"outputs": described})


def main(task: str, file: str = "") -> int:
    """Run the task "make", or "run" with a file; return the exit code. What libraries print goes to stderr."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def answer(message: Mapping[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    try:
        if task == "make":
            answer(make_file(json.loads(sys.stdin.readline())))
        else:
            run_file(file, answer)
    except Exception as error:  # the parent process reports it
        answer({"error": str(error) or type(error).__name__})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

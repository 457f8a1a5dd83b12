# pyright: reportMissingImports=false
"""ExecuTorch's part of an export, in a Python that has executorch, and safetensors, but need not have bertzoo.

    python executorch_process.py make         a request on stdin (a line of JSON) -> a file; a line that says what it is
    python executorch_process.py run FILE N   a line that it is read, then for each line of stdin one with its outputs

A line that is an error has `error` alone.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

OUTPUTS = "output_names"  # a method of the file, as the outputs themselves have no names; those of the inputs are
INPUTS = "input_names"


def make(request: Mapping[str, Any]) -> dict[str, Any]:
    """Write request["file"] from request["directory"], which --to=pytorch wrote; `rows`: an example of the inputs."""
    sys.path.insert(0, request["directory"])
    import modeling_bertzoo
    import torch
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.devtools.backend_debug import get_delegation_info
    from executorch.exir import to_edge_transform_and_lower
    from phone_module import phone, spell_out

    rows = {name: torch.tensor(row, dtype=torch.int32) for name, row in request["rows"].items()}
    model = modeling_bertzoo.load(request["directory"])
    # XNNPACK has gelu of the error function alone, and would take it for this one.
    spell_out(model, modeling_bertzoo.FUNCTIONS["gelu_tanh"])
    module = phone(model, tuple(rows), request["pooling"], request["grouped"])
    names = list(module(*rows.values()))
    exported = torch.export.export(module, tuple(rows.values()))
    said = {INPUTS: ",".join(rows), OUTPUTS: ",".join(names)}
    lowered = to_edge_transform_and_lower(exported, partitioner=[XnnpackPartitioner()], constant_methods=said)
    counted = get_delegation_info(lowered.exported_program().graph_module)
    Path(request["file"]).write_bytes(lowered.to_executorch().buffer)
    left = {name: found.non_delegated for name, found in counted.delegation_by_operator.items() if found.non_delegated}
    return {
        "nodes": counted.num_delegated_nodes + counted.num_non_delegated_nodes,
        "delegated": counted.num_delegated_nodes,
        "delegates": counted.num_delegated_subgraphs,
        "not_delegated": dict(sorted(left.items(), key=lambda pair: -pair[1])),
    }


class Opened(NamedTuple):
    """A file that is read: the names of its inputs and outputs, and its method, which takes and gives them in order."""

    inputs: list[str]
    outputs: list[str]
    method: Any


def opened(file: str, threads: int) -> Opened:
    """Read a file."""
    from executorch.extension.pybindings.portable_lib import _unsafe_reset_threadpool
    from executorch.runtime import Runtime

    _unsafe_reset_threadpool(threads)
    program = Runtime.get().load_program(file)
    inputs, outputs = (program.load_method(name).execute([])[0].split(",") for name in (INPUTS, OUTPUTS))
    return Opened(inputs, outputs, program.load_method("forward"))


def run(file: str, threads: int, say: Callable[[Mapping[str, Any]], None]) -> None:
    """Answer rows, each a line [inputs by name, calls], until there are no more."""
    import torch

    inputs, outputs, method = opened(file, threads)
    say({})
    for line in sys.stdin:
        rows, calls = json.loads(line)
        given = [torch.tensor(rows[name], dtype=torch.int32) for name in inputs]
        seconds, found = [], []
        for _ in range(calls):
            start = time.perf_counter()
            found = method.execute(given)
            seconds.append(time.perf_counter() - start)
        arrays = {name: array.numpy() for name, array in zip(outputs, found, strict=True)}
        told = {name: (str(array.dtype), array.shape, array.ravel().tolist()) for name, array in arrays.items()}
        say({"outputs": told, "seconds": seconds})


def main(task: str, *words: str) -> int:
    """Do the task; what the libraries print goes to stderr."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(message: Mapping[str, Any]) -> None:
        channel.write(json.dumps(message) + "\n")
        channel.flush()

    try:
        if task == "make":
            say(make(json.loads(sys.stdin.readline())))
        else:
            run(words[0], int(words[1]), say)
    except Exception as error:  # whatever it is, the other process tells it
        say({"error": str(error) or type(error).__name__})
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

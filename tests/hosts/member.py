"""One of several processes that meet, share, agree and hold a batch: python member.py PORT PROCESSES PROCESS.

Prints one JSON object.
"""

import json
import sys

import jax
import numpy as np

from bertzoo.core.errors import UserError
from bertzoo.train import hosts, sharding
from bertzoo.train.step import put_batch

port, processes, process = sys.argv[1:]
hosts.connect(
    hosts.Cluster(coordinator=f"127.0.0.1:{port}", processes=int(processes), process=int(process), start_timeout=60)
)
said = {"first": hosts.is_first(), "alone": hosts.alone(), "devices": jax.device_count()}
said["shared"] = hosts.share("a number", lambda: 10 + jax.process_index())


def refuse() -> None:
    raise UserError("the file is missing")


try:
    hosts.share("a file", refuse)
except Exception as error:
    said["error"], said["exit_code"] = str(error), error.exit_code  # pyright: ignore[reportAttributeAccessIssue]

agreed = hosts.Agreement()
asked = [None, "SIGTERM" if process == "1" else None, None, "SIGINT" if process == "0" else None, None]
said["agreed"] = [agreed(request) for request in asked]

said["rows"] = {}
for sizes in ((4, 1, 1), (2, 1, 2), (1, 4, 1), (1, 2, 2)):
    mesh = sharding.make_mesh(sharding.Mesh(**dict(zip(("data", "fsdp", "tensor"), sizes, strict=True))))
    whole = np.arange(24, dtype=np.float32).reshape(8, 3) ** 2
    indices = sharding.local_rows(8, mesh)
    batch = put_batch({"x": whole[indices]}, mesh)["x"]
    weighted = jax.jit(lambda x: (x * np.arange(8)[:, None]).sum(), out_shardings=sharding.replicated(mesh))(batch)
    assert batch.shape == (8, 3) and float(weighted) == float((whole * np.arange(8)[:, None]).sum())
    said["rows"][str(sizes)] = indices.tolist()
hosts.barrier("the end", 30)
print(json.dumps(said), flush=True)

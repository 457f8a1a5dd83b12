"""Breaks one thing in the process that it is imported in, as FAULT says; on the path of some tests' processes alone."""

import os
import sys

if "BERTZOO_SUPERVISED_BY" in os.environ and (fault := os.environ.get("FAULT")):
    what, process = fault.split(":")
    if what == "one_key":  # JAX's keys of a CPU's programs differ between processes, unlike those of other devices
        from jax._src import cache_key

        cache_key._hash_accelerator_config = cache_key._hash_devices
    if f"--distributed.process={process}" in sys.argv:
        import errno

        import orbax.checkpoint as ocp

        from bertzoo.runs import run_dir
        from bertzoo.train import contents

        if what == "impatient":
            run_dir._PATIENCE = 3
        if what == "restore":
            usual, broken = ocp.Checkpointer.restore, []

            def restore(self, *args, **options):
                if not broken:
                    broken.append(True)
                    usual(self, *args, **options)  # the others wait for its part
                    raise OSError(errno.EIO, "Input/output error")
                return usual(self, *args, **options)

            ocp.Checkpointer.restore = restore
        if what == "save":

            def full(checkpoint):
                raise OSError(errno.ENOSPC, "No space left on device")

            contents.seal = full

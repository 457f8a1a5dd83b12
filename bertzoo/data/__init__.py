"""From text to batches: sources, tokenizers, the corpus on disk, packing, masking. numpy on the host, no JAX.

`pipeline` opens or makes a corpus and its batches. `batch.array_shapes` has the arrays of a batch, docs/formats.md the
files of a corpus.
"""

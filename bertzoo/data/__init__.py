"""Turn text into batches with numpy on the host, without JAX: sources, tokenizers, corpora, packing, masking.

`pipeline` opens or writes a corpus and builds batches from it; its `array_shapes` lists the arrays of a batch.
docs/formats.md describes the files of a corpus.
"""

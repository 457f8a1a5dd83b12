"""From text to batches: sources, tokenizers, the corpus on disk, packing, masking. numpy on the host, no JAX.

`pipeline` opens or makes a corpus and its batches; docs/formats.md describes a batch and the files of a corpus.
"""

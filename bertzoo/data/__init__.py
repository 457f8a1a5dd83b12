"""Text on disk becomes batches; numpy on the host, no jax.

    # settings.py: the [data] table of a config; pipeline.py opens its corpus, tokenising the source where need be
    data = Data(source="books/*.txt.xz", tokenizer=WordPiece(path="vocab.txt"))
    corpus = open_corpus(data, directory, workers=0, progress=None)
    corpus = tokenize(data, directory, workers=0, progress=None)  # tokenize.py: what `bertzoo tokenize` calls
    corpus = Corpus.open(directory); corpus.verify()  # corpus.py

    # pack.py: the rows of a split for one length and objective, sentence = "none", "nsp" or "sop"; ELECTRA's (packing
    # kind "electra") have two segments and no sentence label
    rows = plan(corpus, "train", data.packing, sentence="sop", max_length=128, seed=0, directory=cache)
    rows.warnings, rows.fallback_share, rows.truncated_tokens, rows.positives

    # pipeline.py: training batches (shuffled, wrapping around) and evaluation batches (in order, once)
    batches = Batches(corpus, "train", rows, data.masking, max_length=128, max_predictions=20, seed=0)
    batches.rows, batches.batch(step, batch_size, slice(8, 16)), batches.describe(step, batch_size)
    batches.steps(batch_size), batches.sequential(step, batch_size)
    for batch in prefetch(lambda step: batches.batch(step, batch_size), start, stop, depth=2): ...
    for batch in ahead(batches, batch_size, start, stop, workers=4): ...  # background.py: the same by processes

    unigram_entropy(corpus)  # entropy.py: two baselines in nats

A batch is `input_ids, token_type_ids, attention_mask` (B, L) int32; `masked_positions, masked_ids` (B, P) int32;
`masked_weights` (B, P) float32; `sentence_label` (B,) int32 when the plan makes pairs; `row_weight` (B,) float32,
0 in rows that only pad. `corpus.tokenizer` has `vocab_size, specials, continuation, encode_batch, decode, token`.
"""

"""Train, save, load and compare WordPiece, SentencePiece and byte BPE tokenizers."""

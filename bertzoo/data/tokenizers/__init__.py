"""Train, save, load and compare WordPiece and SentencePiece tokenizers."""

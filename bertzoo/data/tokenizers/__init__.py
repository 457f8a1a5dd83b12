"""WordPiece and SentencePiece tokenizers: training, encoding, files."""

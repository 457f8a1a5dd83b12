"""Read documents from text files, Parquet, TensorFlow Datasets and installed packages, and mixtures of them."""

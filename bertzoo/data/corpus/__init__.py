"""Write and read tokenised corpora, on disk or in a bucket: shards of tokens, indexes and a manifest."""

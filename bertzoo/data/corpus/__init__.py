"""A tokenised corpus on disk or in a bucket: how it is made, its shards and manifest, how it is read."""

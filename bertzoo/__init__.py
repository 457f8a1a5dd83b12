"""bertzoo: pretrain the phone-sized BERTs from config files and take them to the phone."""

__version__ = "0.1.0"

"""What the figures of a page are of."""

from pathlib import Path


def processor() -> str:
    """The name of this machine's, and whether it multiplies int8 four at a time."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    said = dict(line.split(":", 1) for line in text.split("\n\n")[0].replace("\t", "").splitlines() if ":" in line)
    vectors = [name for name in ("avx512_vnni", "avx_vnni", "avx512f", "avx2") if name in said.get("flags", "").split()]
    return f"{said.get('model name', 'unknown').strip()} ({', '.join(vectors) or 'no vectors that are known of'})"

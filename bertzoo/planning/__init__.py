"""What a run needs and costs on a TPU slice, before there is one."""

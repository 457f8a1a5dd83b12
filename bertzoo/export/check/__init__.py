"""Whether a written file computes what the model does: on sentences, on a task and on a phone.

Golden inputs and outputs for an app's tests are made here too.
"""

"""The command line. Each command has a module that declares its flags and prints its results.

`main` imports only the requested command's module. `support` holds code that several commands share.
"""

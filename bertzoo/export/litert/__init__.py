"""LiteRT files: conversion in a separate process, the interpreter, quantisation."""

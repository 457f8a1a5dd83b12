"""LiteRT files: conversion in a process of its own, the interpreter, quantisation."""

"""Files that deploy Cachew, installed as package data: the container image's build.

Read them with ``importlib.resources.files("cachew_manifests")``.
"""

"""The module after whose import the worker server is started."""

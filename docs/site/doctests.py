"""Let the reference show an example of a docstring as code: `>>>` lines get a fence."""

import re

import griffe

EXAMPLE = re.compile(r"^([ ]*)>>> .*(?:\n\1\S.*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Fence the doctests of every docstring before it is read."""

    def on_object(self, *, obj, **kwargs):
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(fenced, obj.docstring.value)


def fenced(match):
    """Return an example in a fence of its own."""
    indent = match[1]
    return f"{indent}```pycon\n{match[0]}\n{indent}```"

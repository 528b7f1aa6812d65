"""Let the reference show docstrings and signatures as they are meant."""

import re

import griffe

SHARED = re.compile(r"^(    )(\w+(?:, \w+)+): (.*(?:\n {8}.*)*)", re.MULTILINE)
"""Arguments or attributes that share a description."""
EXAMPLE = re.compile(r"^([ ]*)>>> .*(?:\n\1\S.*)*", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Show examples as code, and leave what belongs to the class out of its signature."""

    def on_object(self, *, obj, **kwargs):
        """Fence the doctests of a docstring, and describe each argument on its own."""
        if obj.docstring:
            text = SHARED.sub(described, obj.docstring.value)
            obj.docstring.value = EXAMPLE.sub(fenced, text)

    def on_attribute_instance(self, *, attr, **kwargs):
        """Take a ClassVar without a type for what it is."""
        if str(attr.annotation) == "ClassVar":
            attr.annotation = None


def described(match):
    """Return the same description for each of several names."""
    indent, names, text = match.groups()
    return "\n".join(f"{indent}{name}: {text}" for name in names.split(", "))


def fenced(match):
    """Return an example in a fence of its own."""
    indent = match[1]
    return f"{indent}```pycon\n{match[0]}\n{indent}```"

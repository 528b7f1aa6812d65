"""Let the reference show docstrings and signatures as they are meant."""

import re

import griffe

EXAMPLE = re.compile(r"^([ ]*)>>> .*(?:\n\1\S.*)*", re.MULTILINE)


class Docstrings(griffe.Extension):
    """Show examples as code, and leave what belongs to the class out of its signature."""

    def on_object(self, *, obj, **kwargs):
        """Fence the doctests of a docstring."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(fenced, obj.docstring.value)

    def on_attribute_instance(self, *, attr, **kwargs):
        """Take a ClassVar without a type for what it is."""
        if str(attr.annotation) == "ClassVar":
            attr.annotation = None


def fenced(match):
    """Return an example in a fence of its own."""
    indent = match[1]
    return f"{indent}```pycon\n{match[0]}\n{indent}```"

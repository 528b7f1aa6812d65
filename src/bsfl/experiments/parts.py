"""What the tables of a scenario have in common: pydantic models whose mistakes name their place."""

import inspect
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, ClassVar, Self, TypeVar

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from bsfl import validation
from bsfl._core.registry import REQUIRED, Registry, is_reference, nearest
from bsfl.errors import InvalidInput

M = TypeVar("M", bound=BaseModel)
UNKNOWN = "?"
"""Settings of an object that Python does not show."""
RULE = "rule"
"""Type of an error of one key, whose message names the key."""


class Part(BaseModel):
    """A table of a scenario."""

    model_config = ConfigDict(extra="forbid", frozen=True, arbitrary_types_allowed=True)

    @model_validator(mode="before")
    @classmethod
    def _check_keys(cls, table: Any) -> Any:
        if isinstance(table, cls):
            return table
        if not isinstance(table, Mapping):
            raise InvalidInput(f"expected a table, got {validation.short(table)}")
        if cls.model_config["extra"] == "forbid":
            known_keys(table, cls.model_fields)
        else:
            _check_spelling(table, cls.model_fields)
        return table

    def changed(self, **changes: Any) -> Self:
        """Return this table with some keys changed, after checking it; None removes a key."""
        table = {key: getattr(self, key) for key in self.model_fields_set} | changes
        return checked(type(self), {key: one for key, one in table.items() if one is not None})

    def plain(self) -> dict[str, Any]:
        """Return the table as JSON or TOML can hold it, without keys that have their default."""
        return self.model_dump(mode="json", exclude_defaults=True)


class Named(Part):
    """A table that names a thing of a registry; the other keys are the settings of that thing."""

    model_config = ConfigDict(extra="allow")
    registry: ClassVar[Registry[Any]]
    key: ClassVar[str] = "kind"
    provided: ClassVar[Sequence[str]] = ()
    """Settings that need not be given, as a run knows them."""

    @property
    def name(self) -> str:
        return str(getattr(self, self.key))

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})

    @property
    def is_custom(self) -> bool:
        """Whether a file of the user's own must be executed to make the thing."""
        return any(references([self.name, self.settings]))

    @model_validator(mode="after")
    def _check_settings(self, info: ValidationInfo) -> Self:
        if not is_opened(info):
            check_files([self.name, self.settings])
            if getattr(self, self.key) is not None:
                self.check_settings(self.name)
        return self

    def check_settings(self, name: str) -> None:
        """Check the settings of the thing with this name; those of a custom one when it runs."""
        if is_reference(name):
            return
        known = self.registry.settings(name)
        known_keys(self.settings, (*type(self).model_fields, *known))
        for key, default in known.items():
            is_needed = default is REQUIRED and key not in self.provided
            if is_needed and key not in self.settings:
                raise InvalidInput(f"missing key {key!r}")


class Given(Part):
    """A thing given as an object; a manifest notes its class and settings, not what it does.

    Attributes:
        object: Name of its class, or of the function.
        settings: The object as Python shows it, as dataclasses do with their settings; "": a class
            or a function has none, "?": Python shows nothing that can be compared.
        made: The object; None where a manifest was read.
    """

    object: str
    settings: str = ""
    made: Any = Field(None, exclude=True, repr=False)

    @classmethod
    def of(cls, thing: Any) -> Self:
        """Return the table that holds an object."""
        if isinstance(thing, type) or inspect.isroutine(thing):
            is_known = thing.__name__ != "<lambda>" and not getattr(thing, "__closure__", None)
            return cls(object=thing.__qualname__, settings="" if is_known else UNKNOWN, made=thing)
        shown = repr(thing)  # of other objects it is an address, and long arrays are cut
        is_known = not re.search(r" at 0x|\.\.\.", shown)
        kind = type(thing).__qualname__
        return cls(object=kind, settings=shown if is_known else UNKNOWN, made=thing)

    @property
    def name(self) -> str:
        return self.object

    @property
    def is_custom(self) -> bool:
        """Whether the object is not there, so that only a run with it can make it."""
        return self.made is None

    def get(self) -> Any:
        """Return the object."""
        if self.made is None:
            raise InvalidInput(
                f"{self.object} was given to bsfl.compare as an object; call compare with this "
                "folder"
            )
        return self.made


def rule(check: Callable[..., Any], *limits: Any) -> BeforeValidator:
    """Return a validator of a key: a function (name, value, limits), such as those of validation.

    What the function returns, unless it is None, is the value.
    """

    def apply(value: Any, info: ValidationInfo) -> Any:
        try:
            found = check(info.field_name, value, *limits)
        except InvalidInput as error:
            raise PydanticCustomError(RULE, "{text}", {"text": str(error)}) from None
        return value if found is None else found

    return BeforeValidator(apply)


def kind_by_default(kind: str) -> BeforeValidator:
    """Return a validator that gives a table without `kind` this one."""
    return BeforeValidator(
        lambda table: {"kind": kind, **table} if isinstance(table, Mapping) else table
    )


def by_key(*keys: str) -> Discriminator:
    """Return the discriminator of tables that have one of these keys, or else the last of them.

    The tag of a table is its key in angle brackets, which is no key of a table.
    """

    def tag(table: Any) -> str:
        there = table if isinstance(table, Mapping) else getattr(type(table), "model_fields", ())
        return f"<{next((key for key in keys if key in there), keys[-1])}>"

    return Discriminator(tag)


def is_opened(info: ValidationInfo) -> bool:
    """Return whether results are opened: nothing is looked up or built, all of it is as it was."""
    return bool(info.context and info.context.get("is_opened"))


def checked(model: type[M], table: Any, *, place: str = "", is_opened: bool = False) -> M:
    """Return a model of a table, or raise the first mistake with its place."""
    try:
        return model.model_validate(table, context={"is_opened": is_opened})
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        cause = first.get("ctx", {}).get("error")
        is_known = cause is None or isinstance(cause, InvalidInput)
        with at(place):
            raise InvalidInput(_message(first, table)) from (None if is_known else cause)


def _message(error: ErrorDetails, table: Any) -> str:
    """Return one of pydantic's errors in our words: the table in brackets, then what is wrong."""
    path, kind, context = [*error["loc"]], error["type"], error.get("ctx", {})
    text, got = error["msg"], validation.short(error["input"])
    if kind == "missing":
        text = f"missing key {path.pop()!r}"
    elif kind == RULE:
        text = context["text"]
        path.pop()
    elif kind in ("value_error", "assertion_error"):
        text = str(context["error"])
    elif kind in ("model_attributes_type", "dict_type"):
        text = f"expected a table, got {got}"
    elif kind == "union_tag_invalid":
        known = [word.strip("'") for word in context["expected_tags"].split(", ")]
        text = f"unknown kind {validation.short(context['tag'])}{nearest(context['tag'], known)}"
    else:
        text = f"{path.pop()} {text.replace('Input should be', 'must be')}, got {got}"
    words = []
    for key in path:
        if isinstance(table, Mapping) and key in table:  # others are the tags of unions
            words.append(str(key))
            table = table[key]
    return located(f"[{'.'.join(words)}]", text) if words else text


@contextmanager
def at(place: str) -> Iterator[None]:
    """Put the place in front of every message about bad input, and behind every other error."""
    try:
        yield
    except InvalidInput as error:
        raise InvalidInput(located(place, str(error))) from error.__cause__
    except Exception as error:  # in a policy, a task or a model of latencies of the user's own
        error.add_note(f"in {place}")
        raise


def located(place: str, text: str) -> str:
    """Return a message with its place: a table stands behind its file, and is named once.

    >>> located("my.toml", located("[clients]", "unknown key 'n'"))
    "my.toml [clients]: unknown key 'n'"
    """
    if not place or (place.startswith("[") and text.startswith("[")):
        return text
    return f"{place} {text}" if text.startswith("[") else f"{place}: {text}"


def known_keys(table: Mapping[Any, Any], known: Iterable[str]) -> None:
    """Check that a table has no other keys than these."""
    keys = dict.fromkeys(known)
    for key in table:
        if key not in keys:
            raise InvalidInput(f"unknown key {key!r}{nearest(str(key), keys)}")


def _check_spelling(table: Mapping[Any, Any], fields: Mapping[str, FieldInfo]) -> None:
    """Check that no required key of a table that takes further keys is there misspelt."""
    for name, one in fields.items():
        is_missing = one.is_required() and name not in table
        if is_missing and (near := get_close_matches(name, map(str, table), n=1)):
            raise InvalidInput(f"unknown key {near[0]!r}; did you mean {name!r}?")


def check_files(value: Any) -> None:
    """Check that the files of the user's own that plain data names are there."""
    for reference in references(value):
        file = reference.rpartition(":")[0]
        if not os.path.isfile(file):
            raise InvalidInput(f"there is no file {file!r}")


def references(value: Any) -> Iterator[str]:
    """Yield the names of things in files of the user's own, "mine.py:Rule", in plain data."""
    return (one for _, one in keys_and_values(value) if is_reference(one))


def keys_and_values(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the values of plain data, each with its key; values of a list have the list's key."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield from keys_and_values(one, name)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from keys_and_values(one, key)
    else:
        yield key, value

"""Things by name: what there is, which settings it takes, and how it is written down.

One Registry holds the policies, another the populations, availabilities, splits, data sets, tasks,
solvers and so on. A name means, in this order,

    "bsfl"                   what comes with bsfl
    "theirs"                 an entry point of an installed package, such as group `bsfl.policies`
    "path/mine.py:Rule"      a class or function in a file of your own

Plain data is what JSON and TOML can hold. There a thing is its name and its settings, and a part
of a thing is a table with its name as `kind`: `index = {kind = "lognormal", quantile = 0.9}`.
"""

import importlib.util
import inspect
import os
import pkgutil
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, fields, is_dataclass
from difflib import get_close_matches
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bsfl.errors import InvalidInput
from bsfl.validation import in_short, short

T = TypeVar("T")
Plain = Any
"""Numbers, texts, lists and tables."""
KIND = "kind"
"""Key that holds the name of a part."""
REQUIRED = inspect.Parameter.empty
"""Default of a setting that must be given."""


class Registry(Mapping[str, T]):
    """Things of one kind by name.

    Args:
        what: What such a thing is called in messages, such as "policy".
        known: What comes with bsfl, or "module:name" for what is imported when it is asked for.
        group: Entry points of other packages that belong here; None: there are none.
        given: What such a thing is called with; the parameters after these are its settings.
        instead: What else may stand where such a thing can, for messages; "": nothing.
        unlisted: Names that can be used but are not among the alternatives that are listed.
        base: The class of which a custom class must be a subclass; None: any will do.
    """

    def __init__(
        self,
        what: str,
        known: Mapping[str, Any],
        *,
        group: str | None = None,
        given: Sequence[str] = (),
        instead: str = "",
        unlisted: Sequence[str] = (),
        base: type | None = None,
    ) -> None:
        self.what, self.known, self.group, self.given = what, dict(known), group, tuple(given)
        self.instead, self.unlisted, self.base = instead, unlisted, base

    # --- names ----------------------------------------------------------------------------------

    def __getitem__(self, name: str) -> T:
        if name in self.known:
            known: T | str = self.known[name]
            return pkgutil.resolve_name(known) if isinstance(known, str) else known
        if name in self._installed:
            thing: T = self._installed[name].load()
            return thing
        if is_reference(name):
            return self._custom(name)
        raise KeyError(name)

    def __contains__(self, name: object) -> bool:
        return name in self.known or name in self._installed or is_reference(name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in (*self.known, *self._installed) if name not in self.unlisted)

    def __len__(self) -> int:
        return len(list(iter(self)))

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        found = entry_points(group=self.group) if self.group else ()
        return {point.name: point for point in found if point.name not in self.known}

    def find(self, name: str | T) -> T:
        """Return the thing with a name; an unknown one is an error that names the nearest.

        Where a thing is something to call, it may stand for its own name.
        """
        if isinstance(name, str) and name in self:
            return self[name]
        if isinstance(name, str) or not callable(name):
            is_file = str(name).endswith(".py") or ":" in str(name)
            near = "; one in a file is mine.py:Name" if is_file else nearest(str(name), self)
            raise InvalidInput(f"unknown {self.what} {name!r}{near}")
        return name

    def name_of(self, thing: object) -> str | None:
        """Return the name of a thing or of its class; None for a user's own."""
        for name, known in self.known.items():
            if known is thing or known is type(thing):
                return name
        for name, point in self._installed.items():
            if point.value == f"{type(thing).__module__}:{type(thing).__qualname__}":
                return name
        return None

    def about(self, name: str) -> str:
        """Return the first line of a thing's documentation."""
        return (inspect.getdoc(self.find(name)) or "").partition("\n")[0]

    def resolve(self, setting: str, choice: str | T) -> T:
        """Return what a setting stands for: a function, or the name of one that is known here."""
        if isinstance(choice, str):
            if choice in self:
                return self[choice]
            raise InvalidInput(
                f"{setting} must be one of {', '.join(self)} or a function, got {choice!r}"
            )
        if not callable(choice):
            raise InvalidInput(f"{setting} must be a name or a function, got {choice!r}")
        return choice

    def _custom(self, name: str) -> T:
        """Return what a file of the user's own holds, if it can be such a thing."""
        found: T = load_reference(name)
        if self.base and isinstance(found, type) and not issubclass(found, self.base):
            base = f"{self.base.__module__.partition('.')[0]}.{self.base.__qualname__}"
            raise InvalidInput(f"{self.what} {name!r} must be a subclass of {base}")
        if not callable(found):
            raise InvalidInput(
                f"{self.what} {name!r} must be a class or a function, got {short(found)}"
            )
        return found

    # --- settings -------------------------------------------------------------------------------

    def settings(self, name: str | T) -> dict[str, Any]:
        """Return the settings of a thing with their defaults, REQUIRED where there is none."""
        return settings_of(self.find(name), self.given)  # type: ignore[arg-type]

    def call(self, name: str | T, /, *given: Any, **settings: Plain) -> Any:
        """Return what the thing with this name makes of what it is given, with these settings."""
        make: Any = self.find(name)
        _check_settings(f"{self.what} {name!r}", make, settings, self.settings(name))
        return make(*given, **settings)

    def make(self, name: str | T, /, **settings: Plain) -> Any:
        """Return the thing with this name and these settings; parts may be plain data."""
        parts = components_of(self.find(name))
        made = {key: parts[key].part(value) for key, value in settings.items() if key in parts}
        return self.call(name, **settings | made)

    def part(self, value: Plain) -> Any:
        """Return the part that plain data stands for: a table or a name; others are left alone."""
        if isinstance(value, str):
            if self.instead and value not in self:
                known = ", ".join(self)
                raise InvalidInput(
                    f"{self.what} must be {self.instead} or one of {known}, got {value!r}"
                )
            return self.make(value)
        if not isinstance(value, Mapping):
            return value
        if KIND not in value:
            raise InvalidInput(
                f"{self.what} needs a {KIND}, one of {', '.join(self)}, got {value!r}"
            )
        return self.make(value[KIND], **{k: v for k, v in value.items() if k != KIND})

    def plain(self, thing: object) -> dict[str, Plain] | None:
        """Return the settings of a thing as plain data; None when a part is the user's own."""
        if self.name_of(thing) is None or not is_dataclass(thing):
            return None
        table: dict[str, Plain] = {}
        for one in fields(thing):
            value = getattr(thing, one.name)
            parts: Registry[Any] | None = one.metadata.get("parts")
            if parts and is_dataclass(value):
                inner = parts.plain(value)
                if inner is None:
                    return None
                value = {KIND: parts.name_of(value), **inner}
            elif callable(value):
                return None
            is_array = isinstance(value, np.ndarray | np.generic)
            table[one.name] = value.tolist() if is_array else value
        return table


def component(parts: Registry[Any], default: Any) -> Any:
    """Return a dataclass field that holds a part, known by name in a registry."""
    return field(default=default, metadata={"parts": parts})


def check_component(name: str, value: object, kind: type, known: Registry[Any]) -> None:
    """Check that a setting holds a part that does what its kind must."""
    if not isinstance(value, kind) or isinstance(value, type):
        examples = " or ".join(f"{one.__name__}(...)" for one in known.known.values())
        raise InvalidInput(f"{name} must be {examples}, got {value!r}")


def components_of(thing: Any) -> dict[str, Registry[Any]]:
    """Return the registries of those settings that are parts."""
    if not (isinstance(thing, type) and is_dataclass(thing)):
        return {}
    return {f.name: f.metadata["parts"] for f in fields(thing) if "parts" in f.metadata}


def settings_of(thing: Callable[..., Any], given: Sequence[str] = ()) -> dict[str, Any]:
    """Return the settings of a thing with their defaults: the parameters after what it is given."""
    signature, n_given = inspect.signature(thing), len(given)
    parameters = signature.parameters.values()
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    first = [p.name for p in parameters if p.kind in by_place][:n_given]
    if len(first) < n_given:
        raise InvalidInput(
            f"{getattr(thing, '__qualname__', thing)} must take {', '.join(given)}, and settings "
            f"after that, got {signature}"
        )
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name: p.default for p in parameters if p.kind in named and p.name not in first}


def _check_settings(
    what: str, make: Callable[..., Any], given: Mapping[str, Plain], known: Mapping[str, Any]
) -> None:
    """Check that settings are known, that none is missing, and that numbers are no texts."""
    for name in given:
        if name not in known:
            raise InvalidInput(f"{what} has no setting {name!r}{nearest(name, known)}")
    missing = [k for k, default in known.items() if default is REQUIRED and k not in given]
    if missing:
        raise InvalidInput(f"{what} needs a value for {', '.join(missing)}")
    for name, parameter in inspect.signature(make).parameters.items():
        is_number = parameter.annotation in (int, float, "int", "float")
        if is_number and isinstance(given.get(name), str):
            raise InvalidInput(f"{name} must be a number, got {given[name]!r}")


def check_kind(what: str, thing: object, names: Iterable[str]) -> None:
    """Check that something of a user's own has what its kind must have."""
    if missing := [name for name in names if not hasattr(thing, name)]:
        raise InvalidInput(f"{what} must have {', '.join(missing)}, got {thing!r}")


def nearest(word: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown word: the nearest known one, or all of them."""
    names = list(known)
    near = get_close_matches(word, names, n=1)
    return f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(names) or 'none'}"


def is_reference(name: object) -> bool:
    """Return whether a name is that of something in a file, "path/mine.py:Rule"."""
    return isinstance(name, str) and name.rpartition(":")[0].endswith(".py")


def absolute_reference(name: str, folder: Path) -> str:
    """Return a reference that means the same in every folder and process; other names as is."""
    if not is_reference(name):
        return name
    file, _, attribute = name.rpartition(":")
    return f"{(folder / file).resolve()}:{attribute}"


def load_reference(name: str) -> Any:
    """Return what a file of the user's own holds under a name; the file is run once.

    It may import its neighbours, whose folder comes last on the path: nothing is hidden by them.
    """
    file, _, attribute = name.rpartition(":")
    path = Path(file).resolve()
    module_name = f"bsfl-file:{path}"
    module = sys.modules.get(module_name)
    if module is None:
        if not os.path.isfile(path):
            raise InvalidInput(f"there is no file {file}")
        spec = importlib.util.spec_from_file_location(module_name, path)
        assert spec
        assert spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules[module_name] = module  # dataclasses look their module up
        sys.path.append(str(path.parent))  # last, and for its own imports alone
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            del sys.modules[module_name]
            if isinstance(error, Exception):
                raise InvalidInput(_first_cause(error, path)) from None
            raise
        finally:
            sys.path.remove(str(path.parent))
    if not hasattr(module, attribute):
        things = {k: v for k, v in vars(module).items() if callable(v)}
        own = [k for k, v in things.items() if getattr(v, "__module__", None) == module_name]
        raise InvalidInput(f"{file} has no {attribute!r}{nearest(attribute, own)}")
    return getattr(module, attribute)


def _first_cause(error: Exception, path: Path) -> str:
    """Return where a file of the user's own went wrong, and what was said there, in one line."""
    if isinstance(error, SyntaxError) and error.lineno:  # perhaps of a neighbour
        return f"{error.filename}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [f", line {one.lineno}" for one in frames if one.filename == str(path)]
    return f"{path}{''.join(lines[-1:])}: {type(error).__name__}: {in_short(error)}"

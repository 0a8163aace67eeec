"""Keep errors of user code as values, and tell them from the end of the process.

User code may raise what is no ``Exception``: ``sys.exit``, time limits of ``func_timeout``, ``pytest.fail``.
"""

from __future__ import annotations

import inspect
import signal
import threading
from collections.abc import Callable
from typing import Any, Final, ParamSpec, TypeVar

from tfgrpo.stores.errors import RewardError

_LONGEST: Final = 300
_WHOLE: Final = 10_000
"""Characters of a text that is kept whole: it goes to the journal, the rollouts and the report."""

_T = TypeVar("_T")
L = TypeVar("L")
_P = ParamSpec("_P")


def caught(call: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> _T | BaseException:
    """Return the result of user code, or what it raised. Ctrl-C passes through."""
    try:
        return call(*args, **kwargs)
    except BaseException as error:  # user code may raise what is no ``Exception``
        if is_ctrl_c(error):
            raise
        return error


def unless_it_raises(default: L, call: Callable[..., _T], *arguments: object) -> _T | L:
    """Return the result of a call into user code, or ``default`` when it raises."""
    try:
        return call(*arguments)
    except Exception:  # noqa: BLE001  the class is a user's, and so is what it raises
        return default


def described(error: BaseException, *, whole: bool = False) -> str:
    """Return class and text of an exception, no matter what its ``__str__`` does; of a group, those of its first one too.

    The text is folded into one line of at most 300 characters, and a ``RewardError`` goes without its class; ``whole``
    leaves both as they are, up to 10,000 characters.
    """
    kind = type(error).__name__
    try:
        text = str(error)[:_WHOLE] if whole else " ".join(str(error).split())
        if isinstance(error, BaseExceptionGroup):
            text = f"{text}: {described(error.exceptions[0], whole=whole)}"
    except BaseException:  # noqa: BLE001  a user's exception class; its name has to do
        return kind
    if not text:
        return kind
    if whole:
        return f"{kind}: {text}"
    shown = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
    return shown if isinstance(error, RewardError) else f"{kind}: {shown}"


def is_ctrl_c(error: BaseException) -> bool:
    """Return whether the user ends the process, which reaches only the main thread; elsewhere user code raised it.

    So it did in a process that ignores Ctrl-C, such as a worker.
    """
    own_thread = threading.current_thread() is threading.main_thread()
    return isinstance(error, KeyboardInterrupt) and own_thread and signal.getsignal(signal.SIGINT) != signal.SIG_IGN


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether a call needs no thread, because it returns a coroutine."""
    call = getattr(function, "__call__", None)  # noqa: B004  of an object with an asynchronous __call__
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)

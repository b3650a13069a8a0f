"""The circuit breaker of one origin, with the time, the log and metrics."""

from collections.abc import Callable
from types import TracebackType

import structlog

from service.proxy.circuit_breaker import Attempt, CircuitBreaker, CircuitState

_log = structlog.get_logger(__name__)


class Circuit:
    """Whether one origin is asked, by this process."""

    def __init__(
        self, origin: str, timer: Callable[[], float], changed: Callable[[bool], None]
    ) -> None:
        """`changed` is called when the circuit opens (True), and when it closes (False)."""
        self._origin = origin
        self._timer = timer
        self._changed = changed
        self._breaker = CircuitBreaker()

    @property
    def state(self) -> CircuitState:
        """The state now."""
        return self._breaker.state(self._timer())

    @property
    def admits(self) -> bool:
        """True if a request may be sent now."""
        return self._breaker.admits(self._timer())

    @property
    def is_suspect(self) -> bool:
        """True if answers should not be waited for by those who can do without."""
        return self._breaker.is_suspect(self._timer())

    def begin(self) -> "OpenAttempt | None":
        """A request that is sent now; None if none may be."""
        attempt = self._breaker.begin(self._timer())
        return None if attempt is None else OpenAttempt(self, attempt)

    def succeed(self, attempt: Attempt) -> None:
        """Note a usable answer."""
        was_closed = self._breaker.state(self._timer()) is CircuitState.CLOSED
        self._breaker.succeed(attempt, self._timer())
        if not was_closed:
            _log.info("registry_answers_again", origin=self._origin)
            self._changed(False)

    def fail(self, attempt: Attempt) -> None:
        """Note that no answer came, or not all of it."""
        if self._breaker.fail(attempt, self._timer()):
            _log.warning("registry_not_asked", origin=self._origin)
            self._changed(True)

    def give_up(self, attempt: Attempt) -> None:
        """Note that the request was abandoned."""
        self._breaker.give_up(attempt)


class OpenAttempt:
    """A request under way; given up at the end of the block unless a result was noted."""

    def __init__(self, circuit: Circuit, attempt: Attempt) -> None:
        self._circuit = circuit
        self._attempt = attempt

    def succeed(self) -> None:
        """Note a usable answer."""
        self._circuit.succeed(self._attempt)

    def fail(self) -> None:
        """Note that no answer came, or not all of it."""
        self._circuit.fail(self._attempt)

    def __enter__(self) -> "OpenAttempt":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._circuit.give_up(self._attempt)

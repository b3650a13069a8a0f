"""HTTP/2 as hypercorn speaks it, but that a body may come in after its answer.

A refusal does not wait for a body. hypercorn 0.18 then meets data of a request that is over, and
ends the connection, with all other requests on it (https://github.com/pgjones/hypercorn/pull/334):
behind a proxy that sends many clients' requests over one connection, those of everybody.
"""

from h2.events import DataReceived, Event
from hypercorn import protocol
from hypercorn.protocol.h2 import H2Protocol


class Http2(H2Protocol):
    """A connection that goes on when data comes for a request that is over."""

    async def _handle_events(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, DataReceived) and event.stream_id not in self.streams:
                # Nobody wants it, but its room in the connection's window has to be given back.
                self.connection.acknowledge_received_data(
                    event.flow_controlled_length, event.stream_id
                )
                await self._flush()
            else:
                await super()._handle_events([event])


def use_patient_http2() -> None:
    """Have hypercorn, in this process, speak HTTP/2 by `Http2`."""
    protocol.H2Protocol = Http2  # type: ignore[attr-defined]

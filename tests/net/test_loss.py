"""Messages arrive over a network that loses every tenth packet in both directions."""

from __future__ import annotations

import pytest

from tests.net.programs import Programs, await_received

LOSS = {
    "aeron.ReceiveChannelEndpoint.supplier": "io.aeron.driver.ext.DebugReceiveChannelEndpointSupplier",
    "aeron.SendChannelEndpoint.supplier": "io.aeron.driver.ext.DebugSendChannelEndpointSupplier",
    "aeron.debug.receive.data.loss.rate": "0.10",
    "aeron.debug.receive.data.loss.seed": "20260101",
    "aeron.debug.receive.control.loss.rate": "0.10",
    "aeron.debug.receive.control.loss.seed": "20260102",
}
MESSAGES = 20_000


@pytest.mark.sampled
def test_with_ten_percent_loss_every_message_arrives_once_and_in_order(programs: Programs) -> None:
    server, client = programs.pair("lossy", properties=LOSS)
    client.request("connect", timeout=60)
    client.send_request("send", count=MESSAGES, size=200, timeout=60)
    server.send_request("send", tag="lossy", count=MESSAGES, size=200, timeout=60)
    client.response()
    server.response()
    await_received(server, "lossy", MESSAGES)
    await_received(client, "lossy", MESSAGES)
    for endpoint in (server, client):
        assert programs.driver_of(endpoint).request("counters")["retransmits"] > 100  # packets were lost

"""What gloo's collectives put on the wire."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.costmodel import GLOO, wire_bytes
from syncline.costmodel.collectives.gloo import WireBytes, gloo_messages, gloo_wire_bytes
from syncline.errors import SpecError
from syncline.sim import rounds


def test_a_call_by_hand():
    # Between two workers one message of 2000 bytes each: 2048 with its header in two segments of 1448, two notices;
    # an acknowledgement for every second of the three that come from the sender.
    wire = gloo_wire_bytes("all_to_all", 2, 4000.0)
    assert wire == WireBytes(2000, 3 * 48, 4 * 52, 1.5 * 52)
    assert wire.total_bytes == 2430
    assert wire + wire == gloo_wire_bytes("all_to_all", 2, 4000.0)._replace(
        payload_bytes=4000, gloo_bytes=288, packet_bytes=416, acknowledgement_bytes=156
    )


@given(st.sampled_from(sorted(GLOO)), st.integers(2, 9), st.integers(1, 3 * 2**20))
def test_messages_are_those_that_are_played(kind, workers, elements):
    nbytes = 4.0 * elements
    count, size = gloo_messages(kind, workers, nbytes)
    played = rounds(kind, workers, nbytes, GLOO[kind])
    assert count * workers == pytest.approx(sum(len(one.senders) for one in played))
    # A ring's last segments are shorter.
    assert count * size >= float(wire_bytes(kind, workers, nbytes, GLOO[kind])) * (1 - 1e-9)


@given(st.sampled_from(sorted(GLOO)), st.integers(1, 9), st.floats(0, 1e9), st.integers(100, 65536))
def test_payload_is_the_ledger_s_and_headers_weigh_less_the_longer_messages_are(kind, workers, nbytes, segment):
    wire = gloo_wire_bytes(kind, workers, nbytes, segment)
    assert wire.payload_bytes == pytest.approx(float(wire_bytes(kind, workers, nbytes, GLOO[kind])))
    assert wire.total_bytes >= wire.payload_bytes
    more = gloo_wire_bytes(kind, workers, 2 * nbytes, segment)
    assert more.total_bytes >= wire.total_bytes


def test_what_cannot_be():
    with pytest.raises(SpecError, match=r"^collective: got 'send'"):
        gloo_messages("send", 2, 1.0)
    with pytest.raises(SpecError, match=r"^segment_bytes: got 0"):
        gloo_wire_bytes("gather", 2, 1.0, 0)
    with pytest.raises(SpecError, match=r"^nbytes: got -1"):
        gloo_wire_bytes("gather", 2, -1.0)
    assert gloo_wire_bytes("gather", 1, 5.0) == WireBytes(0, 0, 0, 0)

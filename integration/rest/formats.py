"""Texts for formats of the description that schemathesis does not know."""
import ipaddress

import schemathesis
from hypothesis import strategies as st


def network(address, length):
    return str(ipaddress.ip_network((address, length), strict=False))


schemathesis.openapi.format("cidr", st.one_of(
    st.builds(network, st.integers(0, 2 ** 32 - 1), st.integers(0, 32)),
    st.builds(lambda address, length: network(ipaddress.IPv6Address(address), length),
              st.integers(0, 2 ** 128 - 1), st.integers(0, 128)),
))
schemathesis.openapi.format("ip", st.one_of(st.ip_addresses(v=4).map(str), st.ip_addresses(v=6).map(str)))

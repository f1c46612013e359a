"""Opening a link: addresses, and ranks that are lost meanwhile."""

import os
import unittest

import gradwire
from hosts import ADDRESSES, Hosts
from ranks import digest, gathered, run
from test_ddp import hooked, net, sgd, step


def opened(rank, variables, address=None):
    """What a link says that is opened with these variables; None if it exchanges."""
    for name in ("MASTER_ADDR", "GRADWIRE_IFNAME", "GLOO_SOCKET_IFNAME"):
        os.environ.pop(name, None)
    os.environ.update(variables)
    try:
        ddp, state = hooked(net(), "q8", gradwire.Link(address=address))
    except gradwire.Error as error:
        return str(error)
    step(ddp, sgd(ddp), rank, 0)
    assert len(set(gathered(digest(ddp)))) == 1
    state.close()
    return None


AS_ROOT = unittest.skipUnless(os.geteuid() == 0, "only root makes network namespaces")


class Addresses(unittest.TestCase):
    @AS_ROOT
    def test_a_loopback_address_is_refused_if_there_are_other_hosts(self):
        remedy = r"only its own host, host0, reaches that: not rank 1, at host1; .*GRADWIRE_IFNAME or GLOO_SOCKET_IFNAME.*MASTER_ADDR.*Link\(address"
        with Hosts() as hosts:
            for variables, address, source in (
                ({"MASTER_ADDR": "host0"}, None, "from the way to MASTER_ADDR=host0, which is 127.0.1.1 there"),
                ({}, None, "since MASTER_ADDR is not set"),
                ({"GRADWIRE_IFNAME": "lo"}, None, "GRADWIRE_IFNAME=lo"),
                ({"MASTER_ADDR": ADDRESSES[0]}, "host0", r"Link\(address='host0'\)"),
                ({"MASTER_ADDR": ADDRESSES[0]}, "0.0.0.0", r"Link\(address='0.0.0.0'\)"),
            ):
                for said in run(opened, 2, variables, address, hosts=hosts):
                    self.assertRegex(said or "it opened", rf"rank 0 advertises \S+ port \d+, {source}: {remedy}")

    @AS_ROOT
    def test_a_host_whose_name_is_loopback_is_reached_by_its_interface(self):
        with Hosts() as hosts:
            for variables in (
                {"MASTER_ADDR": ADDRESSES[0]},
                {"MASTER_ADDR": "host0", "GRADWIRE_IFNAME": "eth0"},
                {"MASTER_ADDR": "host0", "GLOO_SOCKET_IFNAME": "eth0,lo"},
                {"MASTER_ADDR": "host0", "GLOO_SOCKET_IFNAME": "none-such, eth0"},
            ):
                self.assertEqual(run(opened, 2, variables, hosts=hosts), [None, None], variables)

    def test_interfaces_without_an_address_are_each_named(self):
        for said in run(opened, 2, {"GLOO_SOCKET_IFNAME": "none-such,no-more"}):
            self.assertRegex(said, "interface 'none-such' has no IPv4 address.*; interface 'no-more' has no IPv4 address")


if __name__ == "__main__":
    unittest.main()

"""Opening a link: addresses, and ranks that are lost meanwhile."""

import concurrent.futures
import itertools
import os
import pathlib
import re
import signal
import socket
import tempfile
import threading
import time
import unittest

import gradwire
import torch
from gradwire import _native, _worker
from hosts import ADDRESSES, Hosts
from ranks import digest, gathered, run, weights
from test_ddp import hooked, net, sgd, step
from test_serve import Server


def opened(rank, variables, address=None):
    """Returns the error of a link that is opened with these variables; None if it exchanges."""
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


# Phases of opening: all call for it, all answer each other, then a rank connects to rank 0, and has
# sent it so many bytes: its greeting, its proof, its address.
CALLED, ANSWERED, CONNECTED, GREETED, PROVED, LISTED = "called", "answered", 0, 50, 82, 103


class Lost:
    """A port like `_native.Listening`, whose process is lost while it connects: all it sends rank 0 goes through `forward`."""

    Listening = _native.Listening

    def __init__(self, phase, how, *args):
        self.phase, self.how, self.listening = phase, how, self.Listening(*args)

    def lose(self):
        os.kill(os.getpid(), self.how)

    def join(self, rank, ranks, root, port):
        if self.phase == ANSWERED:
            self.lose()
        near = socket.create_server((str(root), 0))
        threading.Thread(target=self.forward, args=(near, (str(root), port)), daemon=True).start()
        return self.listening.join(rank, ranks, root, near.getsockname()[1])

    def forward(self, near, root):
        client, far = near.accept()[0], socket.create_connection(root)

        def back():
            while data := far.recv(1000):
                client.sendall(data)

        threading.Thread(target=back, daemon=True).start()
        for _ in range(self.phase):
            far.sendall(client.recv(1))
        self.lose()


def lost(rank, phase, how, timeout, server=None, token=None):
    """Rank 1 is lost in this phase. What the others are told."""
    if rank == 1:
        if phase == CALLED:
            os.kill(os.getpid(), how)
        _native.Listening = lambda *args: Lost(phase, how, *args)
    try:
        gradwire.State(gradwire.Link(timeout=timeout, token_file=token), "f32", server=server)
    except gradwire.Error as error:
        return str(error)


def lost_by_all(phase, how):
    """Returns the others' errors."""
    return run(lost, 3, phase, how, None, lost=[1])[::2]


def lost_by_a_server(phase, how):
    """Returns the errors of the others and of the server."""
    with Server(3) as server:
        return *run(lost, 3, phase, how, None, server.address, server.token, lost=[1])[::2], server.end()[2]


def rounds(function, names, cases):
    """By case, what all say if everybody names the lost one. On a busy machine others may come late, too, and then there is another round."""

    def round_of(phase, how):
        for _ in range(5):
            all_said = [said or "it opened" for said in function(phase, how)]
            if all(re.search(names, said) for said in all_said):
                break
        return all_said

    # They wait for most of the time.
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(round_of, *case) for case in cases]
    return zip(cases, [job.result() for job in jobs])


def stranger(rank):
    """Somebody connects to rank 0 and says nothing. Did ranks exchange within a timeout that is less than what a handshake may take?"""
    done = []
    strangers = []
    for _ in range(6):
        if rank == 1:

            class Late:
                def __init__(self, *args):
                    self.listening = Lost.Listening(*args)

                def join(self, rank, ranks, root, port):
                    strangers.append(socket.create_connection((str(root), port)))
                    return self.listening.join(rank, ranks, root, port)

            _native.Listening = Late
        said = None
        try:
            ddp, state = hooked(net(), "q8", gradwire.Link(timeout=8))
            step(ddp, sgd(ddp), rank, 0)
            state.close()
        except RuntimeError as error:
            said = str(error)
        done.append(gathered(said))
        if done[-1] == [None, None]:
            break
        # A busy machine may have kept the ranks from each other.
    return done


def killed_while_another_is_stopped(rank):
    """Rank 0 hears of rank 1's death. Rank 2 will not, and nobody waits for that as long as for an exchange."""
    state = gradwire.State(gradwire.Link(timeout=7200), "f32")
    pids = gathered(os.getpid())
    if rank == 2:
        os.kill(os.getpid(), signal.SIGSTOP)
    if rank == 1:
        while pathlib.Path(f"/proc/{pids[2]}/stat").read_text().rpartition(")")[2].split()[0] != "T":
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        state._way.worker.submit(torch.ones(1), _worker.Layout(["a"], [torch.ones(1)]), False).wait()
    except RuntimeError as error:
        return str(error)


class Opening(unittest.TestCase):
    """All with torch's timeout of half an hour, which is longer than `run` waits."""

    def test_a_rank_that_is_lost_in_any_phase_is_named(self):
        phases = [ANSWERED, CONNECTED, GREETED, PROVED, LISTED]
        cases = list(itertools.product(phases, (signal.SIGKILL, signal.SIGSTOP)))
        for case, all_said in rounds(lost_by_all, r"ranks? 1\b", cases):
            for said in all_said:
                self.assertRegex(said, r"ranks? 1\b.*rank 0 advertises 127\.0\.0\.1 port \d+", case)

    def test_a_rank_that_does_not_come_is_waited_for_as_long_as_the_link_says(self):
        for how, timeout in ((signal.SIGKILL, None), (signal.SIGSTOP, 15)):
            zero, _, two = run(lost, 3, CALLED, how, timeout, lost=[1])
            for said in (zero, two):
                self.assertRegex(said or "it opened", rf"not all 3 ranks opened this link within {timeout or 1800} s: ")

    def test_a_rank_that_is_lost_is_named_by_a_server(self):
        cases = list(itertools.product([ANSWERED, GREETED, LISTED], (signal.SIGKILL, signal.SIGSTOP)))
        for case, all_said in rounds(lost_by_a_server, r"ranks? 2\b", cases):
            for said in all_said:
                self.assertRegex(said, r"ranks? 2\b", case)
            for said in all_said[:2]:
                self.assertRegex(said, r"rank 0 advertises 127\.0\.0\.1 port \d+, from server='127.*give State\(server")

    def test_a_server_that_is_stopped_is_named(self):
        with Server(2) as server:
            os.kill(server.process.pid, signal.SIGSTOP)
            for said in run(lost, 1, None, None, None, server.address, server.token):
                self.assertRegex(said or "it opened", r"rank 0\b.*rank 0 advertises 127\.0\.0\.1 port \d+")

    def test_a_strangers_silent_connection_does_not_hold_up_a_start(self):
        for done in run(stranger, 2):
            self.assertEqual(done[-1], [None, None], done)

    def test_a_rank_that_dies_while_another_is_stopped_is_named(self):
        self.assertRegex(run(killed_while_another_is_stopped, 3, lost=[1, 2])[0], r"\brank 1\b")

    def test_timeouts_that_are_none_are_refused(self):
        for timeout in (0, -1, float("nan"), float("inf"), 1e18):
            for said in run(refused_timeout, 1, timeout):
                self.assertIn("expected seconds", said)


def over(rank, options, variables=()):
    """Returns the weights after some iterations over a link with these options, or one for each rank; or the error."""
    os.environ.update(variables)
    mine = options[rank] if isinstance(options, list) else options
    try:
        ddp, state = hooked(net(), "q8", gradwire.Link(**mine))
    except (gradwire.Error, ValueError) as error:
        return str(error)
    optimizer = sgd(ddp)
    for iteration in range(3):
        step(ddp, optimizer, rank, iteration)
    state.close()
    return weights(ddp).tolist()


class Internet(unittest.TestCase):
    """TLS and several streams."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.files = [os.path.join(folder.name, name) for name in ("token", "other")]
        for file in self.files:
            pathlib.Path(file).write_text(_native.token() + "\n")

    def test_weights_are_those_of_one_stream_without_tls(self):
        token = {"token_file": self.files[0]}
        one = run(over, 3, {})
        self.assertEqual(run(over, 3, {**token, "tls": True, "streams": 3}), one)
        self.assertEqual(run(over, 3, token, {"GRADWIRE_TLS": "1", "GRADWIRE_STREAMS": "2"}), one)

    def test_rank_0_relays_at_a_port_that_it_is_given(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        one = run(over, 3, {})
        options = {"token_file": self.files[0], "tls": True, "streams": 2, "relay": True, "port": port}
        self.assertEqual(run(over, 3, options), one)
        self.assertEqual(run(over, 3, {}, {"GRADWIRE_RELAY": "1", "GRADWIRE_PORT": str(port)}), one)

    def test_a_rank_that_dies_is_named_by_those_that_a_relay_or_tls_is_between(self):
        for said in run(killed, 3, {"token_file": self.files[0], "tls": True, "streams": 2, "relay": True}, lost=[2])[:2]:
            self.assertIn("rank 2 disconnected without goodbye", said)

    def test_tls_without_a_token_is_refused(self):
        for said in run(over, 2, {"tls": True}):
            self.assertRegex(said, "TLS needs the job's token at each rank: .*GRADWIRE_TOKEN_FILE.*token_file=.*openssl rand -hex 32")

    def test_a_rank_without_the_same_token_or_options_is_named(self):
        secure = {"token_file": self.files[0], "tls": True}
        for other, who, cause in (
            ({"token_file": self.files[1], "tls": True}, 1, "another token"),
            ({"token_file": self.files[0] + "-gone", "tls": True}, 0, "rank 1 cannot open a link: FileNotFoundError.*token-gone"),
            ({}, 0, "rank 1 has gradwire .* and plan 'q8', rank 0 .* and 'q8, TLS'"),
            ({**secure, "streams": 2}, 0, "rank 1 has gradwire .* and plan 'q8, TLS, 2 streams', rank 0 .* and 'q8, TLS'"),
        ):
            said = run(over, 2, [{"timeout": 5, **secure}, {"timeout": 5, **other}])
            self.assertRegex(str(said[who]), cause)
            self.assertIsInstance(said[1 - who], str)

    def test_options_that_mean_nothing_are_refused(self):
        for options, variables, cause in (
            ({"streams": 0}, {}, "streams 0: expected 1 to 8"),
            ({}, {"GRADWIRE_STREAMS": "9"}, "GRADWIRE_STREAMS=9: expected 1 to 8"),
            ({"port": 65536}, {}, "port 65536: expected 0 to 65535"),
            ({}, {"GRADWIRE_PORT": "http"}, "GRADWIRE_PORT=http: expected 0 to 65535"),
            ({}, {"GRADWIRE_TLS": "yes"}, "GRADWIRE_TLS=yes: expected 0 to 1"),
        ):
            self.assertIn(cause, run(over, 1, options, variables)[0])

    def test_a_server_with_tls_serves_ranks_with_tls(self):
        with Server(2, "--tls", "--streams", "2", "--relay") as server:
            for losses in run(served_by_tls, 2, server.address, server.token):
                self.assertLess(losses[-1], losses[0])
            self.assertEqual(server.end()[0], 0)


def killed(rank, options):
    """Rank 2 is killed while the others wait for it. What they are told."""
    state = gradwire.State(gradwire.Link(**options), "f32")
    state._way.worker.submit(torch.ones(1), _worker.Layout(["a"], [torch.ones(1)]), False).wait()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        state._way.worker.submit(torch.ones(1), _worker.Layout(["a"], [torch.ones(1)]), False).wait()
    except RuntimeError as error:
        return str(error)


def served_by_tls(rank, address, token):
    ddp, state = hooked(net(), "q8", gradwire.Link(token_file=token, tls=True, streams=2, relay=True), server=address)
    optimizer = sgd(ddp)
    losses = [step(ddp, optimizer, rank, iteration) for iteration in range(8)]
    state.close()
    return losses


def refused_timeout(rank, timeout):
    try:
        gradwire.State(gradwire.Link(timeout=timeout), "f32")
    except ValueError as error:
        return str(error)


if __name__ == "__main__":
    unittest.main()

#!/usr/bin/env python3
"""The processes `crem-gateway export` and `crem-gateway collect` against each other and against peers that
misbehave.

    processes.py GATEWAY RESULTS

A data plane is played from here: batches of records over the socket of the exporting process, in the
format of its hand-over. Collectors are ours, stunnel, and ones that are killed, refuse, do not read, read
slowly or forget. Every stream of octets goes through the strict check; what was handed over has to be
sent or counted. Works in the directory RESULTS; exit status 0 if all agrees, 1 if not. Only Python's
standard library is used.
"""
import json
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import interop  # noqa: E402
from interop import verify  # noqa: E402

LOST = ("dropped_disconnected", "dropped_full", "refused", "stale", "lost")


def until(what, so, seconds=10.0):
    """Waits for something; what is not so in time is a failure."""
    deadline = time.time() + seconds
    while time.time() < deadline:
        value = so()
        if value:
            return value
        time.sleep(0.02)
    verify(what, "in time", "not in time")
    return None


# --- the data plane ------------------------------------------------------------------------------------

def number(name):
    """What the data plane and the exporting process call a collector: FNV-1a of its name, halves combined."""
    value = 0x811c9dc5
    for octet in name.encode():
        value = (value ^ octet) * 0x01000193 & 0xffffffff
    return value >> 16 ^ value & 0xffff


def address(text):
    return b"\x04" + socket.inet_aton(text)


class DataPlane:
    """Hands records over and takes sessions back, as the auxiliary thread of the data plane does."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.connect(path)
        self.socket.setblocking(False)
        self.sessions = {}
        self.begun = []
        self.packets = 0
        self.psn = 0
        self.started = time.time_ns() - 10**9

    def hear(self):
        """Takes what the process said; False if it is gone."""
        while True:
            try:
                message = self.socket.recv(64)
            except BlockingIOError:
                return True
            except OSError:
                return False
            if not message:
                return False
            _, kind, collector, session = struct.unpack("<BBHI", message)
            if kind == 0:
                self.sessions[collector] = session
                self.begun.append((collector, session))
            else:
                self.sessions.pop(collector, None)

    def session(self, name):
        self.hear()
        return self.sessions.get(number(name))

    def send(self, items):
        """One batch. A full socket is waited for here, so that every loss is the exporter's."""
        deadline = time.time() + 10
        while True:
            try:
                return self.socket.send(b"\x01" + b"".join(items))
            except BlockingIOError:
                if time.time() > deadline:
                    raise
                time.sleep(0.001)

    def packet(self):
        self.psn = (self.psn + 1) % (1 << 24)
        bth = struct.pack(">BBHII", 4, 0, 0xffff, 0x123, self.psn)
        return (struct.pack("<BQQ", 0, 12, time.time_ns()) + address("10.0.0.1") + address("10.0.0.2")
                + struct.pack("<HHBBBQ", 49152, 4791, 3, 0, 0, 0) + bth)

    def send_packets(self, count, batch=500):
        while count > 0:
            now = min(count, batch)
            self.send([self.packet() for _ in range(now)])
            self.packets += now
            count -= now

    def report(self, name, session, epoch, requests, flags=0x20):
        # What an epoch's first report says of its start holds for all of them.
        start = self.started
        self.send([struct.pack("<BHIIIIH", 2, number(name), session, 0, 4096, 0, flags)
                   + address("10.0.0.1") + address("10.0.0.2") + struct.pack("<IH", 0x123, 0xffff)
                   + struct.pack("<12Q", 0, 12, epoch, start, start + 10**8, 0, 0, 0, 0, 0, requests, 0)])

    def close(self):
        self.socket.close()


# --- collectors that are played from here --------------------------------------------------------------

class Sink:
    """Keeps the octets of every connection. `pace` octets a second, 0 for not reading at all."""

    def __init__(self, pace=None, buffer=None):
        self.listener = socket.socket()
        if buffer:
            self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.listener.bind(("127.0.0.1", 0))
        self.listener.listen()
        self.port = self.listener.getsockname()[1]
        self.pace = pace
        self.streams = []
        self.connections = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            stream = bytearray()
            self.streams.append(stream)
            self.connections.append(connection)
            if self.pace != 0:
                threading.Thread(target=self.read, args=(connection, stream), daemon=True).start()

    def read(self, connection, stream):
        while True:
            try:
                data = connection.recv(4096)
            except OSError:
                return
            if not data:
                return
            stream += data
            if self.pace:
                time.sleep(len(data) / self.pace)

    def drop(self):
        """Ends the connections that there are."""
        for connection in self.connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def close(self):
        self.listener.close()
        for connection in self.connections:
            connection.close()


def whole(stream):
    """The whole messages of a stream."""
    at = 0
    while at + 4 <= len(stream):
        length, = struct.unpack_from(">H", stream, at + 2)
        if length < 16 or at + length > len(stream):
            break
        at += length
    return bytes(stream[:at])


def strict(what, stream):
    checker = interop.check.Checker()
    checker.stream(whole(stream))
    verify(f"{what}: strict check", [], checker.findings[:3])


class Lab(interop.Lab):
    """Runs the gateway's processes in a directory for each test."""

    def __init__(self, gateway, results):
        super().__init__(gateway, results)
        self.gateway = gateway
        self.name = ""

    def begin(self, name):
        self.name = name
        shutil.rmtree(self.path(name), ignore_errors=True)
        os.makedirs(self.path(name))

    def file(self, name):
        return self.path(self.name, name)

    def document(self, collectors):
        path = self.file("document.toml")
        with open(path, "w", encoding="utf-8") as file:
            file.write('version = 1\n[segments.a]\nmode = "passthrough"\ncrem_port = 4801\npath_mtu = 1500\n'
                       'lan = { interface = "lan0" }\nwan = { interface = "wan0" }\n'
                       "[ipfix]\ndomain = 7\npen = 32473\nfirst_element = 1\n"
                       '[ipfix.scopes.all]\nsource = "10.0.0.0/8"\ndestination = "10.0.0.0/8"\n'
                       '[ipfix.points.in]\nsegment = "a"\nplace = "lan_ingress"\nbase = 12\nflows = true\n'
                       'sequence = true\npackets = { select = "all" }\n'
                       "[ipfix.sequence]\nmax_connections = 16\nmax_epochs = 16\n"
                       '[ipfix.connections.c]\nsource = "10.0.0.1/32"\ndestination = "10.0.0.2/32"\n'
                       "only_send_and_write = true\ncomplete_and_unambiguous = true\n"
                       "packets_per_s = 1000000\nlongest_retry_ms = 1000\n")
            for name, keys in sorted(collectors.items()):
                keys = {"transport": "tcp", "host": "127.0.0.1", "sequence": True, "retry_ms": 200,
                        "flush_ms": 20, "confirm_ms": 300, "stall_timeout_ms": 1000, "statistics_ms": 400,
                        "queue_kb": 64, **keys}
                file.write(f"[ipfix.collectors.{name}]\n")
                for key, value in keys.items():
                    if isinstance(value, dict):
                        pairs = ", ".join(f'{k} = {v if v.startswith("{") else json.dumps(v)}'
                                          for k, v in value.items())
                        file.write(f"{key} = {{ {pairs} }}\n")
                    else:
                        file.write(f"{key} = {json.dumps(value)}\n")
        return path

    def export(self, document, log="export.log"):
        process = self.start(self.gateway, "export", "--document", document, "--socket", self.file("export.sock"),
                             "--status-socket", self.file("status.sock"),
                             ready=lambda: os.path.exists(self.file("status.sock")) and self.status() is not None,
                             log=f"{self.name}/{log}")
        return process

    def status(self):
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(2)
            try:
                client.connect(self.file("status.sock"))
                client.sendall(b'{"v":1,"get":"export"}\n')
                return json.loads(client.makefile().readline())["export"]
            except (OSError, ValueError):
                return None

    def collector(self, name):
        return (self.status() or {}).get("collectors", {}).get(name, {"state": "", "counters": {}})

    def collect(self, port, name, kind="tcp"):
        out = self.file(f"{name}.jsonl")
        with open(out, "a", encoding="utf-8") as results:
            process = subprocess.Popen([self.gateway, "collect", f"--{kind}", f"127.0.0.1:{port}", "--pen", "32473",
                                        "--first-element", "1", "--strict"], stdout=results,
                                       stderr=subprocess.DEVNULL)
        self.running.append(process)
        until(f"{self.name}: {name} listens", interop.bound_udp(port) if kind == "udp" else interop.listening(port))
        return process, out

    def data_plane(self):
        return DataPlane(self.file("export.sock"))

    def balance(self, name, handed):
        """Everything that was handed over for a collector was sent or counted."""
        def balanced():
            counters = self.collector(name)["counters"]
            return handed == sum(counters.get(key, 0) for key in ("records",) + LOST) or None
        if until(f"{self.name}: {name}: {handed} records are sent or counted", balanced, 5) is None:
            print("  ", self.collector(name))


def lines(path):
    with open(path, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def packets_in(events):
    return sum(1 for e in events if e["event"] == "record" and e["profile"] == "bth-packet")


def reports_in(events):
    return [(e["session"], e["epoch"], e["report"], e["verdict"]) for e in events if e["event"] == "report"]


# --- the tests -----------------------------------------------------------------------------------------

def two_collectors(lab):
    """The second one is killed and started again: the first one's epochs go on."""
    lab.begin("two-collectors")
    ports = [interop.port(socket.SOCK_STREAM) for _ in range(2)]
    first, first_out = lab.collect(ports[0], "first")
    second, second_out = lab.collect(ports[1], "second")
    # A name is looked up, and again for each attempt.
    document = lab.document({"a": {"port": ports[0], "queue_kb": 4096}, "b": {"port": ports[1], "queue_kb": 4096},
                             "c": {"host": "localhost", "port": ports[0], "sequence": False, "packets": False}})
    export = lab.export(document)
    plane = lab.data_plane()
    until("two collectors: sessions", lambda: plane.session("a") and plane.session("b") and plane.session("c"))
    verify("two collectors: a host name is resolved", "session", lab.collector("c")["state"])
    plane.send_packets(1000)
    for name in ("a", "b"):
        plane.report(name, plane.session(name), 1, 10)
    until("two collectors: all records arrive", lambda: packets_in(lines(first_out)) == 1000
          and packets_in(lines(second_out)) == 1000)
    until("two collectors: reports arrive", lambda: reports_in(lines(first_out)) and reports_in(lines(second_out)))
    lab.stop(second, signal.SIGKILL)
    until("two collectors: its end is told", lambda: plane.session("b") is None)
    plane.send_packets(300)
    # A snapshot of the session that is over is not owed to the next one.
    plane.report("b", 1, 1, 20)
    plane.report("a", plane.session("a"), 1, 20)
    second, second_out = lab.collect(ports[1], "second-again")
    # A connection that the dying collector's kernel still took may have been another one between them.
    until("two collectors: a new session", lambda: any(e["event"] == "template" for e in lines(second_out)))
    until("two collectors: it is told", lambda: (plane.session("b") or 0) >= 2)
    verify("two collectors: the first session goes on", 1, plane.session("a"))
    plane.report("a", plane.session("a"), 1, 30)
    plane.report("a", plane.session("a"), 1, 31, 0x21)
    plane.report("b", plane.session("b"), 7, 5)
    plane.report("b", plane.session("b"), 7, 5, 0x21)
    plane.send_packets(50)
    until("two collectors: the first has its epoch", lambda: len(reports_in(lines(first_out))) == 4)
    verify("two collectors: one epoch, four reports", [(1, n, "accepted") for n in (1, 2, 3, 4)],
           [r[1:] for r in reports_in(lines(first_out))])
    until("two collectors: the second has a new epoch", lambda: len(reports_in(lines(second_out))) == 2)
    verify("two collectors: epochs begin anew in a new session", [(1, 1, "accepted"), (1, 2, "accepted")],
           [r[1:] for r in reports_in(lines(second_out))])
    lab.balance("a", plane.packets + 4)
    lab.balance("b", plane.packets + 4)
    counters = lab.collector("b")["counters"]
    verify("two collectors: losses of the second", True, counters["dropped_disconnected"] + counters["lost"] >= 300)
    verify("two collectors: a snapshot of an old session is dropped", 1, counters["stale"])
    export.send_signal(signal.SIGHUP)
    plane.send_packets(10000)
    lab.stop(export)
    verify("two collectors: export ends in order", 0, export.returncode)
    until("two collectors: nothing is lost at the end", lambda: packets_in(lines(first_out)) == plane.packets)
    for process, name in ((first, "first"), (second, "second")):
        lab.stop(process)
        verify(f"two collectors: {name} finds nothing wrong", 0, process.returncode)
    summary = lines(first_out)[-1]
    verify("two collectors: summary", ("summary", True, plane.packets, 1),
           (summary["event"], summary["clean"], summary["packets"], summary["epochs"]["complete"]))
    # The descriptions of elements say that they do not mean it.
    text = " ".join(json.dumps(e) for e in lines(first_out) if not e.get("options")).lower()
    verify("two collectors: nobody speaks of lost packets", None, re.search("lost|loss|retransmi|reorder", text))
    plane.close()


def bad_peers(lab):
    """Refusing, half-open, slow and forgetting collectors cost only their own records."""
    lab.begin("bad-peers")
    good, forgets, slow, silent = Sink(), Sink(), Sink(pace=20000, buffer=4096), Sink(pace=0, buffer=4096)
    refuses = interop.port(socket.SOCK_STREAM)
    document = lab.document({"forgets": {"port": forgets.port}, "good": {"port": good.port, "queue_kb": 16384},
                             "refuses": {"port": refuses}, "silent": {"port": silent.port},
                             "slow": {"port": slow.port, "stall_timeout_ms": 20000}})
    export = lab.export(document)
    plane = lab.data_plane()
    until("bad peers: sessions", lambda: all(plane.session(n) for n in ("forgets", "good", "silent", "slow")))
    # More than the kernel's buffers hold for those that do not read; the good one's queue drains meanwhile.
    for round_ in range(160):
        plane.send_packets(1000)
        time.sleep(0.01)
        if round_ == 80:
            forgets.drop()
    until("bad peers: the silent one is given up", lambda: lab.collector("silent")["counters"]["stalled"] >= 1)
    until("bad peers: the forgetting one has two sessions", lambda: len(forgets.streams) >= 2)
    until("bad peers: the last session of it", lambda: plane.session("forgets"))
    plane.send_packets(100)
    for name in ("forgets", "good", "refuses", "silent"):
        lab.balance(name, plane.packets)
    counters = {name: lab.collector(name)["counters"] for name in ("forgets", "good", "refuses", "silent", "slow")}
    verify("bad peers: the good one gets everything", plane.packets, counters["good"]["records"])
    verify("bad peers: nothing counts as sent to the refusing one", (0, plane.packets),
           (counters["refuses"]["records"], counters["refuses"]["dropped_disconnected"]))
    verify("bad peers: attempts are apart", True, 1 <= counters["refuses"]["attempts"] <= 40)
    verify("bad peers: the silent one costs its records", True, sum(counters["silent"][key] for key in LOST) > 0)
    verify("bad peers: the slow one costs its records", True, counters["slow"]["dropped_full"] > 0)
    verify("bad peers: the slow one keeps its session", 1, counters["slow"]["sessions"])
    queue = counters["slow"]["queued_octets"]
    verify("bad peers: the queue is bounded", True, queue <= 64 * 1024)
    lab.stop(export)
    verify("bad peers: export ends in order", 0, export.returncode)
    until("bad peers: the good stream is complete", lambda: whole(good.streams[0]) == bytes(good.streams[0]), 2)
    for name, sink in (("good", good), ("forgets", forgets), ("slow", slow)):
        for number, stream in enumerate(sink.streams):
            strict(f"bad peers: {name}, session {number + 1}", stream)
    for sink in (good, forgets, slow, silent):
        sink.close()
    plane.close()


def killed(lab):
    """The exporting process is killed and started again: sessions and epochs are new."""
    lab.begin("killed")
    sink = Sink()
    document = lab.document({"a": {"port": sink.port}})
    export = lab.export(document)
    plane = lab.data_plane()
    until("killed: a session", lambda: plane.session("a"))
    plane.send_packets(200)
    plane.report("a", 1, 1, 10)
    until("killed: records are sent", lambda: lab.collector("a")["counters"].get("records") == 201)
    lab.stop(export, signal.SIGKILL)
    until("killed: the data plane sees it", lambda: not plane.hear())
    verify("killed: handing over fails at once and does not wait", True, refused(plane))
    plane.close()
    export = lab.export(document, log="again.log")
    plane = lab.data_plane()
    until("killed: a session again", lambda: plane.session("a"))
    plane.send_packets(100)
    plane.report("a", plane.session("a"), 2, 3)
    plane.report("a", plane.session("a"), 2, 3, 0x21)
    lab.balance("a", 102)
    # Another data plane: its epochs are others, whatever their numbers.
    plane.close()
    plane = lab.data_plane()
    until("killed: a new data plane is told of the session", lambda: plane.session("a") == 1)
    plane.report("a", 1, 2, 9)
    plane.report("a", 1, 2, 9, 0x21)
    lab.balance("a", 104)
    lab.stop(export)
    verify("killed: export ends in order", 0, export.returncode)
    verify("killed: two sessions", 2, len(sink.streams))
    for number, stream in enumerate(sink.streams):
        strict(f"killed: session {number + 1}", stream)
    with open(lab.file("second.ipfix"), "wb") as file:
        file.write(sink.streams[1])
    run = subprocess.run([lab.gateway, "collect", "--pen", "32473", "--first-element", "1", "--strict",
                          lab.file("second.ipfix")], capture_output=True, text=True, timeout=30)
    events = [json.loads(line) for line in run.stdout.splitlines()]
    verify("killed: a file is collected", (0, 100, 2), (run.returncode, packets_in(events),
                                                       events[-1]["epochs"]["complete"]))
    sink.close()


def refused(plane):
    try:
        plane.send_packets(1)
    except OSError:
        return True
    return False


def strictness(lab):
    """`collect --strict` sees what is wrong with a stream."""
    lab.begin("strictness")
    path = lab.file("bad.ipfix")
    # A Data Record without a template, and a second message with a wrong sequence number.
    data = struct.pack(">HHI", 300, 8, 1)
    with open(path, "wb") as file:
        for sequence in (0, 9):
            file.write(struct.pack(">HHIII", 10, 16 + len(data), int(time.time()), sequence, 7) + data)
    command = [lab.gateway, "collect", "--pen", "32473", "--first-element", "1", path]
    run = subprocess.run([*command, "--strict"], capture_output=True, text=True, timeout=30)
    verify("strictness: exit status", 3, run.returncode)
    issues = [json.loads(line) for line in run.stdout.splitlines() if '"issue"' in line]
    verify("strictness: issues are told", True, len(issues) >= 1)
    verify("strictness: without --strict it is only told", 0,
           subprocess.run(command, capture_output=True, timeout=30).returncode)


def tls(lab):
    """stunnel refuses a wrong certificate; when the file has a right one, it is read and let in."""
    lab.begin("tls")
    path = interop.certificates(lab)
    sink, secure = Sink(), interop.port(socket.SOCK_STREAM)
    with open(path("processes.conf"), "w", encoding="ascii") as file:
        file.write(f"foreground = yes\npid =\n[ipfix]\naccept = 127.0.0.1:{secure}\n"
                   f"connect = 127.0.0.1:{sink.port}\ncert = {path('collector.crt')}\n"
                   f"key = {path('collector.key')}\nCAfile = {path('ca.crt')}\nverifyChain = yes\n"
                   "requireCert = yes\ncheckHost = exporter.lab.test\nsslVersionMin = TLSv1.3\n")
    stunnel = lab.start("stunnel", path("processes.conf"), ready=interop.listening(secure), log="tls/processes.log")
    for end in ("crt", "key"):
        shutil.copy(path(f"wrong.{end}"), lab.file(f"ours.{end}"))
    document = lab.document({"a": {"transport": "tls", "port": secure, "retry_ms": 500, "tls": {
        "certificate": lab.file("ours.crt"), "key": lab.file("ours.key"), "authorities": path("ca.crt"),
        "names": '{ "collector.lab.test" = {} }'}}})
    export = lab.export(document)
    plane = lab.data_plane()
    until("tls: a wrong certificate is refused", lambda: lab.collector("a")["counters"]["not_authorised"] >= 1)
    plane.send_packets(100)
    lab.balance("a", 100)
    counters = lab.collector("a")["counters"]
    verify("tls: nothing counts as sent", (0, 0, 100),
           (counters["records"], counters["sessions"], counters["dropped_disconnected"]))
    with open(lab.file("export.log"), encoding="utf-8") as log:
        verify("tls: not authorised is told", True, "not authorised" in log.read())
    verify("tls: nothing reached the collector", 0, sum(map(len, sink.streams)))
    for end in ("key", "crt"):
        shutil.copy(path(f"exporter.{end}"), lab.file(f"ours.{end}"))
    until("tls: the certificate is read anew and let in", lambda: plane.session("a"), 20)
    plane.send_packets(400)
    plane.report("a", plane.session("a"), 1, 5)
    plane.report("a", plane.session("a"), 1, 5, 0x21)
    lab.balance("a", 502)
    lab.stop(export)
    verify("tls: export ends in order", 0, export.returncode)
    streams = [s for s in sink.streams if s]
    until("tls: the stream is complete", lambda: whole(streams[0]) == bytes(streams[0]), 3)
    verify("tls: one session", 1, len(streams))
    strict("tls", streams[0])
    lab.stop(stunnel)
    sink.close()
    plane.close()
    mutual_tls(lab, path)


def mutual_tls(lab, path):
    """Our own collector over TLS: it lets in whom it knows, and nobody else."""
    for name, expected in (("exporter", "session"), ("wrong", "waiting"), ("stranger", "waiting")):
        lab.begin(f"mutual-{name}")
        port = interop.port(socket.SOCK_STREAM)
        with open(lab.file("collect.jsonl"), "w", encoding="utf-8") as results:
            collect = subprocess.Popen(
                [lab.gateway, "collect", "--tls", f"127.0.0.1:{port}", "--certificate", path("collector.crt"), "--key",
                 path("collector.key"), "--authorities", path("ca.crt"), "--name", "exporter.lab.test", "--pen",
                 "32473", "--first-element", "1", "--strict"], stdout=results, stderr=subprocess.DEVNULL)
        lab.running.append(collect)
        until(f"{lab.name}: listens", interop.listening(port))
        document = lab.document({"a": {"transport": "tls", "port": port, "retry_ms": 60000, "tls": {
            "certificate": path(f"{name}.crt"), "key": path(f"{name}.key"), "authorities": path("ca.crt"),
            "names": '{ "collector.lab.test" = {} }'}}})
        export = lab.export(document)
        until(f"{lab.name}: {expected}", lambda: lab.collector("a")["state"] == expected
              and (expected == "session" or lab.collector("a")["counters"]["failures"] >= 1))
        plane = lab.data_plane()
        plane.send_packets(100)
        lab.balance("a", 100)
        sent = lab.collector("a")["counters"]["records"]
        lab.stop(export)
        lab.stop(collect)
        found = packets_in(lines(lab.file("collect.jsonl")))
        good = name == "exporter"
        verify(f"{lab.name}: records sent and taken", (100, 100) if good else (0, 0), (sent, found))
        verify(f"{lab.name}: exit status of the collector", 0 if good else 3, collect.returncode)
        plane.close()


def document_changes(lab):
    """A changed document is followed: collectors come, go and change, and all other sessions go on."""
    lab.begin("document")
    keeps, changes, comes = Sink(), Sink(), Sink()
    known = {"keeps": {"port": keeps.port}, "changes": {"port": changes.port}}
    document = lab.document(known)
    export = lab.export(document)
    plane = lab.data_plane()
    until("document: sessions", lambda: plane.session("keeps") and plane.session("changes"))
    plane.send_packets(100)
    plane.report("keeps", 1, 1, 10)
    lab.balance("keeps", 101)
    lab.balance("changes", 100)
    # One that sorts before the others comes, and one gets another queue; the signal asks for it at once.
    known["a-new-one"] = {"port": comes.port}
    known["changes"] = {"port": changes.port, "queue_kb": 128}
    lab.document(known)
    export.send_signal(signal.SIGHUP)
    until("document: the new one has a session", lambda: plane.session("a-new-one") == 1)
    until("document: the changed one has its second session", lambda: plane.session("changes") == 2)
    verify("document: the other session goes on", 1, plane.session("keeps"))
    plane.send_packets(50)
    plane.report("keeps", 1, 1, 20)
    plane.report("changes", 1, 1, 5)
    lab.balance("keeps", 152)
    lab.balance("changes", 151)
    lab.balance("a-new-one", 50)
    verify("document: a snapshot of the session before is dropped", 1, lab.collector("changes")["counters"]["stale"])
    # What cannot be carried out changes nothing and is told; nobody asked this time.
    with open(document, "a", encoding="utf-8") as file:
        file.write('[ipfix.collectors.bad]\ntransport = "pigeon"\nhost = "127.0.0.1"\n')
    until("document: a bad one is refused", lambda: lab.status()["source"]["documents_refused"] >= 1)
    verify("document: and changes nothing", ["a-new-one", "changes", "keeps"], sorted(lab.status()["collectors"]))
    with open(lab.file("export.log"), encoding="utf-8") as log:
        verify("document: the reason is told with its place", True, "/ipfix/collectors/bad/transport" in log.read())
    del known["changes"]
    lab.document(known)
    until("document: one that goes has no session", lambda: plane.session("changes") is None)
    until("document: nor is it in the status", lambda: sorted(lab.status()["collectors"]) == ["a-new-one", "keeps"])
    plane.send_packets(50)
    plane.report("keeps", 1, 1, 21, 0x21)
    lab.balance("keeps", 203)
    lab.balance("a-new-one", 100)
    until("document: connections", lambda: (len(keeps.streams), len(changes.streams), len(comes.streams)) == (1, 2, 1))
    lab.stop(export)
    verify("document: export ends in order", 0, export.returncode)
    for name, sink in (("keeps", keeps), ("changes", changes), ("comes", comes)):
        for place, stream in enumerate(sink.streams):
            until(f"document: {name} is complete", lambda: whole(stream) == bytes(stream), 3)
            strict(f"document: {name}, session {place + 1}", stream)
        sink.close()
    plane.close()


def datagrams(lab):
    """Over UDP a collector that is started again learns the templates with the next refresh."""
    lab.begin("datagrams")
    port = interop.port(socket.SOCK_DGRAM)
    collect, out = lab.collect(port, "first", "udp")
    export = lab.export(lab.document({"a": {"transport": "udp", "port": port, "sequence": False, "mtu": 1500,
                                            "refresh_ms": 300}}))
    plane = lab.data_plane()
    until("datagrams: a session", lambda: plane.session("a"))
    plane.send_packets(500, batch=50)
    until("datagrams: all arrive", lambda: packets_in(lines(out)) == 500)
    lab.stop(collect)
    verify("datagrams: nothing is wrong", 0, collect.returncode)
    plane.send_packets(50)
    collect, out = lab.collect(port, "second", "udp")
    # The templates of the session come with the types of the elements, before any record is understood.
    until("datagrams: templates again", lambda: any(e["event"] == "template" for e in lines(out)))
    time.sleep(0.1)
    plane.send_packets(100, batch=50)
    until("datagrams: records after the refresh arrive", lambda: packets_in(lines(out)) >= 100)
    lab.stop(export)
    lab.stop(collect)
    plane.close()


def refusals(lab):
    """What cannot work is refused at the start, with its place and a sentence."""
    lab.begin("refusals")
    cases = [({"a": {"host": "10.0.0.1", "port": 4739}}, "/ipfix/collectors/a/sequence"),
             ({"a": {"transport": "tls", "port": 4740, "tls": {
                 "certificate": "/nowhere/c", "key": "/nowhere/k", "authorities": "/nowhere/a",
                 "names": '{ "collector.lab.test" = {} }'}}}, "/ipfix/collectors/a/tls")]
    try:
        socket.socket(socket.AF_INET, socket.SOCK_SEQPACKET, 132).close()
    except OSError:
        cases.append(({"a": {"transport": "sctp", "port": 4739}}, "this kernel has no SCTP"))
    for collectors, words in cases:
        run = subprocess.run([lab.gateway, "export", "--document", lab.document(collectors), "--socket",
                              lab.file("export.sock"), "--status-socket", lab.file("status.sock")],
                             capture_output=True, text=True, timeout=20)
        verify(f"refusals: {words}", (2, True), (run.returncode, words in run.stderr))


def main():
    if len(sys.argv) != 3:
        print(__doc__)
        return 2
    lab = Lab(os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2]))
    try:
        for test in (refusals, strictness, document_changes, datagrams, two_collectors, bad_peers, killed, tls):
            start = time.time()
            test(lab)
            print(f"processes: {test.__name__}: {time.time() - start:.1f} s")
    finally:
        lab.close()
    print(f"processes: {interop.done} checks passed, {len(interop.failures)} failed")
    return 1 if interop.failures or not interop.done else 0


if __name__ == "__main__":
    sys.exit(main())

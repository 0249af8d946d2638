#!/usr/bin/env python3
"""What other people's collectors make of what we export.

    interop.py REPLAY RESULTS CAPTURE...

Replays every capture through the meters and the exporter (the program REPLAY) to files, over UDP, TCP
and TLS, and has tshark, ipfixDump, nfcapd, nfacctd and stunnel take it. What they decode is compared
with a count made here from the capture, octet by octet; every stream also goes through the strict
check. Works in the directory RESULTS; exit status 0 if all agrees, 1 if not. The programs have to be
installed; nothing is skipped. Only Python's standard library is used.
"""
import collections
import gzip
import ipaddress
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check  # noqa: E402

FIELDS = ("source", "destination", "sport", "dport", "tos", "opcode", "pkey", "qp", "psn", "o1", "o4", "o8")
Packet = collections.namedtuple("Packet", FIELDS + ("octets",))
failures = []
done = 0


def verify(what, expected, found):
    global done
    if expected == found:
        done += 1
        return
    failures.append(what)
    print(f"FAILED {what}: expected {str(expected)[:300]}, found {str(found)[:300]}")


# --- the count from the capture ------------------------------------------------------------------------

def frames(path):
    with gzip.open(path) as file:
        data = file.read()
    order = "<" if data[:4] in (b"\xd4\xc3\xb2\xa1", b"\x4d\x3c\xb2\xa1") else ">"
    at = 24
    while at < len(data):
        _, _, captured, wire = struct.unpack_from(order + "IIII", data, at)
        if captured == wire:
            yield data[at + 16:at + 16 + captured]
        at += 16 + captured


def packet(frame):
    """The RoCEv2 packet in a frame, by section 4.1 of the BTH draft; None if it is none."""
    at, kind = 14, struct.unpack_from(">H", frame, 12)[0]
    while kind in (0x8100, 0x88a8):
        kind, = struct.unpack_from(">H", frame, at + 2)
        at += 4
    if kind == 0x0800:
        first, tos, total, _, fragment, _, protocol = struct.unpack_from(">BBHHHBB", frame, at)
        udp, end = at + (first & 15) * 4, at + total
        source, destination = (socket.inet_ntop(socket.AF_INET, frame[at + o:at + o + 4]) for o in (12, 16))
        if protocol != 17 or fragment & 0x3fff or end > len(frame):
            return None
        octets = total
    elif kind == 0x86dd:
        word, length, protocol = struct.unpack_from(">IHB", frame, at)
        udp, end, tos, octets = at + 40, at + 40 + length, word >> 20 & 0xff, 40 + length
        source, destination = (socket.inet_ntop(socket.AF_INET6, frame[at + o:at + o + 16]) for o in (8, 24))
        if protocol != 17 or end > len(frame):
            return None
    else:
        return None
    sport, dport, length = struct.unpack_from(">HHH", frame, udp)
    bth = frame[udp + 8:end]
    if dport != 4791 or udp + length != end or len(bth) < 12 or bth[1] & 15:
        return None
    return Packet(source, destination, sport, dport, tos, bth[0], int.from_bytes(bth[2:4], "big"),
                  int.from_bytes(bth[5:8], "big"), int.from_bytes(bth[9:12], "big"), bth[1], bth[4], bth[8],
                  octets)


def flows(packets):
    """Packets and IP octets by Flow Keys."""
    sums = collections.Counter(), collections.Counter()
    for p in packets:
        key = (p.source, p.destination, p.sport, p.pkey, p.qp)
        sums[0][key] += 1
        sums[1][key] += p.octets
    return {key: (sums[0][key], sums[1][key]) for key in sums[0]}


def epochs(packets, window=4096):
    """Final counters of every epoch by connection, by section 5 of the sequence draft, with sets."""
    half, space = 1 << 23, 1 << 24
    connections, disabled, closed = {}, set(), []

    def close(key, flags):
        if key in connections:
            e = connections.pop(key)
            closed.append((key, 0x21 | flags, e["skipped"], e["filled"], e["expired"], len(e["pending"]),
                           e["repeated"], e["requests"], e["late"]))

    def begin(key, psn):
        connections[key] = {"start": psn, "high": psn, "seen": {psn}, "pending": set(), "skipped": 0,
                            "filled": 0, "expired": 0, "repeated": 0, "requests": 1, "late": 0}

    for p in packets:
        key = (p.source, p.destination, p.qp, p.pkey)
        if 0x0d <= p.opcode <= 0x12 or p.opcode == 0x81 or p.qp < 2 or key in disabled:
            continue
        if p.opcode > 0x0b:
            close(key, 2)
            disabled.add(key)
            continue
        e = connections.get(key)
        if e is None:
            begin(key, p.psn)
            continue
        ahead = (p.psn - e["high"]) % space
        distance = ahead if ahead < half else ahead - space
        if ahead == half or distance > window:
            close(key, 0x10)
            begin(key, p.psn)
            continue
        e["requests"] += 1
        place = e["high"] + distance
        if distance > 0:
            e["pending"] |= set(range(e["high"] + 1, place))
            e["skipped"] += distance - 1
            e["high"] = place
            e["seen"].add(place)
            low = max(e["start"], place - window + 1)
            e["expired"] += sum(1 for q in e["pending"] if q < low)
            e["pending"] = {q for q in e["pending"] if q >= low}
            e["seen"] = {q for q in e["seen"] if q >= low} if len(e["seen"]) > 2 * window else e["seen"]
        elif place in e["pending"]:
            e["pending"].remove(place)
            e["seen"].add(place)
            e["filled"] += 1
        elif place >= max(e["start"], e["high"] - window + 1):
            e["repeated"] += 1
        else:
            e["late"] += 1
    for key in list(connections):
        close(key, 0)
    return sorted(closed)


# --- running programs ----------------------------------------------------------------------------------

class Lab:
    def __init__(self, replay, results):
        self.replay = replay
        self.results = results
        self.running = []

    def path(self, *names):
        path = os.path.join(self.results, *names)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        return path

    def export(self, to, capture, *options):
        command = [self.replay, "--to", to, *options, capture]
        run = subprocess.run(command, capture_output=True, text=True, timeout=120)
        if run.stderr:
            print(run.stderr.strip())
        lines = run.stdout.splitlines()
        return run.returncode, json.loads(lines[-1]) if lines else {}

    def start(self, *command, ready=None, log="log"):
        with open(self.path(log), "w", encoding="utf-8") as out:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT)
        self.running.append(process)
        if ready:
            deadline = time.time() + 10
            while not ready() and process.poll() is None and time.time() < deadline:
                time.sleep(0.05)
            if process.poll() is not None or not ready():
                raise SystemExit(f"{command[0]} does not start: see {self.path(log)}")
        return process

    def stop(self, process, how=signal.SIGTERM):
        if process.poll() is None:
            process.send_signal(how)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.running.remove(process)

    def close(self):
        for process in list(self.running):
            self.stop(process)


def port(kind):
    with socket.socket(socket.AF_INET, kind) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def bound_udp(number):
    def ready():
        local = f"0100007F:{number:04X}"
        anywhere = f"00000000:{number:04X}"
        with open("/proc/net/udp", encoding="ascii") as table:
            return any(local in line or anywhere in line for line in table)
    return ready


def listening(number):
    def ready():
        with open("/proc/net/tcp", encoding="ascii") as table:
            return any(f":{number:04X} 00000000:0000 0A" in line for line in table)
    return ready


# --- one check for each collector ----------------------------------------------------------------------

def strict(what, path, **options):
    checker = check.Checker(**options)
    with open(path, "rb") as file:
        checker.stream(file.read())
    verify(f"{what}: strict check", [], checker.findings[:3])
    return checker


def messages(octets):
    at = 0
    while at < len(octets):
        length, = struct.unpack_from(">H", octets, at + 2)
        yield octets[at:at + length]
        at += length


def as_pcap(stream, path):
    """The messages of a stream as UDP datagrams in a capture, for tshark."""
    out = struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, 65535, 1)
    for message in messages(stream):
        udp = struct.pack(">HHHH", 40000, 4739, 8 + len(message), 0) + message
        ip = struct.pack(">BBHHHBBH", 0x45, 0, 20 + len(udp), 0, 0x4000, 64, 17, 0) + b"\x0a\0\0\1\x0a\0\0\2"
        frame = b"\x02\0\0\0\0\1\x02\0\0\0\0\2\x08\0" + ip + udp
        out += struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame
    with open(path, "wb") as file:
        file.write(out)


def tshark(lab, name, stream, packets):
    path = lab.path(name, "messages.pcap")
    as_pcap(stream, path)
    expert = subprocess.run(["tshark", "-r", path, "-q", "-z", "expert"], capture_output=True, text=True)
    verify(f"{name}: tshark has no expert item", "", expert.stdout.strip())
    text = subprocess.run(["tshark", "-r", path, "-V"], capture_output=True, text=True).stdout
    # Records of packets: everything between one observation time and the next.
    found = []
    for part in text.split("Observation Time Nanoseconds: ")[1:]:
        def one(pattern):
            match = re.search(pattern, part)
            return match.group(1) if match else None
        private = {int(n): int(v.replace(" ", ""), 16)
                   for n, v in re.findall(r"Type (\d+): Value \(hex bytes\): ([0-9a-f ]+)", part)[:7]}
        found.append((one(r"SrcAddr: (\S+)"), one(r"DstAddr: (\S+)"), int(one(r"SrcPort: (\d+)") or -1),
                      int(one(r"DstPort: (\d+)") or -1), int(one(r"IP ToS: (0x[0-9a-f]+)") or "-1", 16),
                      *(private.get(n) for n in range(1, 8))))
    expected = [(p.source, p.destination, p.sport, p.dport, p.tos, p.opcode, p.pkey, p.qp, p.psn, p.o1, p.o4,
                 p.o8) for p in packets]
    verify(f"{name}: tshark, number of packets", len(expected), len(found))
    wrong = [(e, f) for e, f in zip(expected, found) if e != f]
    verify(f"{name}: tshark, values", [], wrong[:1])


def ipfix_dump(lab, name, path, packets):
    run = subprocess.run(["ipfixDump", "--rfc5610", "--in", path], capture_output=True, text=True, timeout=60)
    records = []
    for part in run.stdout.split("--- data record")[1:]:
        records.append(dict(re.findall(r"\(\S+?\)(?: \(S\))? *(\w+) : (.*)", part)))
    verify(f"{name}: ipfixDump knows every element", 0, run.stdout.count("_alienInformationElement"))
    numbers = ("rocev2BthOpcode", "rocev2BthPartitionKey", "rocev2BthDestinationQp",
               "rocev2BthPacketSequenceNumber", "rocev2BthOctetAtOffset1", "rocev2BthOctetAtOffset4",
               "rocev2BthOctetAtOffset8")

    def address(r, end):
        # Leading zeros, as ipfixDump writes them, are not the usual form.
        return str(ipaddress.ip_address(re.sub(r"\b0+(?=[0-9a-f])", "", r.get(f"{end}IPv4Address")
                                               or r.get(f"{end}IPv6Address"))))

    of_packets = [r for r in records if "observationTimeNanoseconds" in r]
    found = [(address(r, "source"), int(r["ipClassOfService"]),
              *(int(r[n]) for n in numbers)) for r in of_packets]
    expected = [(p.source, p.tos, p.opcode, p.pkey, p.qp, p.psn, p.o1, p.o4, p.o8) for p in packets]
    verify(f"{name}: ipfixDump, packets", expected, found)
    sums = collections.Counter()
    for r in records:
        if "packetDeltaCount" in r:
            key = (address(r, "source"), address(r, "destination"),
                   int(r["sourceTransportPort"]), int(r["rocev2BthPartitionKey"]), int(r["rocev2BthDestinationQp"]))
            sums[key] += int(r["packetDeltaCount"])
            sums[key, "octets"] += int(r["octetDeltaCount"])
    found = {key: (count, sums[key, "octets"]) for key, count in sums.items() if key[-1] != "octets"}
    verify(f"{name}: ipfixDump, flows", flows(packets), found)
    counters = ("rdmaSequenceFlags", "skippedPsnTotalCount", "filledPsnTotalCount", "expiredPsnTotalCount",
                "abandonedPsnTotalCount", "repeatedPsnTotalCount", "requestPacketTotalCount",
                "unclassifiedLatePacketTotalCount")
    found = sorted(((address(r, "source"), address(r, "destination"), int(r["rocev2BthDestinationQp"]),
                     int(r["rocev2BthPartitionKey"])), *(int(r[n]) for n in counters))
                   for r in records if int(r.get("rdmaSequenceFlags", 0)) & 1)
    verify(f"{name}: ipfixDump, epochs", epochs(packets), found)


def nfcapd(lab, name, capture, packets):
    number = port(socket.SOCK_DGRAM)
    directory = os.path.dirname(lab.path(name, "nfcapd", "x"))
    for old in os.listdir(directory):
        os.remove(os.path.join(directory, old))
    process = lab.start("nfcapd", "-b", "127.0.0.1", "-p", str(number), "-l", directory, "-t", "3600",
                        ready=bound_udp(number), log=f"{name}/nfcapd.log")
    status, _ = lab.export(f"udp:127.0.0.1:{number}", capture, "--records", "f")
    verify(f"{name}: export to nfcapd", 0, status)
    time.sleep(0.3)
    lab.stop(process)
    run = subprocess.run(["nfdump", "-q", "-R", directory, "-o", "fmt:%sa,%da,%sp,%pkt,%byt", "-6", "-N"],
                         capture_output=True, text=True)
    found = collections.Counter()
    for line in run.stdout.splitlines():
        parts = [part.strip() for part in line.split(",")]
        if len(parts) == 5 and parts[3].isdigit():
            found[tuple(parts[:3])] += int(parts[3])
            found[tuple(parts[:3]), "octets"] += int(parts[4])
    expected = collections.Counter()
    for (source, destination, sport, _, _), (count, octets) in flows(packets).items():
        expected[source, destination, str(sport)] += count
        expected[(source, destination, str(sport)), "octets"] += octets
    verify(f"{name}: nfcapd, flows", dict(expected), dict(found))
    with open(lab.path(name, "nfcapd.log"), encoding="utf-8") as log:
        verify(f"{name}: nfcapd, sequence errors", 0, sum(int(n) for n in re.findall(r"Sequence Errors: (\d+)", log.read())))


def datagrams(lab, name, capture, packets):
    """UDP, taken here message by message, for the strict check."""
    checker = check.Checker(datagrams=True, most=1500 - 28, tos={p.tos for p in packets})
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sink:
        sink.bind(("127.0.0.1", 0))
        sink.settimeout(0.5)
        to = f"udp:127.0.0.1:{sink.getsockname()[1]}"
        export = subprocess.Popen([lab.replay, "--to", to, "--records", "pf", capture], stdout=subprocess.PIPE, text=True)
        torn = 0
        while True:
            running = export.poll() is None
            try:
                message = sink.recv(1 << 16)
            except socket.timeout:
                if running:
                    continue
                break
            if len(message) < 16 or struct.unpack_from(">H", message, 2)[0] != len(message):
                torn += 1
            else:
                checker.message(message)
        export.communicate()
    checker.end()
    verify(f"{name}: export over UDP", 0, export.returncode)
    verify(f"{name}: a message in each datagram", (0, True), (torn, bool(checker.domains)))
    verify(f"{name}: strict check of datagrams", [], checker.findings[:3])


PRIMITIVES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../docs/ipfix/pmacct-primitives.lst")


def nfacctd(lab, name, capture, packets):
    """UDP: the one in Debian reads IPFIX over TCP as well, but ends a session without saying so."""
    number = port(socket.SOCK_DGRAM)
    output, config = (lab.path(name, n) for n in ("nfacctd.json", "nfacctd.conf"))
    if os.path.exists(output):
        os.remove(output)
    with open(config, "w", encoding="ascii") as file:
        file.write(f"daemonize: false\nnfacctd_ip: 127.0.0.1\nnfacctd_port: {number}\nplugins: print\n"
                   "aggregate: src_host, dst_host, src_port, rocev2_bth_partition_key, rocev2_bth_destination_qp\n"
                   f"aggregate_primitives: {PRIMITIVES}\nprint_output: json\nprint_output_file: {output}\n"
                   "print_refresh_time: 1\nprint_history: 1h\nprint_output_file_append: true\n"
                   "nfacctd_pro_rating: false\n")
    process = lab.start("nfacctd", "-f", config, ready=bound_udp(number), log=f"{name}/nfacctd.log")
    time.sleep(0.5)
    # Four octets: the primitive of Debian's version does not take three.
    status, _ = lab.export(f"udp:127.0.0.1:{number}", capture, "--records", "f", "--qp-octets", "4")
    verify(f"{name}: export to nfacctd", 0, status)
    expected = {(s, d, p, str(k), str(q)): v for (s, d, p, k, q), v in flows(packets).items()}
    found = {}
    deadline = time.time() + 8
    while found != expected and time.time() < deadline:
        time.sleep(0.3)
        sums = collections.Counter()
        if os.path.exists(output):
            with open(output, encoding="utf-8") as file:
                for line in file:
                    try:
                        r = json.loads(line)
                    except ValueError:
                        continue
                    key = (r["ip_src"], r["ip_dst"], r["port_src"],
                           str(r["rocev2_bth_partition_key"]), str(r["rocev2_bth_destination_qp"]))
                    sums[key] += r["packets"]
                    sums[key, "octets"] += r["bytes"]
        found = {key: (n, sums[key, "octets"]) for key, n in sums.items() if key[-1] != "octets"}
    lab.stop(process, signal.SIGINT)
    verify(f"{name}: nfacctd, flows", expected, found)


def certificates(lab):
    """An authority, a collector, an exporter, and an exporter of another authority."""
    def openssl(*words):
        subprocess.run(["openssl", *words], check=True, capture_output=True)

    def path(name):
        return lab.path("tls", name)

    for authority in ("ca", "other"):
        openssl("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                "-subj", f"/CN={authority}", "-keyout", path(f"{authority}.key"), "-out", path(f"{authority}.crt"))
    for name, authority in (("collector", "ca"), ("exporter", "ca"), ("stranger", "other"), ("wrong", "ca")):
        openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", f"/CN={name}",
                "-keyout", path(f"{name}.key"), "-out", path(f"{name}.csr"))
        with open(path(f"{name}.ext"), "w", encoding="ascii") as file:
            file.write(f"subjectAltName=DNS:{name}.lab.test\n")
        openssl("x509", "-req", "-in", path(f"{name}.csr"), "-CA", path(f"{authority}.crt"), "-CAkey",
                path(f"{authority}.key"), "-CAcreateserial", "-days", "2", "-extfile", path(f"{name}.ext"),
                "-out", path(f"{name}.crt"))
    return path


def stunnel(lab, capture, packets):
    """stunnel demands a certificate of our authority and name; what it lets through has to be complete."""
    path = certificates(lab)
    with socket.create_server(("127.0.0.1", 0)) as sink:
        sink.settimeout(20)
        secure = port(socket.SOCK_STREAM)
        with open(path("stunnel.conf"), "w", encoding="ascii") as file:
            file.write(f"foreground = yes\npid =\n[ipfix]\naccept = 127.0.0.1:{secure}\n"
                       f"connect = 127.0.0.1:{sink.getsockname()[1]}\ncert = {path('collector.crt')}\n"
                       f"key = {path('collector.key')}\nCAfile = {path('ca.crt')}\nverifyChain = yes\n"
                       "requireCert = yes\ncheckHost = exporter.lab.test\nsslVersionMin = TLSv1.3\n")
        process = lab.start("stunnel", path("stunnel.conf"), ready=listening(secure), log="tls/stunnel.log")
        to = f"tls:127.0.0.1:{secure}"

        def options(name):
            return ["--certificate", path(f"{name}.crt"), "--key", path(f"{name}.key"), "--authority", path("ca.crt")]

        with open(path("stream.ipfix"), "wb") as out:
            export = subprocess.Popen([lab.replay, "--to", to, *options("exporter"), capture],
                                      stdout=subprocess.PIPE, text=True)
            connection, _ = sink.accept()
            with connection:
                while data := connection.recv(1 << 16):
                    out.write(data)
            text, _ = export.communicate(timeout=60)
        verify("tls: stunnel lets our certificate in", 0, export.returncode)
        report = json.loads(text.splitlines()[-1])
        strict("tls", path("stream.ipfix"))
        ipfix_dump(lab, "tls", path("stream.ipfix"), packets)
        verify("tls: everything counts as sent", report["packets"] + report["flows"] + report["reports"],
               report["sent_records"])
        for name in ("stranger", "wrong"):
            status, report = lab.export(to, capture, *options(name))
            verify(f"tls: stunnel refuses {name}", (3, 0, 1),
                   (status, report.get("sent_records"), report.get("not_authorised")))
            said = any("not authorised" in event for event in report.get("events", []))
            verify(f"tls: {name} is told to be not authorised", True, said)
        lab.stop(process)


def main():
    if len(sys.argv) < 4:
        print(__doc__)
        return 2
    lab = Lab(sys.argv[1], os.path.abspath(sys.argv[2]))
    try:
        for capture in sys.argv[3:]:
            name = os.path.basename(capture).split(".")[0]
            packets = [p for p in map(packet, frames(capture)) if p]
            path = lab.path(name, "stream.ipfix")
            status, _ = lab.export(f"file:{path}", capture)
            verify(f"{name}: export to a file", 0, status)
            strict(name, path, tos={p.tos for p in packets})
            with open(path, "rb") as file:
                stream = file.read()
            tshark(lab, name, stream, packets)
            ipfix_dump(lab, name, path, packets)
            sampled = lab.path(name, "sampled.ipfix")
            verify(f"{name}: sampled export", 0, lab.export(f"file:{sampled}", capture, "--one-in", "10")[0])
            strict(f"{name}: sampled", sampled)
            datagrams(lab, name, capture, packets)
            nfcapd(lab, name, capture, packets)
            nfacctd(lab, name, capture, packets)
        stunnel(lab, sys.argv[3], [p for p in map(packet, frames(sys.argv[3])) if p])
    finally:
        lab.close()
    print(f"interop: {done} checks passed, {len(failures)} failed")
    return 1 if failures or not done else 0


if __name__ == "__main__":
    sys.exit(main())

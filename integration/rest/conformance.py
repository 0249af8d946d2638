#!/usr/bin/env python3
"""The REST API of running gateway processes against its own description, docs/openapi.json.

    conformance.py GATEWAY SCHEMATHESIS RESULTS [--seconds N] [--seed N]

Starts a data plane between two null devices, an exporting process and a control process that listens over
TLS, and lets schemathesis make requests from the description: legal ones, illegal ones, and chains of
them. No answer may be an error of the server, have a status, media type or shape that is not described, or
take what the description forbids. Everything is over the network with a client certificate of an admin.
Works in the directory RESULTS/rest; exit status 0 if nothing was found, 1 if something was. Only Python's
standard library is used here.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
DESCRIPTION = HERE.parent.parent / "docs" / "openapi.json"
CONFIG = HERE / "schemathesis.toml"
CLIENT = "ops.example"


def openssl(*arguments):
    subprocess.run(["openssl", *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def certificates(folder):
    """An authority, and certificates of it for the gateway and for a client."""
    curve = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
    openssl("req", "-x509", *curve, "-subj", "/CN=ca", "-keyout", f"{folder}/ca.key", "-out", f"{folder}/ca.pem")
    for name, names in (("gateway", "DNS:localhost,IP:127.0.0.1"), ("client", f"DNS:{CLIENT}")):
        openssl("req", "-x509", *curve, "-subj", f"/CN={name}", "-addext", f"subjectAltName={names}",
                "-addext", "basicConstraints=critical,CA:FALSE", "-CA", f"{folder}/ca.pem",
                "-CAkey", f"{folder}/ca.key", "-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.pem")


def document(folder, port):
    return {
        "version": 1,
        "segments": {"a": {
            "mode": "active", "crem_port": 4801, "path_mtu": 4500,
            "lan": {"vdev": "net_null0"}, "wan": {"vdev": "net_null1"},
            "served": {"10.0.1.0/24": {}}, "peers": {"10.0.2.0/24": {"address": "192.0.2.2"}},
            "inband": {"address": "192.0.2.1/24"},
        }},
        "ipfix": {
            "domain": 7, "pen": 32473, "first_element": 1,
            "scopes": {"all": {"source": "0.0.0.0/0", "destination": "0.0.0.0/0"}},
            "points": {"in": {"segment": "a", "place": "lan_ingress", "base": 1, "flows": True}},
            "collectors": {"c": {"transport": "tcp", "host": "127.0.0.1", "port": 9}},
        },
        "management": {
            "listeners": {f"127.0.0.1:{port}": {}},
            "tls": {"certificate": f"{folder}/gateway.pem", "key": f"{folder}/gateway.key",
                    "client_authorities": f"{folder}/ca.pem"},
            "clients": {CLIENT: {"access": "admin"}},
        },
    }


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Processes:
    """The processes of a gateway. Ended when the block is left."""

    def __init__(self, gateway, folder, short):
        self.gateway, self.folder, self.short, self.children = gateway, folder, short, {}

    def __enter__(self):
        return self

    def start(self, name, *more):
        log = open(self.folder / f"{name}.log", "w", encoding="utf-8")
        child = subprocess.Popen([self.gateway, name, "--config", self.folder / "bootstrap.toml", *more],
                                 stdout=subprocess.PIPE, stderr=log, text=True, cwd=self.short,
                                 env={**os.environ, "CREM_MEMORY__KIND": "ordinary"})
        self.children[name] = child
        if child.stdout.readline() != "ready\n":
            sys.exit(f"rest: {name} did not start, see {log.name}")

    def ended(self):
        return [name for name, child in self.children.items() if child.poll() is not None]

    def __exit__(self, *_):
        for child in reversed(self.children.values()):
            child.terminate()
        for child in self.children.values():
            try:
                child.wait(10)
            except subprocess.TimeoutExpired:
                child.kill()


def bootstrap(short):
    return f"""
[control]
state = "{short}/state"
socket = "{short}/control.sock"
[status]
socket = "{short}/dataplane.sock"
[export]
socket = "{short}/records.sock"
status_socket = "{short}/export.sock"
[memory]
pool_frames = 8191
[worker]
idle = "adaptive"
[logging]
filter = "warn"
"""


def listening(port):
    deadline = time.time() + 20
    while time.time() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    sys.exit("rest: nobody listens")


def asked(arguments, folder, port):
    """Runs schemathesis; its words go to a log, its findings to JSON lines."""
    command = [
        arguments.schemathesis, "--config-file", CONFIG, "run", DESCRIPTION,
        "--url", f"https://localhost:{port}", "--tls-verify", folder / "ca.pem",
        "--request-cert", folder / "client.pem", "--request-cert-key", folder / "client.key",
        *(["--generation-deterministic"] if arguments.seed is None else ["--seed", arguments.seed]),
        "--continue-on-failure", "--no-color",
        # Guessed tokens would close the door to this address for a minute.
        "--generation-with-security-parameters", "false",
        "--report", "ndjson", "--report-ndjson-path", folder / "events.ndjson",
    ]
    if arguments.seconds:
        command += ["--max-time", str(arguments.seconds)]
    environment = {**os.environ, "SCHEMATHESIS_HOOKS": "formats", "PYTHONPATH": str(HERE),
                   "PYTHONDONTWRITEBYTECODE": "1"}
    begun = time.time()
    with open(folder / "schemathesis.log", "w", encoding="utf-8") as log:
        status = subprocess.run([str(word) for word in command], stdout=log, stderr=subprocess.STDOUT,
                                cwd=folder, check=False, env=environment).returncode
    return status, time.time() - begun


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("gateway", type=pathlib.Path)
    parser.add_argument("schemathesis", type=pathlib.Path)
    parser.add_argument("results", type=pathlib.Path)
    parser.add_argument("--seconds", type=int)
    parser.add_argument("--seed", type=int, help="else always the same requests")
    arguments = parser.parse_args()
    if not arguments.schemathesis.name:
        # Whoever was to install it has said so.
        return 0
    arguments.gateway = arguments.gateway.resolve()
    arguments.schemathesis = arguments.schemathesis.absolute()
    folder = arguments.results.resolve() / "rest"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    certificates(folder)
    port = free_port()
    # The path of a socket has little room.
    with tempfile.TemporaryDirectory(prefix="crem-rest-") as short:
        (folder / "bootstrap.toml").write_text(bootstrap(short))
        (folder / "gateway.json").write_text(json.dumps(document(folder, port)))
        with Processes(arguments.gateway, folder, short) as processes:
            processes.start("control", "--import", folder / "gateway.json")
            processes.start("export")
            processes.start("dataplane")
            listening(port)
            # Until the control process has heard of the others.
            time.sleep(2)
            status, seconds = asked(arguments, folder, port)
            ended = processes.ended()
    said = (folder / "schemathesis.log").read_text()
    number = re.search(r"(\d+) generated", said)
    panics = sum("panicked" in (folder / f"{name}.log").read_text() for name in ("control", "dataplane", "export"))
    result = {
        "schemathesis_status": status, "seconds": round(seconds, 1), "seed": arguments.seed,
        "cases": int(number.group(1)) if number else 0,
        "failures": re.findall(r"^\s*❌ (.+)$", said, re.M) + re.findall(r"^- (.+?)$", said, re.M),
        "ended": ended, "panics": panics,
    }
    good = status == 0 and not ended and not panics and result["cases"] > 100
    (arguments.results / "rest.json").write_text(json.dumps({"ok": good, **result}, indent=1) + "\n")
    if not good:
        print(said[-8000:])
    print(f"rest: {'ok' if good else 'short'} cases={result['cases']} seconds={seconds:.0f} "
          f"status={status} ended={len(ended)} panics={panics}")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())

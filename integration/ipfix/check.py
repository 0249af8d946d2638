#!/usr/bin/env python3
"""A strict check of IPFIX octets, written apart from the gateway's encoder and decoder.

    check.py [--datagrams] [--max OCTETS] [--refresh SECONDS] [--pen N] [--first N] FILE...

Each file holds the messages of one Transport Session, one behind the other. What an exporter must not
do is printed, one finding a line, with the name of its rule; the exit status is 1 if there is any.
Only Python's standard library is used. Rules and their sources: RFC 7011, RFC 5610, RFC 5476, and the
two drafts on RoCEv2 export.
"""
import argparse
import struct
import sys

NTP_OFFSET = 2208988800
VARIABLE = 65535

# Types: u unsigned, s signed, f float, b boolean, t text, o octets, 4 and 6 addresses, S M N times.
IANA = {
    1: ("octetDeltaCount", "u", 8), 2: ("packetDeltaCount", "u", 8),
    4: ("protocolIdentifier", "u", 1), 5: ("ipClassOfService", "u", 1),
    7: ("sourceTransportPort", "u", 2), 8: ("sourceIPv4Address", "4", 4),
    11: ("destinationTransportPort", "u", 2), 12: ("destinationIPv4Address", "4", 4),
    23: ("postOctetDeltaCount", "u", 8), 24: ("postPacketDeltaCount", "u", 8),
    27: ("sourceIPv6Address", "6", 16), 28: ("destinationIPv6Address", "6", 16),
    36: ("flowActiveTimeout", "u", 2), 37: ("flowIdleTimeout", "u", 2),
    40: ("exportedOctetTotalCount", "u", 8), 41: ("exportedMessageTotalCount", "u", 8),
    42: ("exportedFlowRecordTotalCount", "u", 8), 61: ("flowDirection", "u", 1),
    138: ("observationPointId", "u", 8), 143: ("meteringProcessId", "u", 4),
    144: ("exportingProcessId", "u", 4), 145: ("templateId", "u", 2),
    149: ("observationDomainId", "u", 4), 152: ("flowStartMilliseconds", "M", 8),
    153: ("flowEndMilliseconds", "M", 8), 164: ("ignoredPacketTotalCount", "u", 8),
    165: ("ignoredOctetTotalCount", "u", 8), 166: ("notSentFlowTotalCount", "u", 8),
    167: ("notSentPacketTotalCount", "u", 8), 168: ("notSentOctetTotalCount", "u", 8),
    173: ("flowKeyIndicator", "u", 8), 210: ("paddingOctets", "o", None),
    243: ("dot1qVlanId", "u", 2), 301: ("selectionSequenceId", "u", 8),
    302: ("selectorId", "u", 8), 303: ("informationElementId", "u", 2),
    304: ("selectorAlgorithm", "u", 2), 305: ("samplingPacketInterval", "u", 4),
    306: ("samplingPacketSpace", "u", 4), 311: ("samplingProbability", "f", 8),
    318: ("selectorIdTotalPktsObserved", "u", 8), 319: ("selectorIdTotalPktsSelected", "u", 8),
    320: ("absoluteError", "f", 8), 323: ("observationTimeMilliseconds", "M", 8),
    325: ("observationTimeNanoseconds", "N", 8), 327: ("hashIPPayloadOffset", "u", 8),
    328: ("hashIPPayloadSize", "u", 8), 329: ("hashOutputRangeMin", "u", 8),
    330: ("hashOutputRangeMax", "u", 8), 331: ("hashSelectedRangeMin", "u", 8),
    332: ("hashSelectedRangeMax", "u", 8), 333: ("hashDigestOutput", "b", 1),
    334: ("hashInitialiserValue", "u", 8), 339: ("informationElementDataType", "u", 1),
    340: ("informationElementDescription", "t", None), 341: ("informationElementName", "t", None),
    342: ("informationElementRangeBegin", "u", 8), 343: ("informationElementRangeEnd", "u", 8),
    344: ("informationElementSemantics", "u", 1), 345: ("informationElementUnits", "u", 2),
    346: ("privateEnterpriseNumber", "u", 4), 351: ("layer2SegmentId", "u", 8),
}

# Offset of the number, name, octets, and the type number that RFC 5610 has for the definition.
OURS = [
    (0, "rocev2BthOpcode", 1, 1), (1, "rocev2BthPartitionKey", 2, 2),
    (2, "rocev2BthDestinationQp", 4, 3), (3, "rocev2BthPacketSequenceNumber", 4, 3),
    (4, "rocev2BthOctetAtOffset1", 1, 1), (5, "rocev2BthOctetAtOffset4", 1, 1),
    (6, "rocev2BthOctetAtOffset8", 1, 1), (100, "rdmaSequenceEpochId", 8, 4),
    (101, "rdmaSequenceReportId", 8, 4), (102, "rdmaSequenceWindow", 4, 3),
    (103, "rdmaSequenceFlags", 2, 2), (104, "skippedPsnTotalCount", 8, 4),
    (105, "filledPsnTotalCount", 8, 4), (106, "expiredPsnTotalCount", 8, 4),
    (107, "abandonedPsnTotalCount", 8, 4), (108, "pendingPsnCount", 4, 3),
    (109, "repeatedPsnTotalCount", 8, 4), (110, "requestPacketTotalCount", 8, 4),
    (111, "unclassifiedLatePacketTotalCount", 8, 4),
]
ADDRESSES = [{"sourceIPv4Address", "destinationIPv4Address"},
             {"sourceIPv6Address", "destinationIPv6Address"}]
CONTEXT = {"sourceTransportPort", "destinationTransportPort", "protocolIdentifier", "flowDirection"}
PACKET_ONLY = {"rocev2BthPacketSequenceNumber", "rocev2BthOctetAtOffset1",
               "rocev2BthOctetAtOffset4", "rocev2BthOctetAtOffset8"}
SEQUENCE = {name for _, name, _, _ in OURS[7:]}
SEQUENCE_NEEDS = SEQUENCE | {"observationPointId", "rocev2BthDestinationQp", "rocev2BthPartitionKey",
                             "flowStartMilliseconds", "flowEndMilliseconds"}
NAMESPACE = {"dot1qVlanId", "layer2SegmentId"}
KEYS = {
    "aggregate": CONTEXT | {"rocev2BthPartitionKey", "rocev2BthDestinationQp", "rocev2BthOpcode",
                            "selectionSequenceId"} | ADDRESSES[0] | ADDRESSES[1],
    "sequence": {"observationPointId", "rocev2BthDestinationQp", "rocev2BthPartitionKey",
                 "rdmaSequenceEpochId"} | NAMESPACE | ADDRESSES[0] | ADDRESSES[1],
}


def is_rounded_up(fraction):
    """Whether a fraction of 2^-32 s is that of whole nanoseconds, rounded up."""
    nanoseconds = fraction * 10**9 >> 32
    return fraction == -(-(nanoseconds << 32) // 10**9)


class Template:
    def __init__(self, scope, fields):
        self.scope = scope
        self.fields = fields  # (pen, number, name, kind, octets)
        self.names = [field[2] for field in fields]
        self.least = sum(1 if field[4] == VARIABLE else field[4] for field in fields)
        self.profile = None


class Domain:
    def __init__(self):
        self.templates = {}
        self.sequence = None
        self.export_time = 0
        self.typed = {}
        self.keyed = {}
        self.reports = {}
        self.used_selections = set()
        self.timeouts = False
        self.used_profiles = set()
        self.epochs = {}
        self.last_new_epoch = 0
        self.point_times = {}
        self.messages = 0
        self.octets = 0
        self.defined_at = {}
        self.options_at = {}


class Checker:
    """The findings of one Transport Session."""

    def __init__(self, datagrams=False, most=65535, refresh=None, pen=32473, first=1, tos=None):
        """`tos`: every octet of TOS or traffic class among the observed packets, if that is known."""
        self.datagrams = datagrams
        self.most = most
        self.refresh = refresh
        self.pen = pen
        self.tos = tos
        self.tos_seen = set()
        self.ours = {first + offset: (name, octets, kind) for offset, name, octets, kind in OURS}
        self.domains = {}
        self.findings = []

    def found(self, rule, text):
        self.findings.append((rule, text))

    def stream(self, octets):
        """All messages of a session; framing is by their lengths."""
        at = 0
        while at < len(octets):
            if len(octets) - at < 16:
                self.found("framing", f"{len(octets) - at} octets behind the last message")
                return
            version, length = struct.unpack_from(">HH", octets, at)
            if version != 10 or length < 16 or at + length > len(octets):
                self.found("framing", f"no message at octet {at}: version {version}, length {length}")
                return
            self.message(octets[at:at + length])
            at += length
        self.end()

    def message(self, octets):
        _, length, export_time, sequence, number = struct.unpack_from(">HHIII", octets)
        domain = self.domains.setdefault(number, Domain())
        if length > self.most:
            self.found("size", f"message of {length} octets, at most {self.most} fit")
        if domain.sequence is None:
            domain.sequence = 0
        if sequence != domain.sequence:
            self.found("sequence", f"sequence number {sequence}, expected {domain.sequence}")
            domain.sequence = sequence
        if export_time < domain.export_time:
            self.found("export-time", f"{export_time} behind {domain.export_time}")
        domain.export_time = max(domain.export_time, export_time)
        self.number, self.export_time = number, export_time
        records = 0
        at = 16
        while at < length:
            if length - at < 4:
                self.found("set-length", f"{length - at} octets behind the last set")
                break
            set_id, set_length = struct.unpack_from(">HH", octets, at)
            if set_length < 4 or at + set_length > length:
                self.found("set-length", f"set {set_id} of {set_length} octets")
                break
            body = octets[at + 4:at + set_length]
            at += set_length
            if not body:
                self.found("empty-set", f"set {set_id}")
            elif set_id in (2, 3):
                self.definitions(domain, set_id, body)
            elif set_id < 256:
                self.found("set-id", f"set {set_id}")
            else:
                records += self.data(domain, set_id, body)
        domain.sequence = (domain.sequence + records) % 2**32
        domain.messages += 1
        domain.octets += length

    def definitions(self, domain, set_id, body):
        at = count_of_set = 0
        while len(body) - at >= 4:
            number, count = struct.unpack_from(">HH", body, at)
            if count == 0:
                if number == 0:
                    break
                at += 4
                if self.datagrams:
                    self.found("withdrawal", f"template {number} withdrawn over UDP")
                elif number == set_id:
                    kept = {k: t for k, t in domain.templates.items() if (t.scope > 0) != (set_id == 3)}
                    domain.templates = kept
                else:
                    domain.templates.pop(number, None)
                continue
            if number < 256:
                self.found("template-id", f"template {number}")
                return
            at += 4
            scope = 0
            if set_id == 3:
                if len(body) - at < 2:
                    self.found("template", f"template {number} is cut")
                    return
                scope, = struct.unpack_from(">H", body, at)
                at += 2
                if scope == 0 or scope > count:
                    self.found("scope", f"template {number}: {scope} scope fields of {count}")
                    return
            fields = []
            for _ in range(count):
                if len(body) - at < 4:
                    self.found("template", f"template {number} is cut")
                    return
                element, octets = struct.unpack_from(">HH", body, at)
                at += 4
                pen = 0
                if element & 0x8000:
                    if len(body) - at < 4:
                        self.found("template", f"template {number} is cut")
                        return
                    pen, = struct.unpack_from(">I", body, at)
                    at += 4
                fields.append(self.field(number, pen, element & 0x7fff, octets))
            count_of_set += 1
            self.define(domain, number, Template(scope, fields))
        if set_id == 3 and count_of_set > 1:
            self.found("options-sets", "several Options Template Records in one set")
        self.padding(body[at:], 4)

    def field(self, template, pen, element, octets):
        if pen == 0:
            if element not in IANA:
                self.found("element", f"template {template}: element {element} is none that we send")
                return pen, element, f"0/{element}", "o", octets
            name, kind, size = IANA[element]
        elif pen == self.pen and element in self.ours:
            name, size, _ = self.ours[element]
            kind = "u"
        else:
            self.found("element", f"template {template}: element {pen}/{element} is not in the mapping")
            return pen, element, f"{pen}/{element}", "o", octets
        if kind == "u" and not 0 < octets <= size:
            self.found("reduced-size", f"template {template}: {name} in {octets} octets")
        elif kind == "f" and octets not in (4, 8):
            self.found("reduced-size", f"template {template}: {name} in {octets} octets")
        elif kind in "46SMNb" and octets != size:
            self.found("reduced-size", f"template {template}: {name} in {octets} octets")
        return pen, element, name, kind, octets

    def define(self, domain, number, template):
        known = domain.templates.get(number)
        if known and not self.datagrams and (known.scope, known.fields) != (template.scope, template.fields):
            self.found("redefined", f"template {number} without a withdrawal")
        if template.least == 0:
            self.found("template", f"template {number} has no octets")
            return
        last = domain.defined_at.get(number)
        if known and self.datagrams and self.refresh and (known.scope, known.fields) != (template.scope, template.fields) \
                and self.export_time - last < 3 * self.refresh:
            self.found("redefined", f"template {number} {self.export_time - last} s after its last definition")
        domain.templates[number] = template
        if self.refresh and last is not None and self.export_time - last > self.refresh * 1.5 + 2:
            self.found("refresh", f"template {number} after {self.export_time - last} s")
        domain.defined_at[number] = self.export_time
        if not template.scope:
            self.profile(domain, number, template)

    def profile(self, domain, number, template):
        names = set(template.names)
        ours = {f[2] for f in template.fields if f[0]}
        if not ours:
            return
        missing = [f[2] for f in template.fields if f[0] and f[1] not in domain.typed]
        if missing:
            self.found("types", f"template {number}: {missing[0]} was not announced before")
        wrong = []
        if len(template.names) != len(names):
            wrong.append("an element twice")
        families = [bool(family & names) for family in ADDRESSES]
        if families == [True, True]:
            wrong.append("two address families")
        if not any(family <= names for family in ADDRESSES):
            wrong.append("no pair of addresses")
        if ours & SEQUENCE:
            template.profile = "sequence"
            if self.datagrams:
                wrong.append("the sequence profile over UDP")
            extra = names - SEQUENCE_NEEDS - NAMESPACE - ADDRESSES[0] - ADDRESSES[1]
            wrong += [f"without {n}" for n in SEQUENCE_NEEDS - names] + [f"with {n}" for n in extra]
        elif "observationTimeNanoseconds" in names:
            template.profile = "packet"
            needs = CONTEXT | {"observationPointId", "ipClassOfService"}
            wrong += [f"without {n}" for n in needs - names]
            wrong += [f"with {n}" for n in names if n.endswith("DeltaCount") or n.startswith("flowStart")
                      or n.startswith("flowEnd")]
        else:
            template.profile = "aggregate"
            needs = CONTEXT | {"rocev2BthPartitionKey", "rocev2BthDestinationQp",
                               "flowStartMilliseconds", "flowEndMilliseconds"}
            wrong += [f"without {n}" for n in needs - names]
            wrong += [f"with {n}" for n in names & PACKET_ONLY]
            counters = [{"packetDeltaCount", "octetDeltaCount"},
                        {"postPacketDeltaCount", "postOctetDeltaCount"}]
            if [c <= names for c in counters].count(True) != 1:
                wrong.append("without counters of one kind")
        for text in wrong:
            self.found("profile", f"template {number}: {text}")

    def padding(self, rest, record):
        if len(rest) >= record:
            self.found("padding", f"{len(rest)} octets, a record has {record}")
        if any(rest):
            self.found("padding", "octets that are not zero")

    def data(self, domain, number, body):
        template = domain.templates.get(number)
        if template is None:
            self.found("no-template", f"data of template {number}")
            return 0
        at = records = 0
        while len(body) - at >= template.least:
            values, at = self.record(template, body, at)
            if values is None:
                self.found("record", f"record of template {number} is cut")
                return records
            records += 1
            self.values(domain, number, template, values)
        if records == 0:
            self.found("empty-set", f"set {number} without a record")
        self.padding(body[at:], template.least)
        return records

    def record(self, template, body, at):
        values = []
        for pen, element, name, kind, octets in template.fields:
            if octets == VARIABLE:
                if at >= len(body):
                    return None, at
                octets = body[at]
                at += 1
                if octets == 255:
                    if len(body) - at < 2:
                        return None, at
                    octets, = struct.unpack_from(">H", body, at)
                    at += 2
            raw = body[at:at + octets]
            if len(raw) < octets:
                return None, at
            at += octets
            values.append((name, kind, raw, int.from_bytes(raw, "big")))
        return values, at

    def values(self, domain, number, template, values):
        one = {}
        for name, kind, raw, value in values:
            if kind == "t":
                try:
                    raw.decode()
                except UnicodeDecodeError:
                    self.found("text", f"{name} is not UTF-8")
            if kind == "b" and value not in (1, 2):
                self.found("boolean", f"{name} is {value}")
            if kind == "N" and abs((value >> 32) - NTP_OFFSET - self.export_time) > 86400:
                self.found("time", f"{name} is not within a day of the export time")
            if kind == "N" and not is_rounded_up(value & 0xffffffff):
                self.found("time", f"{name}: the fraction is that of no nanosecond, rounded up")
            if kind == "M" and name.startswith("observation") \
                    and abs(value // 1000 - self.export_time) > 86400:
                self.found("time", f"{name} is not within a day of the export time")
            if name in ("rocev2BthDestinationQp", "rocev2BthPacketSequenceNumber") and value >> 24:
                self.found("24-bits", f"{name} is {value}")
            one[name] = value
        if template.scope:
            self.options(domain, number, template, values, one)
            return
        domain.used_profiles.add((number, template.profile))
        selection = one.get("selectionSequenceId")
        if selection is not None:
            domain.used_selections.add((selection, number))
        if template.profile == "packet":
            self.tos_seen.add(one["ipClassOfService"])
            key = (one["observationPointId"], selection)
            time = one["observationTimeNanoseconds"]
            if time < domain.point_times.get(key, 0):
                self.found("order", f"point {key[0]}: observation times go back")
            domain.point_times[key] = time
        elif template.profile == "aggregate":
            if one["flowStartMilliseconds"] > one["flowEndMilliseconds"]:
                self.found("time", "a flow ends before it starts")
            if abs(one["flowEndMilliseconds"] // 1000 - self.export_time) > 86400:
                self.found("time", "flowEndMilliseconds is not within a day of the export time")
        elif template.profile == "sequence":
            self.report(domain, one)

    def options(self, domain, number, template, values, one):
        domain.options_at[number] = self.export_time
        names = set(template.names)
        if {"privateEnterpriseNumber", "informationElementId"} <= names \
                and "informationElementDataType" in names:
            element = one["informationElementId"]
            if element & 0x8000:
                self.found("types", f"informationElementId {element} with the enterprise bit")
            known = self.ours.get(element)
            if one["privateEnterpriseNumber"] != self.pen or known is None:
                self.found("types", f"type of {one['privateEnterpriseNumber']}/{element}, not ours")
            elif one["informationElementDataType"] != known[2]:
                self.found("types", f"{known[0]} has type {one['informationElementDataType']}")
            if len(template.fields) < 9:
                self.found("types", "type information with less than nine fields")
            domain.typed[element] = True
        if "flowKeyIndicator" in names:
            self.flow_keys(domain, one)
        if "flowActiveTimeout" in names:
            domain.timeouts = True
            if 0 in (one["flowActiveTimeout"], one["flowIdleTimeout"]):
                self.found("timeouts", "a timeout of 0 seconds")
        if "exportedMessageTotalCount" in names:
            if one["exportedMessageTotalCount"] < domain.messages \
                    or one["exportedOctetTotalCount"] < domain.octets:
                self.found("totals", "fewer messages or octets than were sent")
            # Over the first session of a process they are exactly what was sent before this message.
            if one["exportedMessageTotalCount"] == domain.messages + 1:
                self.found("totals", "the message that tells the totals is counted in them")
        if "observationDomainId" in names and self.number == 0 \
                and "observationDomainId" not in template.names[:template.scope]:
            self.found("scope", "no observation domain in the scope")
        if template.names[0] == "selectionSequenceId":
            if "selectorIdTotalPktsObserved" in names:
                observed = [v for n, _, _, v in values if n == "selectorIdTotalPktsObserved"]
                selected = [v for n, _, _, v in values if n == "selectorIdTotalPktsSelected"]
                if len(observed) != 1 or any(s > o for s, o in zip(selected, observed + selected)):
                    self.found("selection", "statistics that cannot be")
                domain.reports.setdefault(one["selectionSequenceId"], set()).add("statistics")
            elif "selectorId" in names:
                reports = domain.reports.setdefault(one["selectionSequenceId"], set())
                reports.add("sequence")
                reports.update(f"selector {v}" for n, _, _, v in values if n == "selectorId")
        if "selectorAlgorithm" in names:
            domain.reports.setdefault("selectors", set()).add(one["selectorId"])
            if one.get("samplingPacketInterval") == 0:
                self.found("selection", "samplingPacketInterval is 0")
        if "absoluteError" in names:
            domain.reports.setdefault("accuracy", set()).add(one.get("templateId"))

    def flow_keys(self, domain, one):
        template = domain.templates.get(one["templateId"])
        bits = one["flowKeyIndicator"]
        if template is None:
            self.found("flow-keys", f"of template {one['templateId']}, which is not defined")
            return
        if bits >> len(template.fields):
            self.found("flow-keys", f"template {one['templateId']}: a bit beyond the fields")
        marked = {name for place, name in enumerate(template.names) if bits >> place & 1}
        expected = KEYS.get(template.profile, set()) & set(template.names)
        if marked != expected:
            self.found("flow-keys", f"template {one['templateId']}: {sorted(marked ^ expected)}")
        domain.keyed[one["templateId"]] = True

    def report(self, domain, one):
        epoch, report, flags = one["rdmaSequenceEpochId"], one["rdmaSequenceReportId"], one["rdmaSequenceFlags"]
        counts = {n: one[n] for n in one if n.endswith("TotalCount")}
        key = tuple(one.get(n) for n in sorted(KEYS["sequence"] - {"rdmaSequenceEpochId"}))
        final, reasons = flags & 1, flags & 0x1e
        pending = one["pendingPsnCount"]
        parts = counts["filledPsnTotalCount"] + counts["expiredPsnTotalCount"] \
            + counts["abandonedPsnTotalCount"] + pending
        if counts["skippedPsnTotalCount"] != parts:
            self.found("relations", f"epoch {epoch}: skipped is not the sum of its parts")
        if pending >= one["rdmaSequenceWindow"] or not 1 <= one["rdmaSequenceWindow"] <= 2**22:
            self.found("relations", f"epoch {epoch}: pending or window out of range")
        if counts["filledPsnTotalCount"] + counts["repeatedPsnTotalCount"] \
                + counts["unclassifiedLatePacketTotalCount"] >= counts["requestPacketTotalCount"]:
            self.found("relations", f"epoch {epoch}: more special requests than requests")
        if final and pending or not final and (counts["abandonedPsnTotalCount"] or reasons) or flags & 0xffc0:
            self.found("flags", f"epoch {epoch}: flags {flags:#x} with pending {pending}")
        if one["flowStartMilliseconds"] > one["flowEndMilliseconds"]:
            self.found("time", f"epoch {epoch} ends before it starts")
        known = domain.epochs.get(epoch)
        fixed = (key, one["rdmaSequenceWindow"], one["flowStartMilliseconds"], flags & 0x20)
        if known is None:
            if epoch <= domain.last_new_epoch:
                self.found("epochs", f"epoch {epoch} behind {domain.last_new_epoch}")
            domain.last_new_epoch = max(domain.last_new_epoch, epoch)
            if report != 1:
                self.found("epochs", f"epoch {epoch} starts with report {report}")
        else:
            before, counted, closed, was = known
            if closed:
                self.found("epochs", f"epoch {epoch} goes on behind its final report")
            if report != before + 1:
                self.found("epochs", f"epoch {epoch}: report {report} behind {before}")
            if was != fixed:
                self.found("epochs", f"epoch {epoch}: key, window, start or generation changed")
            if any(counts[n] < counted[n] for n in counts):
                self.found("epochs", f"epoch {epoch}: a total went back")
        domain.epochs[epoch] = (report, counts, bool(final), fixed)

    def end(self):
        if self.tos is not None and self.tos_seen ^ self.tos:
            self.found("tos", f"ipClassOfService is one of {self.tos_seen}, in the packets of {self.tos}")
        for number, domain in self.domains.items():
            for selection, template in domain.used_selections:
                reports = domain.reports.get(selection, set())
                selectors = domain.reports.get("selectors", set())
                described = {r for r in reports if r.startswith("selector ")}
                if not {"sequence", "statistics"} <= reports \
                        or not all(int(r.split()[1]) in selectors for r in described) \
                        or template not in domain.reports.get("accuracy", set()):
                    self.found("selection", f"sequence {selection}: one of the four reports is missing")
            profiles = dict(domain.used_profiles)
            for template, profile in profiles.items():
                if profile in KEYS and template not in domain.keyed:
                    self.found("flow-keys", f"template {template}: no record on its flow keys")
            if "aggregate" in profiles.values() and not domain.timeouts:
                self.found("timeouts", f"domain {number}: no timeouts for its flows")
            if self.refresh:
                for kind, times in ("template", domain.defined_at), ("options of template", domain.options_at):
                    for template, last in times.items():
                        if domain.export_time - last > self.refresh * 1.5 + 2:
                            self.found("refresh", f"{kind} {template} not repeated to the end")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--datagrams", action="store_true", help="the messages went over UDP")
    parser.add_argument("--max", type=int, default=65535, help="octets of a message at most")
    parser.add_argument("--refresh", type=float, help="seconds between repeated templates over UDP")
    parser.add_argument("--pen", type=int, default=32473)
    parser.add_argument("--first", type=int, default=1, help="number of the first element")
    parser.add_argument("files", nargs="+")
    arguments = parser.parse_args()
    failed = False
    for path in arguments.files:
        checker = Checker(arguments.datagrams, arguments.max, arguments.refresh, arguments.pen,
                          arguments.first)
        with open(path, "rb") as file:
            checker.stream(file.read())
        for rule, text in checker.findings:
            print(f"{path}: {rule}: {text}")
            failed = True
        if not checker.domains:
            print(f"{path}: framing: no message")
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())

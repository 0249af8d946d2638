"""The strict check finds nothing in a clean session, and each mistake that exporters make when it is
built into one. `python3 -m unittest integration/ipfix/test_check.py`"""
import os
import struct
import sys
import unittest

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import check  # noqa: E402

PEN = 32473
NOW = 1793009730
NTP = (NOW + check.NTP_OFFSET) << 32


def ie(number, octets, pen=0):
    return (number, octets, pen)


def ours(offset, octets):
    return (1 + offset, octets, PEN)


PACKET = [ie(138, 8), ie(325, 8), ie(8, 4), ie(12, 4), ie(7, 2), ie(11, 2), ie(4, 1), ie(5, 1), ie(61, 1),
          ie(301, 8), ours(0, 1), ours(1, 2), ours(2, 3), ours(3, 3), ours(4, 1), ours(5, 1), ours(6, 1)]
FLOW = [ie(8, 4), ie(12, 4), ie(7, 2), ie(11, 2), ie(4, 1), ie(61, 1), ours(1, 2), ours(2, 3),
        ie(138, 8), ie(152, 8), ie(153, 8), ie(2, 8), ie(1, 8)]
REPORT = [ie(138, 8), ie(8, 4), ie(12, 4), ours(2, 4), ours(1, 2), ie(152, 8), ie(153, 8), ours(100, 8),
          ours(101, 8), ours(102, 4), ours(103, 2)] + [ours(o, 4 if o == 108 else 8) for o in range(104, 112)]
TYPES = [ie(346, 4), ie(303, 2), ie(339, 1), ie(344, 1), ie(345, 2), ie(342, 8), ie(343, 8),
         ie(341, 65535), ie(340, 65535)]
TOTALS = [ie(149, 4), ie(143, 4), ie(41, 8), ie(42, 8), ie(40, 8)]


def template(number, fields, scope=0):
    out = struct.pack(">HH", number, len(fields)) + (struct.pack(">H", scope) if scope else b"")
    for element, octets, pen in fields:
        out += struct.pack(">HH", element | (0x8000 if pen else 0), octets)
        if pen:
            out += struct.pack(">I", pen)
    return out


def numbers(fields, values):
    return b"".join(value.to_bytes(octets, "big") for (_, octets, _), value in zip(fields, values))


def types(offset):
    _, name, _, kind = next(entry for entry in check.OURS if entry[0] == offset)
    name = name.encode()
    return struct.pack(">IHBBHQQ", PEN, 1 + offset, kind, 0, 0, 0, 0) + bytes([len(name)]) + name + b"\0"


def packet(psn=1, time=NTP, selection=9001):
    return numbers(PACKET, [12, time, 1, 2, 3, 4791, 17, 3, 0, selection, 4, 65535, 291, psn, 0, 0, 0])


def tos(value):
    whole = bytearray(packet())
    whole[29] = value
    return bytes(whole)


def flow(start=NOW * 1000, end=NOW * 1000 + 5):
    return numbers(FLOW, [1, 2, 3, 4791, 17, 1, 65535, 291, 12, start, end, 6, 600])


def report(epoch=1, number=1, flags=0x20, requests=5, skipped=0, pending=0, window=64, abandoned=0,
           start=1000, end=2000):
    return numbers(REPORT, [12, 1, 2, 291, 65535, start, end, epoch, number, window, flags, skipped, 0, 0,
                            abandoned, pending, 0, requests, 0])


class Session:
    """A clean session as sets per message; a mistake is built in by changing it before `octets`."""

    def __init__(self):
        announced = [
            (3, template(512, TYPES, 2)), (512, b"".join(types(o) for o, *_ in check.OURS)),
            (2, template(256, PACKET) + template(257, FLOW) + template(258, REPORT)),
            (3, template(513, [ie(145, 2), ie(173, 8)], 1)),
            (513, struct.pack(">HQHQ", 257, 0xff, 258, 0x9f)),
            (3, template(514, [ie(149, 4), ie(36, 2), ie(37, 2)], 1)), (514, struct.pack(">IHH", 7, 60, 15)),
            (3, template(515, [ie(301, 8), ie(138, 8), ie(302, 8)], 1)),
            (515, struct.pack(">QQQ", 9001, 12, 9001)),
            (3, template(516, [ie(302, 8), ie(304, 2), ie(305, 4), ie(306, 4)], 1)),
            (516, struct.pack(">QHII", 9001, 1, 1, 99)),
            (3, template(519, [ie(301, 8), ie(318, 8), ie(319, 8)], 1)),
            (519, struct.pack(">QQQ", 9001, 100, 1)),
            (3, template(520, [ie(145, 2), ie(303, 2), ie(320, 8)], 2)),
            (520, struct.pack(">HHd", 256, 325, 1000.0)),
            (3, template(521, TOTALS, 2)),
        ]
        self.messages = [announced, [(256, packet(1) + packet(2))], [(257, flow())],
                         [(258, report() + report(number=2) + report(number=3, flags=0x21))]]
        self.times = [NOW] * 10
        self.domain = 7

    def totals(self, extra=0):
        before = self.octets()
        sent = len(self.messages)
        record = numbers(TOTALS, [7, 1, sent + extra, 6, len(before)])
        self.messages.append([(521, record)])
        return self

    def records(self, sets):
        count = 0
        for set_id, body in sets:
            if set_id == 512:
                count += len(check.OURS)
            elif set_id == 513:
                count += 2
            elif set_id == 256:
                count += len(body) // len(packet())
            elif set_id == 258:
                count += len(body) // len(report())
            elif set_id > 256:
                count += 1
        return count

    def octets(self):
        out, sequence = b"", 0
        for sets, time in zip(self.messages, self.times):
            body = b"".join(struct.pack(">HH", i, 4 + len(b)) + b for i, b in sets)
            out += struct.pack(">HHIII", 10, 16 + len(body), time, sequence, self.domain) + body
            sequence += self.records(sets)
        return out


def rules(octets, **options):
    checker = check.Checker(**options)
    checker.stream(octets)
    return {rule for rule, _ in checker.findings}


def changed(place, number, body):
    """A session whose message at `place` has another body for the set `number`."""
    session = Session()
    sets = session.messages[place]
    at = next(n for n, (set_id, _) in enumerate(sets) if set_id == number)
    sets[at] = (number, body(sets[at][1]) if callable(body) else body)
    return session.octets()


def patched(offset, octets, session=None):
    data = bytearray((session or Session()).octets())
    at = len(data) + offset if offset < 0 else offset
    data[at:at + len(octets)] = octets
    return bytes(data)


def redefined(fields, number=256, scope=0):
    session = Session()
    session.messages.append([(3 if scope else 2, template(number, fields, scope))])
    return session.octets()


def without(number):
    """A session without the sets of this number, templates of it included."""
    session = Session()
    session.messages[0] = [(i, b) for i, b in session.messages[0]
                           if i != number and not (i == 3 and b[:2] == struct.pack(">H", number))]
    return session.octets()


def other_template(number, fields):
    """A session in which a template without records has other fields."""
    session = Session()
    session.messages[0].insert(3, (2, template(number, fields)))
    return session.octets()


def late(sets, seconds):
    session = Session()
    session.messages = session.messages[:2] + [sets]
    session.times[2] = NOW + seconds
    return session.octets()


def swap(fields, old, new):
    return [new if field == old else field for field in fields]


def last_report(**values):
    return changed(3, 258, report() + report(number=2, **values))


class Mistakes(unittest.TestCase):
    def test_clean(self):
        self.assertEqual(rules(Session().octets()), set())
        self.assertEqual(rules(Session().totals().octets()), set())

    def expect(self, rule, octets, **options):
        found = rules(octets, **options)
        self.assertIn(rule, found)

    def test_01_sequence_numbers(self):
        self.expect("sequence", patched(8, b"\0\0\0\1"))
        messages = Session()
        messages.records = lambda sets: 1
        self.expect("sequence", messages.octets())
        templates = Session()
        count = templates.records
        templates.records = lambda sets: count(sets) + sum(1 for i, _ in sets if i < 256)
        self.expect("sequence", templates.octets())

    def test_02_templates_of_another_domain(self):
        data = Session().octets()
        length, = struct.unpack_from(">H", data, 2)
        other = bytearray(data)
        other[length + 15] = 8
        other[length + 8:length + 12] = b"\0\0\0\0"
        self.expect("no-template", bytes(other))

    def test_03_data_before_templates(self):
        session = Session()
        session.messages[0], session.messages[1] = session.messages[1], session.messages[0]
        self.expect("no-template", session.octets())
        session = Session()
        session.messages[0].insert(0, (256, packet()))
        self.expect("no-template", session.octets())

    def test_04_redefinition(self):
        self.expect("redefined", redefined(PACKET[:-1]))
        self.expect("redefined", redefined([ie(145, 2)], scope=1))

    def test_05_udp(self):
        session = Session()
        session.messages.append([(2, struct.pack(">HH", 256, 0))])
        self.expect("withdrawal", session.octets(), datagrams=True)
        again = [(2, template(256, PACKET))]
        self.expect("refresh", late(again, 1000), datagrams=True, refresh=600)
        self.expect("refresh", late([(256, packet(3))], 1000), datagrams=True, refresh=600)
        self.expect("redefined", late([(2, template(256, PACKET[:-1]))], 700), datagrams=True, refresh=600)
        reused = rules(late([(2, template(256, PACKET[:-1]))], 1801), datagrams=True, refresh=600)
        self.assertNotIn("redefined", reused)

    def test_06_lengths(self):
        self.expect("framing", patched(2, b"\0\x10"))
        self.expect("framing", Session().octets()[:-1])
        self.expect("set-length", patched(18, b"\xff\xff"))
        self.expect("set-length", patched(18, b"\0\3"))

    def test_07_datagram_size(self):
        self.expect("size", Session().octets(), most=484)

    def test_08_padding(self):
        self.expect("padding", changed(1, 256, lambda body: body + b"\1"))
        self.expect("empty-set", changed(2, 257, b""))
        self.expect("empty-set", changed(2, 257, b"\0" * 3))
        self.expect("framing", Session().octets() + b"\0\0")
        self.expect("padding", changed(1, 256, lambda body: body + b"\0\0\7"))

    def test_09_times(self):
        for time in (NOW << 32, (NTP + (70 * 365 * 86400 << 32)) % 2**64):
            self.expect("time", changed(1, 256, packet(time=time)))
        for fraction in (-(-(7 << 32) // 10**9) - 1, 123456789):
            # 7 ns rounded down, and nanoseconds as they are.
            self.expect("time", changed(1, 256, packet(time=NTP + fraction)))
        exact = changed(1, 256, packet(time=NTP - (-(7 << 32) // 10**9)))
        self.assertNotIn("time", rules(exact))
        self.expect("time", changed(2, 257, flow(NOW, NOW)))
        self.expect("time", changed(2, 257, flow(NOW * 1000 + 9, NOW * 1000)))
        self.expect("reduced-size", other_template(300, swap(PACKET, ie(325, 8), ie(325, 4))))

    def test_10_export_time(self):
        session = Session()
        session.times = [NOW, NOW, NOW - 1, NOW]
        self.expect("export-time", session.octets())

    def test_11_scope(self):
        bad = template(530, [ie(145, 2), ie(173, 8)], 1)
        session = Session()
        session.messages[0].append((3, bad[:4] + b"\0\0" + bad[6:]))
        self.expect("scope", session.octets())
        session = Session()
        session.messages[0].append((3, bad[:4] + b"\0\3" + bad[6:]))
        self.expect("scope", session.octets())
        session = Session()
        session.domain = 0
        fields = TOTALS[1:] + TOTALS[:1]
        session.messages[0].append((3, template(531, fields, 1)))
        session.messages[0].append((531, numbers(fields, [1, 0, 0, 0, 7])))
        self.expect("scope", session.octets())

    def test_12_numbers_of_elements(self):
        for element in (ie(1, 1, PEN + 1), ie(3, 4, 29305), ie(700, 8), ie(50, 8, PEN)):
            self.expect("element", other_template(300, PACKET + [element]))
        body = bytearray(types(0))
        body[4] |= 0x80
        self.expect("types", changed(0, 512, lambda old: bytes(body) + old[len(body):]))

    def test_13_reduced_sizes(self):
        self.expect("reduced-size", other_template(300, swap(FLOW, ours(2, 3), ours(2, 5))))
        self.expect("reduced-size", redefined([ie(145, 2), ie(303, 2), ie(320, 5)], 540, 2))
        body = bytearray(types(2))
        body[6] = 0
        self.expect("types", changed(0, 512, lambda old: old.replace(types(2), bytes(body))))
        wide = swap(FLOW, ours(2, 3), ours(2, 4))
        session = Session()
        session.messages[0].insert(3, (2, template(300, wide)))
        values = [1, 2, 3, 4791, 17, 1, 65535, 1 << 24, 12, NOW * 1000, NOW * 1000, 6, 600]
        session.messages.append([(300, numbers(wide, values))])
        self.expect("24-bits", session.octets())

    def test_14_booleans_and_texts(self):
        session = Session()
        session.messages[0].append((3, template(532, [ie(302, 8), ie(333, 1)], 1)))
        session.messages[0].append((532, struct.pack(">QB", 1, 0)))
        self.expect("boolean", session.octets())
        self.expect("text", changed(0, 512, lambda old: old.replace(b"rocev2BthOpcode", b"\xff" * 15)))
        self.expect("record", changed(0, 512, lambda old: old[:-1] + b"\x05"))

    def test_15_flow_keys(self):
        for bits in (0xff00000000000000, 0x7f, 0x1ff, 1 << 13):
            body = struct.pack(">HQHQ", 257, bits, 258, 0x9f)
            self.expect("flow-keys", changed(0, 513, body))
        for bits in (0x1f, 0x19f):
            body = struct.pack(">HQHQ", 257, 0xff, 258, bits)
            self.expect("flow-keys", changed(0, 513, body))
        self.expect("flow-keys", without(513))

    def test_16_totals(self):
        self.expect("totals", Session().totals(1).octets())
        self.expect("totals", Session().totals(-1).octets())

    def test_17_a_torn_message(self):
        data = Session().octets()
        length, = struct.unpack_from(">H", data, 2)
        self.expect("framing", data[:length - 5] + data[length:])

    def test_18_a_message_lost_in_the_stream(self):
        session = Session()
        whole = session.octets()
        first, = struct.unpack_from(">H", whole, 2)
        second, = struct.unpack_from(">H", whole, first + 2)
        self.expect("sequence", whole[:first] + whole[first + second:])

    def test_19_epochs(self):
        self.expect("epochs", changed(3, 258, report(2) + report(1)))
        self.expect("epochs", changed(3, 258, report(number=2)))
        self.expect("epochs", changed(3, 258, report() + report()))
        self.expect("epochs", changed(3, 258, report() + report(number=3)))
        self.expect("epochs", last_report(requests=4))
        self.expect("epochs", last_report(window=65))
        self.expect("epochs", last_report(start=1001))
        self.expect("epochs", last_report(flags=0))
        self.expect("epochs", changed(3, 258, report(flags=0x21) + report(number=2, flags=0x21)))
        self.expect("flags", last_report(flags=0x21, skipped=1, pending=1))
        self.expect("flags", last_report(skipped=1, abandoned=1))
        self.expect("flags", last_report(flags=0x30))
        self.expect("flags", last_report(flags=0x60))
        self.expect("relations", last_report(skipped=1))
        self.expect("relations", changed(3, 258, report(requests=0)))
        self.expect("relations", changed(3, 258, report(window=0)))

    def test_20_selection(self):
        for number in (515, 516, 519, 520):
            self.expect("selection", without(number))
        self.expect("selection", changed(0, 519, struct.pack(">QQQ", 9001, 1, 100)))
        self.expect("selection", changed(0, 516, struct.pack(">QHII", 9001, 1, 0, 99)))

    def test_21_profiles(self):
        for fields in (PACKET + [ie(2, 8)], FLOW + [ours(3, 3)], FLOW + [ours(4, 1)], FLOW + [ie(23, 8), ie(24, 8)],
                       REPORT[:-1], REPORT + [ie(7, 2)], REPORT + [ie(27, 16), ie(28, 16)],
                       REPORT + [ours(102, 4)], FLOW[1:], PACKET[:5] + PACKET[6:]):
            self.expect("profile", other_template(300, fields))
        self.expect("profile", Session().octets(), datagrams=True)

    def test_22_order(self):
        self.expect("order", changed(1, 256, packet(1) + packet(2, NTP - (1 << 30))))

    def test_23_timeouts(self):
        self.expect("timeouts", changed(0, 514, struct.pack(">IHH", 7, 60, 0)))
        self.expect("timeouts", without(514))

    def test_24_the_whole_octet_of_tos(self):
        self.assertEqual(rules(Session().octets(), tos={3}), set())
        self.expect("tos", Session().octets(), tos={0x6b})
        self.expect("tos", Session().octets(), tos={3, 0x68})
        self.expect("tos", changed(1, 256, tos(3 >> 2)), tos={3})

    def test_types_after_templates_and_options_in_one_set(self):
        session = Session()
        sets = session.messages[0]
        sets.insert(5, sets.pop(1))
        sets.insert(4, sets.pop(0))
        self.expect("types", session.octets())
        two = template(533, [ie(145, 2), ie(173, 8)], 1) + template(534, [ie(145, 2), ie(173, 8)], 1)
        session = Session()
        session.messages[0].append((3, two))
        self.expect("options-sets", session.octets())

    def test_other_versions(self):
        self.expect("framing", patched(0, b"\0\x09"))
        self.expect("set-id", patched(16, b"\0\5"))
        self.expect("template-id", changed(0, 2, lambda body: b"\0\xff" + body[2:]))


if __name__ == "__main__":
    unittest.main()

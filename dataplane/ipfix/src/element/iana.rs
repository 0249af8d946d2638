//! The registered elements that we send or know by name (IANA registry "IPFIX Information Elements").

use super::DataType::{self, *};
use super::Semantics::{self, *};
use super::{Definition, Units};

/// Numbers of registered elements.
pub mod id {
    macro_rules! ids {
        ($($(#[$doc:meta])* $name:ident = $id:literal;)*) => {
            $($(#[$doc])* pub const $name: u16 = $id;)*
        };
    }
    ids! {
        /// octetDeltaCount
        OCTET_DELTA_COUNT = 1;
        /// packetDeltaCount
        PACKET_DELTA_COUNT = 2;
        /// protocolIdentifier
        PROTOCOL_IDENTIFIER = 4;
        /// ipClassOfService
        IP_CLASS_OF_SERVICE = 5;
        /// sourceTransportPort
        SOURCE_TRANSPORT_PORT = 7;
        /// sourceIPv4Address
        SOURCE_IPV4_ADDRESS = 8;
        /// destinationTransportPort
        DESTINATION_TRANSPORT_PORT = 11;
        /// destinationIPv4Address
        DESTINATION_IPV4_ADDRESS = 12;
        /// postOctetDeltaCount
        POST_OCTET_DELTA_COUNT = 23;
        /// postPacketDeltaCount
        POST_PACKET_DELTA_COUNT = 24;
        /// sourceIPv6Address
        SOURCE_IPV6_ADDRESS = 27;
        /// destinationIPv6Address
        DESTINATION_IPV6_ADDRESS = 28;
        /// flowActiveTimeout
        FLOW_ACTIVE_TIMEOUT = 36;
        /// flowIdleTimeout
        FLOW_IDLE_TIMEOUT = 37;
        /// exportedOctetTotalCount
        EXPORTED_OCTET_TOTAL_COUNT = 40;
        /// exportedMessageTotalCount
        EXPORTED_MESSAGE_TOTAL_COUNT = 41;
        /// exportedFlowRecordTotalCount
        EXPORTED_FLOW_RECORD_TOTAL_COUNT = 42;
        /// flowDirection
        FLOW_DIRECTION = 61;
        /// observationPointId
        OBSERVATION_POINT_ID = 138;
        /// meteringProcessId
        METERING_PROCESS_ID = 143;
        /// exportingProcessId
        EXPORTING_PROCESS_ID = 144;
        /// templateId
        TEMPLATE_ID = 145;
        /// observationDomainId
        OBSERVATION_DOMAIN_ID = 149;
        /// flowStartMilliseconds
        FLOW_START_MILLISECONDS = 152;
        /// flowEndMilliseconds
        FLOW_END_MILLISECONDS = 153;
        /// ignoredPacketTotalCount
        IGNORED_PACKET_TOTAL_COUNT = 164;
        /// ignoredOctetTotalCount
        IGNORED_OCTET_TOTAL_COUNT = 165;
        /// notSentFlowTotalCount
        NOT_SENT_FLOW_TOTAL_COUNT = 166;
        /// notSentPacketTotalCount
        NOT_SENT_PACKET_TOTAL_COUNT = 167;
        /// notSentOctetTotalCount
        NOT_SENT_OCTET_TOTAL_COUNT = 168;
        /// flowKeyIndicator
        FLOW_KEY_INDICATOR = 173;
        /// paddingOctets
        PADDING_OCTETS = 210;
        /// dot1qVlanId
        DOT1Q_VLAN_ID = 243;
        /// selectionSequenceId
        SELECTION_SEQUENCE_ID = 301;
        /// selectorId
        SELECTOR_ID = 302;
        /// informationElementId
        INFORMATION_ELEMENT_ID = 303;
        /// selectorAlgorithm
        SELECTOR_ALGORITHM = 304;
        /// samplingPacketInterval
        SAMPLING_PACKET_INTERVAL = 305;
        /// samplingPacketSpace
        SAMPLING_PACKET_SPACE = 306;
        /// samplingProbability
        SAMPLING_PROBABILITY = 311;
        /// selectorIdTotalPktsObserved
        SELECTOR_ID_TOTAL_PKTS_OBSERVED = 318;
        /// selectorIdTotalPktsSelected
        SELECTOR_ID_TOTAL_PKTS_SELECTED = 319;
        /// absoluteError
        ABSOLUTE_ERROR = 320;
        /// observationTimeSeconds
        OBSERVATION_TIME_SECONDS = 322;
        /// observationTimeMilliseconds
        OBSERVATION_TIME_MILLISECONDS = 323;
        /// observationTimeMicroseconds
        OBSERVATION_TIME_MICROSECONDS = 324;
        /// observationTimeNanoseconds
        OBSERVATION_TIME_NANOSECONDS = 325;
        /// hashIPPayloadOffset
        HASH_IP_PAYLOAD_OFFSET = 327;
        /// hashIPPayloadSize
        HASH_IP_PAYLOAD_SIZE = 328;
        /// hashOutputRangeMin
        HASH_OUTPUT_RANGE_MIN = 329;
        /// hashOutputRangeMax
        HASH_OUTPUT_RANGE_MAX = 330;
        /// hashSelectedRangeMin
        HASH_SELECTED_RANGE_MIN = 331;
        /// hashSelectedRangeMax
        HASH_SELECTED_RANGE_MAX = 332;
        /// hashDigestOutput
        HASH_DIGEST_OUTPUT = 333;
        /// hashInitialiserValue
        HASH_INITIALISER_VALUE = 334;
        /// informationElementDataType
        INFORMATION_ELEMENT_DATA_TYPE = 339;
        /// informationElementDescription
        INFORMATION_ELEMENT_DESCRIPTION = 340;
        /// informationElementName
        INFORMATION_ELEMENT_NAME = 341;
        /// informationElementRangeBegin
        INFORMATION_ELEMENT_RANGE_BEGIN = 342;
        /// informationElementRangeEnd
        INFORMATION_ELEMENT_RANGE_END = 343;
        /// informationElementSemantics
        INFORMATION_ELEMENT_SEMANTICS = 344;
        /// informationElementUnits
        INFORMATION_ELEMENT_UNITS = 345;
        /// privateEnterpriseNumber
        PRIVATE_ENTERPRISE_NUMBER = 346;
        /// layer2SegmentId
        LAYER2_SEGMENT_ID = 351;
    }
}

const fn element(
    name: &'static str,
    data_type: DataType,
    semantics: Semantics,
    units: Units,
) -> Definition {
    Definition {
        name,
        data_type,
        semantics,
        units,
        max: None,
        description: "",
    }
}

macro_rules! table {
    ($($id:literal $name:ident $data_type:ident $semantics:ident $units:ident;)*) => {
        /// Number and definition, in the order of the numbers.
        pub const IANA: &[(u16, Definition)] = &[
            $(($id, element(stringify!($name), $data_type, $semantics, Units::$units)),)*
        ];
    };
}

table! {
    1 octetDeltaCount Unsigned64 DeltaCounter Octets;
    2 packetDeltaCount Unsigned64 DeltaCounter Packets;
    4 protocolIdentifier Unsigned8 Identifier None;
    5 ipClassOfService Unsigned8 Identifier None;
    7 sourceTransportPort Unsigned16 Identifier None;
    8 sourceIPv4Address Ipv4Address Default None;
    10 ingressInterface Unsigned32 Identifier None;
    11 destinationTransportPort Unsigned16 Identifier None;
    12 destinationIPv4Address Ipv4Address Default None;
    14 egressInterface Unsigned32 Identifier None;
    23 postOctetDeltaCount Unsigned64 DeltaCounter Octets;
    24 postPacketDeltaCount Unsigned64 DeltaCounter Packets;
    27 sourceIPv6Address Ipv6Address Default None;
    28 destinationIPv6Address Ipv6Address Default None;
    36 flowActiveTimeout Unsigned16 Default Seconds;
    37 flowIdleTimeout Unsigned16 Default Seconds;
    40 exportedOctetTotalCount Unsigned64 TotalCounter Octets;
    41 exportedMessageTotalCount Unsigned64 TotalCounter Messages;
    42 exportedFlowRecordTotalCount Unsigned64 TotalCounter Flows;
    58 vlanId Unsigned16 Identifier None;
    61 flowDirection Unsigned8 Identifier None;
    130 exporterIPv4Address Ipv4Address Default None;
    131 exporterIPv6Address Ipv6Address Default None;
    136 flowEndReason Unsigned8 Identifier None;
    138 observationPointId Unsigned64 Identifier None;
    143 meteringProcessId Unsigned32 Identifier None;
    144 exportingProcessId Unsigned32 Identifier None;
    145 templateId Unsigned16 Identifier None;
    148 flowId Unsigned64 Identifier None;
    149 observationDomainId Unsigned32 Identifier None;
    150 flowStartSeconds DateTimeSeconds Default Seconds;
    151 flowEndSeconds DateTimeSeconds Default Seconds;
    152 flowStartMilliseconds DateTimeMilliseconds Default Milliseconds;
    153 flowEndMilliseconds DateTimeMilliseconds Default Milliseconds;
    154 flowStartMicroseconds DateTimeMicroseconds Default Microseconds;
    155 flowEndMicroseconds DateTimeMicroseconds Default Microseconds;
    156 flowStartNanoseconds DateTimeNanoseconds Default Nanoseconds;
    157 flowEndNanoseconds DateTimeNanoseconds Default Nanoseconds;
    160 systemInitTimeMilliseconds DateTimeMilliseconds Default Milliseconds;
    164 ignoredPacketTotalCount Unsigned64 TotalCounter Packets;
    165 ignoredOctetTotalCount Unsigned64 TotalCounter Octets;
    166 notSentFlowTotalCount Unsigned64 TotalCounter Flows;
    167 notSentPacketTotalCount Unsigned64 TotalCounter Packets;
    168 notSentOctetTotalCount Unsigned64 TotalCounter Octets;
    173 flowKeyIndicator Unsigned64 Flags None;
    210 paddingOctets OctetArray Default None;
    243 dot1qVlanId Unsigned16 Identifier None;
    300 observationDomainName String Default None;
    301 selectionSequenceId Unsigned64 Identifier None;
    302 selectorId Unsigned64 Identifier None;
    303 informationElementId Unsigned16 Identifier None;
    304 selectorAlgorithm Unsigned16 Identifier None;
    305 samplingPacketInterval Unsigned32 Quantity Packets;
    306 samplingPacketSpace Unsigned32 Quantity Packets;
    307 samplingTimeInterval Unsigned32 Quantity Microseconds;
    308 samplingTimeSpace Unsigned32 Quantity Microseconds;
    309 samplingSize Unsigned32 Quantity Packets;
    310 samplingPopulation Unsigned32 Quantity Packets;
    311 samplingProbability Float64 Quantity None;
    312 dataLinkFrameSize Unsigned16 Quantity Octets;
    313 ipHeaderPacketSection OctetArray Default None;
    314 ipPayloadPacketSection OctetArray Default None;
    315 dataLinkFrameSection OctetArray Default None;
    318 selectorIdTotalPktsObserved Unsigned64 TotalCounter Packets;
    319 selectorIdTotalPktsSelected Unsigned64 TotalCounter Packets;
    320 absoluteError Float64 Quantity None;
    321 relativeError Float64 Quantity None;
    322 observationTimeSeconds DateTimeSeconds Default Seconds;
    323 observationTimeMilliseconds DateTimeMilliseconds Default Milliseconds;
    324 observationTimeMicroseconds DateTimeMicroseconds Default Microseconds;
    325 observationTimeNanoseconds DateTimeNanoseconds Default Nanoseconds;
    326 digestHashValue Unsigned64 Quantity None;
    327 hashIPPayloadOffset Unsigned64 Quantity Octets;
    328 hashIPPayloadSize Unsigned64 Quantity Octets;
    329 hashOutputRangeMin Unsigned64 Quantity None;
    330 hashOutputRangeMax Unsigned64 Quantity None;
    331 hashSelectedRangeMin Unsigned64 Quantity None;
    332 hashSelectedRangeMax Unsigned64 Quantity None;
    333 hashDigestOutput Boolean Default None;
    334 hashInitialiserValue Unsigned64 Quantity None;
    335 selectorName String Default None;
    336 upperCILimit Float64 Quantity None;
    337 lowerCILimit Float64 Quantity None;
    338 confidenceLevel Float64 Quantity None;
    339 informationElementDataType Unsigned8 Identifier None;
    340 informationElementDescription String Default None;
    341 informationElementName String Default None;
    342 informationElementRangeBegin Unsigned64 Quantity None;
    343 informationElementRangeEnd Unsigned64 Quantity None;
    344 informationElementSemantics Unsigned8 Identifier None;
    345 informationElementUnits Unsigned16 Identifier None;
    346 privateEnterpriseNumber Unsigned32 Identifier None;
    351 layer2SegmentId Unsigned64 Identifier None;
}

//! The pipeline of the data plane between memory ports: two gateways of the product with a path between
//! them in simulated time, hosts that send packets from memory far larger than any cache, and clocks that
//! tell what each gateway takes. What lives here is the world around the pipeline and the measuring; the
//! pipeline itself is the product's.
#![forbid(unsafe_code)]

pub mod alone;
pub mod crew;
pub mod gateway;
pub mod latency;
pub mod leaving;
pub mod packets;
pub mod port;
pub mod report;
pub mod rows;
pub mod seat;
pub mod testpmd;
pub mod timing;
pub mod world;

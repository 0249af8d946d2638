//! What makes the box a part of a wire that operators can rely on: links that tell each other that they are gone,
//! mode `bypass` and its end, the relay that joins the ports without this process. Decisions are sans-IO; the
//! auxiliary thread carries them out. None of it is protocol, and none of it is on a worker.

pub mod bypass;
pub mod links;
pub mod relay;

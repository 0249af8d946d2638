//! What can be written on the command line.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;

/// Looks at and changes a CREM gateway.
#[derive(Parser, Debug)]
#[command(version, arg_required_else_help = true, infer_subcommands = true)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// JSON instead of tables, also for failures.
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// How the gateway is reached.
#[derive(Args, Debug)]
pub(crate) struct Reach {
    /// Local socket of the gateway.
    #[arg(
        long,
        global = true,
        value_name = "PATH",
        env = "CREMCTL_SOCKET",
        default_value = "/run/crem/control.sock"
    )]
    pub(crate) socket: PathBuf,
    /// Address of a gateway elsewhere, such as gw-a.example:8443; TLS always.
    #[arg(long, global = true, value_name = "HOST:PORT", env = "CREMCTL_HOST")]
    pub(crate) host: Option<String>,
    /// Authorities that its certificate is checked with, PEM.
    #[arg(long, global = true, value_name = "FILE", env = "CREMCTL_CA")]
    pub(crate) ca: Option<PathBuf>,
    /// SHA-256 of its certificate, as the box shows it on its console, in the place of authorities.
    #[arg(
        long,
        global = true,
        value_name = "SHA256",
        env = "CREMCTL_FINGERPRINT",
        conflicts_with = "ca"
    )]
    pub(crate) fingerprint: Option<String>,
    /// Our certificate, PEM.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "CREMCTL_CERTIFICATE",
        requires = "key"
    )]
    pub(crate) certificate: Option<PathBuf>,
    /// Its key, PEM.
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "CREMCTL_KEY",
        requires = "certificate"
    )]
    pub(crate) key: Option<PathBuf>,
    /// File with a token.
    #[arg(long, global = true, value_name = "FILE", env = "CREMCTL_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Command {
    /// The config document.
    #[command(subcommand)]
    Config(Config),
    /// What the gateway does.
    #[command(subcommand)]
    Show(Show),
    /// What the gateway does, again and again on the whole terminal.
    Top(Top),
    /// Changes what a segment does with what passes.
    Mode {
        /// The segment.
        segment: String,
        /// The mode.
        #[arg(value_parser = ["active", "monitor", "passthrough", "block", "bypass"])]
        mode: String,
        #[command(flatten)]
        how: How,
    },
    /// Frames of a segment in files; one capture at a time.
    #[command(subcommand)]
    Capture(Capture),
    /// One peer: the path to it, and whether its settings fit.
    #[command(subcommand)]
    Peer(Peer),
    /// Files for those who help, without secrets.
    #[command(subcommand)]
    Support(Support),
    /// Access for programs and people elsewhere.
    #[command(subcommand)]
    Token(Token),
    /// Exchanges the code on the console of a new box for its first token, and tells it.
    Enrol {
        /// The code.
        code: String,
        /// Whose the token is.
        #[arg(long)]
        name: String,
        /// How long it is good, such as 24h.
        #[arg(long, default_value = "24h")]
        life: String,
    },
    /// Who changed what.
    Audit {
        /// Only records after this number.
        #[arg(long, default_value_t = 0)]
        after: u64,
    },
    /// Writes a completion script.
    Completion {
        /// For this shell.
        shell: Shell,
    },
    /// Writes manual pages.
    #[command(hide = true)]
    Man {
        /// Into this directory.
        directory: PathBuf,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum Config {
    /// Shows the document or a part of it.
    Show {
        /// Keys, such as segments/a/policy.
        part: Option<String>,
        /// Of this revision instead of the running one.
        #[arg(long)]
        revision: Option<u64>,
        /// With defaults.
        #[arg(long)]
        filled: bool,
    },
    /// Shows the JSON schema of the document: every key, its meaning, limits and default.
    Schema,
    /// Tells what a change would do, and does nothing.
    Plan(Change),
    /// Makes a change.
    Apply {
        #[command(flatten)]
        change: Change,
        #[command(flatten)]
        how: How,
    },
    /// Keeps the change that waits.
    Confirm {
        /// Its revision; the one that waits if left out.
        revision: Option<u64>,
    },
    /// Gives the change that waits up.
    Cancel {
        /// Its revision; the one that waits if left out.
        revision: Option<u64>,
    },
    /// Waits longer.
    Extend {
        /// By so much, such as 60s.
        by: String,
        /// Its revision; the one that waits if left out.
        revision: Option<u64>,
    },
    /// Shows what differs between two revisions.
    Diff {
        /// From this one.
        from: u64,
        /// To this one; the running one if left out.
        to: Option<u64>,
    },
    /// Shows the revisions.
    History {
        /// At most so many.
        #[arg(long, default_value_t = 20)]
        limit: u32,
    },
    /// Brings the document of an old revision back, as a new one.
    Restore {
        /// The old one.
        revision: u64,
        #[command(flatten)]
        how: How,
    },
}

/// A change of the document.
#[derive(Args, Debug)]
pub(crate) struct Change {
    /// File with the change, TOML or (named *.json) JSON; - for JSON from the standard input.
    pub(crate) file: PathBuf,
    /// What the file is.
    #[arg(long = "as", value_enum, default_value_t = Kind::Document)]
    pub(crate) kind: Kind,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Kind {
    /// The whole document.
    Document,
    /// What is to be different, null removing (RFC 7396).
    Merge,
    /// Operations (RFC 6902).
    Operations,
}

/// How a change is made.
#[derive(Args, Debug)]
pub(crate) struct How {
    /// Roll back unless it is confirmed within this time, such as 120s.
    #[arg(long, value_name = "TIME")]
    pub(crate) confirm: Option<String>,
    /// What it may disturb at most: hot, segment or process.
    #[arg(long, value_name = "IMPACT", value_parser = ["hot", "segment", "process"])]
    pub(crate) max_impact: Option<String>,
    /// Why.
    #[arg(long)]
    pub(crate) comment: Option<String>,
    /// ETag that the running document has to have; the one that runs now if left out.
    #[arg(long, value_name = "ETAG")]
    pub(crate) if_match: Option<String>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Show {
    /// The data plane as a whole.
    Dataplane,
    /// Segments with their ports.
    Segments,
    /// Peers.
    Peers,
    /// Flows, each with the reason when it is not protected.
    Flows(Flows),
    /// Counters.
    Counters,
    /// Frames that ended in the gateway, by reason.
    Drops,
    /// Collectors and what they got.
    Ipfix,
    /// What each process gave up.
    Confinement,
    /// Interfaces of the machine.
    Interfaces,
    /// Routes of the machine.
    Routes,
    /// What the machine has other than the document.
    Drift,
    /// Resolvers that the machine asks.
    Dns,
    /// Time servers, and when the clock was last set by one.
    Time,
    /// Ports and management interfaces: link, speed, FEC, modules.
    Ports,
    /// Neighbours that were heard by LLDP.
    Lldp,
    /// Syslog servers and what they got.
    Syslog,
    /// Events as they happen.
    Events {
        /// Only those after this number; those to come if left out.
        #[arg(long)]
        after: Option<u64>,
        /// End after so many.
        #[arg(long)]
        count: Option<u64>,
    },
    /// The commit that waits.
    Commit,
    /// What became of a change.
    Operation {
        /// Its id.
        id: String,
    },
    /// Versions.
    Version,
}

#[derive(Args, Debug)]
pub(crate) struct Flows {
    /// Only of this segment.
    #[arg(long)]
    pub(crate) segment: Option<String>,
    /// Only with this reason.
    #[arg(long)]
    pub(crate) reason: Option<String>,
    /// Only those that are, or are not, protected.
    #[arg(long)]
    pub(crate) protected: Option<bool>,
    /// Only from or to this network.
    #[arg(long)]
    pub(crate) network: Option<String>,
    /// At most so many; all if left out.
    #[arg(long)]
    pub(crate) limit: Option<usize>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Token {
    /// Makes a token and tells it, once.
    Create {
        /// Whose it is.
        name: String,
        /// What it is good for: viewer, operator or admin.
        #[arg(long, default_value = "viewer", value_parser = ["viewer", "operator", "admin"])]
        access: String,
        /// How long, such as 720h.
        #[arg(long, default_value = "720h")]
        life: String,
    },
    /// Lists tokens.
    List,
    /// Deletes a token.
    Delete {
        /// Its id.
        id: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Top {
    /// Seconds between two looks.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    pub(crate) interval: u64,
    /// Flows to show.
    #[arg(long, default_value_t = 20)]
    pub(crate) flows: usize,
    /// Show it once and end.
    #[arg(long)]
    pub(crate) once: bool,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Capture {
    /// Begins a capture.
    Start(Box<NewCapture>),
    /// Lists captures.
    List,
    /// Shows how a capture stands.
    Show {
        /// Its id.
        id: String,
    },
    /// Ends a capture; its file stays.
    Stop {
        /// Its id.
        id: String,
    },
    /// Copies the file of a capture that is over, pcapng.
    Fetch {
        /// Its id.
        id: String,
        /// File to make, which must not exist; - for the standard output.
        file: PathBuf,
    },
    /// Removes a capture with its file.
    Delete {
        /// Its id.
        id: String,
    },
}

#[derive(Args, Debug)]
pub(crate) struct NewCapture {
    /// Id of the segment.
    pub(crate) segment: String,
    /// Port whose frames are kept; both if left out.
    #[arg(long, value_parser = ["lan", "wan"])]
    pub(crate) port: Option<String>,
    /// Frames to keep; all of them if left out.
    #[arg(long, value_parser = ["all", "roce", "crem"])]
    pub(crate) kind: Option<String>,
    /// Only frames from or to this address.
    #[arg(long)]
    pub(crate) address: Option<IpAddr>,
    /// Octets to keep of each frame, 64 to 9216 [default: 256].
    #[arg(long, value_name = "OCTETS")]
    pub(crate) snap: Option<u64>,
    /// Frames to keep in all [default: 10000].
    #[arg(long)]
    pub(crate) frames: Option<u64>,
    /// Octets to keep in all [default: 67108864].
    #[arg(long)]
    pub(crate) octets: Option<u64>,
    /// Duration [default: 60].
    #[arg(long)]
    pub(crate) seconds: Option<u64>,
}

#[derive(Subcommand, Debug)]
pub(crate) enum Peer {
    /// Sends echoes and shows what flows have seen of the path.
    Test {
        /// Its id, SEGMENT@ADDRESS, as show peers has it.
        id: String,
        /// Echoes to send, 1 to 100 [default: 20].
        #[arg(long)]
        echoes: Option<u16>,
    },
    /// Shows what both gateways agreed on and what does not fit.
    Compatibility {
        /// Its id, SEGMENT@ADDRESS, as show peers has it.
        id: String,
    },
}

#[derive(Subcommand, Debug)]
pub(crate) enum Support {
    /// Has a bundle made and copies it.
    Make {
        /// File to make, which must not exist; - for the standard output. Without it the bundle stays in the gateway.
        file: Option<PathBuf>,
    },
    /// Lists bundles.
    List,
    /// Shows how a bundle stands.
    Show {
        /// Its id.
        id: String,
    },
    /// Copies a bundle, tar.gz.
    Fetch {
        /// Its id.
        id: String,
        /// File to make, which must not exist; - for the standard output.
        file: PathBuf,
    },
    /// Removes a bundle.
    Delete {
        /// Its id.
        id: String,
    },
}

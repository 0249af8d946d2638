//! What can be written on the command line.

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

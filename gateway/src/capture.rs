//! The subcommand `capture`: begins and ends captures of a running data plane over its status socket. What a
//! capture is and how it is limited is `crem_api::capture`.

use std::net::IpAddr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use crem_api::Invalid;
use crem_api::Side;
use crem_api::capture::{CaptureAsk, CaptureEnd, CaptureKind, CaptureRequest, CaptureState};
use crem_api::client::{Client, ClientError};

use crate::{FAILED, fail, refuse};

/// Longest wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two looks at a capture that is waited for.
const LOOK: Duration = Duration::from_millis(100);

/// Flags of captures.
#[derive(Args, Debug)]
pub(crate) struct CaptureFlags {
    /// Status socket of the data plane.
    #[arg(long, value_name = "PATH", default_value = "/run/crem/dataplane.sock")]
    status_socket: PathBuf,
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand, Debug)]
enum Action {
    /// Begins a capture.
    Start(Box<StartFlags>),
    /// Ends the capture that runs.
    Stop,
    /// Tells how the capture that runs, or the last one, stands.
    Show,
}

#[derive(Args, Debug)]
struct StartFlags {
    /// Id of the segment.
    segment: String,
    /// File to make, pcapng; one that exists is left alone.
    file: PathBuf,
    /// Port whose frames are kept; both if it is not said.
    #[arg(long)]
    port: Option<Port>,
    /// Frames to keep.
    #[arg(long, default_value = "all")]
    kind: Kind,
    /// Only frames from or to this address.
    #[arg(long)]
    address: Option<IpAddr>,
    /// Octets to keep of each frame, 64 to 9216 [default: 256].
    #[arg(long, value_name = "OCTETS")]
    snap: Option<u32>,
    /// Frames to keep in all [default: 10000].
    #[arg(long)]
    frames: Option<u64>,
    /// Octets to keep in all [default: 67108864].
    #[arg(long)]
    octets: Option<u64>,
    /// Duration [default: 60].
    #[arg(long)]
    seconds: Option<u32>,
    /// Return only when the capture has ended.
    #[arg(long)]
    wait: bool,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum Port {
    Lan,
    Wan,
}

#[derive(Clone, Copy, ValueEnum, Debug)]
enum Kind {
    All,
    Roce,
    Crem,
}

impl StartFlags {
    /// The request, its file made absolute: the data plane has another working directory.
    fn request(&self) -> std::io::Result<CaptureRequest> {
        let file = std::path::absolute(&self.file)?;
        let base = CaptureRequest::new(self.segment.clone(), file);
        Ok(CaptureRequest {
            ports: match self.port {
                Some(Port::Lan) => vec![Side::Lan],
                Some(Port::Wan) => vec![Side::Wan],
                None => base.ports,
            },
            kind: match self.kind {
                Kind::All => CaptureKind::All,
                Kind::Roce => CaptureKind::Roce,
                Kind::Crem => CaptureKind::Crem,
            },
            address: self.address,
            snap_octets: self.snap.unwrap_or(base.snap_octets),
            max_frames: self.frames.unwrap_or(base.max_frames),
            max_octets: self.octets.unwrap_or(base.max_octets),
            seconds: self.seconds.unwrap_or(base.seconds),
            segment: base.segment,
            file: base.file,
        })
    }
}

pub(crate) fn capture(flags: &CaptureFlags) -> ExitCode {
    let done = Client::connect(&flags.status_socket, PATIENCE).and_then(|mut client| match &flags
        .action
    {
        Action::Start(start) => {
            let ask = CaptureAsk::Start(Box::new(start.request()?));
            let begun = client.capture(ask)?;
            if start.wait {
                end_of(&mut client)
            } else {
                Ok(begun)
            }
        }
        Action::Stop => {
            client.capture(CaptureAsk::Stop)?;
            end_of(&mut client)
        }
        Action::Show => client.capture_state(),
    });
    match done {
        Ok(state) => show(&state),
        Err(ClientError::Refused(reply)) if !reply.issues.is_empty() => {
            let issues = reply.issues;
            refuse("capture", &Invalid { issues })
        }
        Err(error) => fail(&error),
    }
}

/// Waits for the end of a capture; that comes by its own limits.
fn end_of(client: &mut Client) -> Result<CaptureState, ClientError> {
    loop {
        let state = client.capture_state()?;
        if !state.running {
            return Ok(state);
        }
        std::thread::sleep(LOOK);
    }
}

/// One line about it; a capture that failed is a failure.
fn show(state: &CaptureState) -> ExitCode {
    let Some(request) = &state.request else {
        println!("no capture");
        return ExitCode::SUCCESS;
    };
    let how = match &state.ended {
        None => "running".to_owned(),
        Some(CaptureEnd::Frames) => "ended: as many frames as asked for".to_owned(),
        Some(CaptureEnd::Octets) => "ended: as many octets as asked for".to_owned(),
        Some(CaptureEnd::Time) => "ended: time is over".to_owned(),
        Some(CaptureEnd::Stopped) => "ended: stopped".to_owned(),
        Some(CaptureEnd::Failed(why)) => format!("ended: {why}"),
    };
    let CaptureState {
        frames,
        octets,
        lost,
        ..
    } = state;
    let file = request.file.display();
    println!("{file}: {frames} frames, {octets} octets, {lost} lost; {how}");
    if matches!(state.ended, Some(CaptureEnd::Failed(_))) {
        return ExitCode::from(FAILED);
    }
    ExitCode::SUCCESS
}

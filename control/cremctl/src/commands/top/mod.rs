//! `top`: what the gateway does, again and again, on a terminal of its own or, where there is none, one text after
//! the other. What is shown is in [`model`], the terminal in [`screen`].

mod model;
mod screen;

use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use super::{get, pretty};
use crate::Failure;
use crate::args::{Arguments, Top};

use model::{Look, Order};
use screen::Screen;

/// Flows that are looked at.
const FLOWS: u32 = 1000;

pub(super) async fn run(arguments: &Arguments, top: &Top) -> Result<String, Failure> {
    let begun = Instant::now();
    let mut before = look(arguments, begun).await?;
    let interval = Duration::from_secs(top.interval);
    if top.once {
        tokio::time::sleep(interval).await;
        let now = look(arguments, begun).await?;
        return Ok(shown(arguments, top, (&before, &now), Order::Rate));
    }
    let screen = if arguments.json {
        None
    } else {
        Screen::take()?
    };
    let (mut keys, mut order) = (screen::keys(), Order::Rate);
    let (mut ends, mut resized) = (ends()?, signal(SignalKind::window_change())?);
    let mut now = before.clone();
    let mut ticks = tokio::time::interval_at(tokio::time::Instant::now() + interval, interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let text = shown(arguments, top, (&before, &now), order);
        match &screen {
            Some(screen) => {
                let (columns, lines) = Screen::size();
                let rates = model::rates(&before, &now, order, top.flows.min(lines));
                screen.show(&model::text(&rates, columns, lines))?;
            }
            // The first one has no rates yet.
            None if now != before => write(&text)?,
            None => {}
        }
        tokio::select! {
            _ = ticks.tick() => {
                let next = look(arguments, begun).await?;
                before = std::mem::replace(&mut now, next);
            }
            _ = resized.recv() => {}
            _ = ends.recv() => return Ok(String::new()),
            Some(key) = keys.recv() => match key {
                b'q' => return Ok(String::new()),
                b'l' => order = Order::Loss,
                b'r' => order = Order::Rate,
                _ => {}
            },
        }
    }
}

fn shown(arguments: &Arguments, top: &Top, looks: (&Look, &Look), order: Order) -> String {
    let rates = model::rates(looks.0, looks.1, order, top.flows);
    if arguments.json {
        pretty(&rates)
    } else {
        model::text(&rates, usize::MAX, usize::MAX)
    }
}

fn write(text: &str) -> std::io::Result<()> {
    use std::io::Write;
    let mut out = std::io::stdout();
    out.write_all(text.as_bytes())?;
    out.write_all(b"\n")?;
    out.flush()
}

/// Whatever asks the process to end, so that the terminal is given back first.
fn ends() -> std::io::Result<mpsc::Receiver<()>> {
    let (send, receive) = mpsc::channel(1);
    for kind in [
        SignalKind::interrupt(),
        SignalKind::terminate(),
        SignalKind::hangup(),
        SignalKind::quit(),
    ] {
        let (mut signals, send) = (signal(kind)?, send.clone());
        tokio::spawn(async move {
            signals.recv().await;
            let _ = send.send(()).await;
        });
    }
    Ok(receive)
}

/// Looks at the gateway. A data plane that does not answer is something to show; a gateway that does not is not.
async fn look(arguments: &Arguments, begun: Instant) -> Result<Look, Failure> {
    let absent = |asked: Result<Value, Failure>| match asked {
        Err(Failure::Problem(problem)) if problem.status == 503 => Ok(Value::Null),
        other => other,
    };
    let ask = async |path: String| absent(get(arguments, path).await.map(|answer| answer.value));
    let status = ask("/v1/state/dataplane".to_owned()).await?;
    let counters = ask("/v1/state/counters".to_owned()).await?;
    let at_ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
    Ok(Look {
        at_ms,
        status,
        counters,
        flows: ask(format!("/v1/state/flows?limit={FLOWS}")).await?,
        commit: ask("/v1/commit".to_owned()).await?,
    })
}

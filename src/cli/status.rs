//! `status`: asks a running node's HTTP endpoint where it stands.

use std::{
    io::{self, Read, Write},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use crate::{
    cli::{args::StatusArgs, failure::Failure, print},
    config::units::bytes_text,
    observe::Standing,
};

/// Time for the node to answer: it is on this machine or near.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of an answer that are read at most.
const MAX_ANSWER: u64 = 1 << 20;

/// Shows the standing of the node behind `--http`.
pub(super) fn show(args: &StatusArgs) -> Result<(), Failure> {
    let standing = fetch(args.http).map_err(|error| {
        Failure::failed(
            format!("no node answers at http://{}/status: {error}", args.http),
            "start one, or name the address that it printed with --http",
        )
    })?;
    print::result(args.json, &standing, || text(&standing));
    Ok(())
}

fn fetch(address: SocketAddr) -> io::Result<Standing> {
    let mut stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    write!(stream, "GET /status HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n")?;
    let mut answer = String::new();
    stream.take(MAX_ANSWER).read_to_string(&mut answer)?;
    parse(&answer).ok_or_else(|| io::Error::other("the answer is not a node's"))
}

/// The standing in an HTTP answer with status 200.
fn parse(answer: &str) -> Option<Standing> {
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let ok = head.split_whitespace().nth(1) == Some("200");
    ok.then(|| serde_json::from_str(body).ok()).flatten()
}

fn text(standing: &Standing) -> String {
    let or_dash = |loss: Option<f64>| loss.map_or_else(|| "-".to_owned(), |l| format!("{l:.3}"));
    let busy = standing.train_seconds + standing.stall_seconds;
    let share = if busy > 0.0 { standing.train_seconds / busy * 100.0 } else { 100.0 };
    let mut lines = vec![
        format!("peer id          {}", standing.peer_id.as_deref().unwrap_or("-")),
        format!("run              {}", standing.name.as_deref().unwrap_or("none yet")),
        format!("round            {}/{}", standing.round, standing.rounds.unwrap_or(0)),
        format!("members          {} ({} live)", standing.members, standing.live),
        format!("training loss    {}", or_dash(standing.loss)),
        format!("validation loss  {}", or_dash(standing.validation_loss)),
        format!("steps            {} ({} tokens)", standing.steps, standing.tokens),
        format!(
            "exchanged        {} sent, {} received, {} rounds, {} missed",
            bytes_text(standing.bytes_sent),
            bytes_text(standing.bytes_received),
            standing.exchanges,
            standing.missed
        ),
        format!("time training    {share:.0} %"),
    ];
    lines.extend(standing.trouble.iter().map(|trouble| format!("now              {trouble}")));
    lines.extend(standing.join_command.iter().map(|join| format!("join with        {join}")));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::{Board, http};

    #[tokio::test]
    async fn a_served_standing_is_read_back() {
        let listener = http::bind_first([0]).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (end, ended) = tokio::sync::oneshot::channel::<()>();
        let serving = tokio::spawn(http::serve(listener, Board::default(), async {
            let _ = ended.await;
        }));
        let standing = tokio::task::spawn_blocking(move || fetch(address)).await.unwrap().unwrap();
        assert_eq!(standing, Standing::default());
        assert!(text(&standing).contains("none yet"));
        drop(end);
        serving.await.unwrap().unwrap();
    }

    #[test]
    fn another_server_is_no_node() {
        assert!(parse("HTTP/1.1 404 Not Found\r\n\r\n{}").is_none());
        assert!(parse("HTTP/1.1 200 OK\r\n\r\nhello").is_none());
        assert!(parse("garbage").is_none());
    }
}

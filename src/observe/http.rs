//! The local HTTP endpoint: `/health`, `/status` (JSON) and `/metrics` (Prometheus).

use std::{
    io,
    net::{Ipv4Addr, SocketAddr},
};

use axum::{Json, Router, extract::State, routing::get};
use tokio::net::TcpListener;

use super::board::{Board, Standing};

/// Binds 127.0.0.1 at the first free port of `ports`.
///
/// # Errors
/// The last port's error, when none is free.
pub async fn bind_first(ports: impl IntoIterator<Item = u16>) -> io::Result<TcpListener> {
    let mut last = io::Error::from(io::ErrorKind::AddrNotAvailable);
    for port in ports {
        match TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).await {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Serves the board until `end` completes.
///
/// # Errors
/// If the listener fails.
pub async fn serve(
    listener: TcpListener,
    board: Board,
    end: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    axum::serve(listener, router(board)).with_graceful_shutdown(end).await
}

fn router(board: Board) -> Router {
    Router::new()
        .route("/health", get(|| async { "ok\n" }))
        .route("/status", get(status))
        .route("/metrics", get(metrics))
        .with_state(board)
}

async fn status(State(board): State<Board>) -> Json<Standing> {
    Json(board.standing())
}

async fn metrics(State(board): State<Board>) -> String {
    board.standing().metrics()
}

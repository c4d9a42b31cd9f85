//! Networks on loopback, told as stories. Waits are for events; a limit only catches a hang.

use std::{future::Future, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::mpsc,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::{
    base::{
        NodeId,
        limits::{MAX_CONTROL_BYTES, MAX_FRAME_BYTES, MAX_FRAME_WIRE_BYTES, MAX_REPLY_BYTES},
    },
    identity::Identity,
};

const LIMIT: Duration = Duration::from_secs(20);

struct Node {
    net: Net,
    events: mpsc::Receiver<NetEvent>,
}

impl Node {
    fn config(id: u8) -> NetConfig {
        let mut config = NetConfig::new(Identity::from_bytes(&[id; 32]));
        config.listen = vec!["/ip4/127.0.0.1/tcp/0".parse().unwrap()];
        config
    }

    async fn start(id: u8) -> Self {
        Self::with(Self::config(id)).await
    }

    async fn with(config: NetConfig) -> Self {
        let (net, events) = start(config).await.unwrap();
        Self { net, events }
    }

    fn id(&self) -> NodeId {
        self.net.node_id()
    }

    fn addr(&self) -> Multiaddr {
        self.net.listeners()[0].clone()
    }

    async fn connect(&self, other: &Node) {
        self.net.dial_addr(&other.addr()).await.unwrap();
    }

    /// The first event that `pick` likes.
    async fn until<T>(&mut self, mut pick: impl FnMut(NetEvent) -> Option<T>) -> T {
        within(async {
            loop {
                let event = self.events.recv().await.expect("the network runs");
                if let Some(found) = pick(event) {
                    return found;
                }
            }
        })
        .await
    }

    async fn incoming(&mut self) -> IncomingBulk {
        self.until(|event| match event {
            NetEvent::BulkStream(stream) => Some(stream),
            _ => None,
        })
        .await
    }

    async fn gone(&mut self, other: NodeId) {
        self.until(|event| match event {
            NetEvent::PeerDisconnected { node } if node == other => Some(()),
            _ => None,
        })
        .await;
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(LIMIT, future).await.expect("in time")
}

/// A bulk stream from `a` to `b`, both ends.
async fn bulk(a: &Node, b: &mut Node) -> (BulkStream, BulkStream) {
    let open = a.net.open_bulk(b.id(), b"test", LIMIT);
    let accept = async { b.incoming().await.accept().await.unwrap() };
    let (opened, accepted) = tokio::join!(open, accept);
    (opened.unwrap(), accepted)
}

#[tokio::test]
async fn two_nodes_exchange_messages_and_requests() {
    let (a, mut b) = (Node::start(1).await, Node::start(2).await);
    a.net.add_addresses(b.id(), vec![b.addr()]).await.unwrap();
    a.net.send(b.id(), b"hello".to_vec()).await.unwrap();
    let me = a.id();
    b.until(|event| {
        matches!(event, NetEvent::PeerConnected { node, .. } if node == me).then_some(())
    })
    .await;
    let (from, bytes) = b
        .until(|event| match event {
            NetEvent::Message { from, bytes } => Some((from, bytes)),
            _ => None,
        })
        .await;
    assert_eq!((from, bytes.as_slice()), (a.id(), b"hello".as_slice()));
    assert_eq!(a.net.connected(), [b.id()]);

    let big = vec![7; MAX_REPLY_BYTES];
    let ask = a.net.request(b.id(), b"?".to_vec(), LIMIT);
    let answer = async {
        let channel = b
            .until(|event| match event {
                NetEvent::Request { channel, .. } => Some(channel),
                _ => None,
            })
            .await;
        b.net.respond(channel, big.clone()).await.unwrap();
    };
    assert_eq!(tokio::join!(ask, answer).0.unwrap(), big);
    assert!(b.net.traffic().control_sent > MAX_REPLY_BYTES as u64);
    assert!(a.net.traffic().wire_received > MAX_REPLY_BYTES as u64);
}

#[tokio::test]
async fn what_cannot_be_delivered_says_why() {
    let (a, mut b) = (Node::start(1).await, Node::start(2).await);
    let nobody = Identity::from_bytes(&[9; 32]).node_id();
    let no_key = (0..).map(|byte| NodeId([byte; 32])).find(|id| address::peer_of(*id).is_none());
    let no_key = no_key.expect("half of all byte strings are no point of the curve");
    assert_eq!(a.net.send(nobody, vec![1]).await, Err(RequestError::NoAddress(nobody)));
    assert!(matches!(
        a.net.send(no_key, vec![1]).await,
        Err(RequestError::Address(AddressError::NotAKey(_)))
    ));
    let dead = within(TcpListener::bind("127.0.0.1:0")).await.unwrap().local_addr().unwrap().port();
    let addr: Multiaddr = format!("/ip4/127.0.0.1/tcp/{dead}").parse().unwrap();
    let error = a.net.dial(nobody, vec![addr]).await.unwrap_err();
    assert!(error.to_string().contains("refused"), "{error}");
    let wrong = a.net.dial(nobody, vec![b.addr()]).await.unwrap_err();
    assert!(wrong.to_string().contains("another node answers"), "{wrong}");
    // Dropped requests end without a reply.
    a.connect(&b).await;
    let ask = a.net.request(b.id(), vec![1], LIMIT);
    let ignore = b.until(|event| matches!(event, NetEvent::Request { .. }).then_some(()));
    assert!(matches!(tokio::join!(ask, ignore).0, Err(RequestError::Lost(_))));
    let late = a.net.request(b.id(), vec![1], Duration::from_millis(50)).await;
    assert_eq!(late, Err(RequestError::Timeout));
}

#[tokio::test]
async fn gossip_reaches_those_who_are_not_connected_to_its_author() {
    let (a, hub, mut c) = (Node::start(1).await, Node::start(2).await, Node::start(3).await);
    for node in [&a, &hub, &c] {
        node.net.subscribe("run").await.unwrap();
    }
    a.connect(&hub).await;
    c.connect(&hub).await;
    let (hub_id, mut count) = (hub.id(), 0u8);
    // The mesh forms while we publish; every message has other bytes.
    let publish = async {
        loop {
            count += 1;
            let _ = a.net.publish("run", vec![count]).await;
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    let heard = c.until(|event| match event {
        NetEvent::Gossip { topic, from, .. } => Some((topic, from)),
        _ => None,
    });
    tokio::select! {
        () = publish => unreachable!(),
        heard = heard => assert_eq!(heard, ("run".to_owned(), hub_id)),
    }
    assert!(!c.net.is_connected(a.id()) || c.net.connected().len() == 2);
    let huge = a.net.publish("run", vec![0; MAX_CONTROL_BYTES + 1]).await;
    assert!(matches!(huge, Err(NetError::TooLarge { .. })));
}

#[tokio::test]
async fn gossip_waits_for_a_verdict_where_it_is_validated() {
    let mut config = Node::config(2);
    config.validate_gossip = true;
    let (a, mut hub, mut c) =
        (Node::start(1).await, Node::with(config).await, Node::start(3).await);
    for node in [&a, &hub, &c] {
        node.net.subscribe("run").await.unwrap();
    }
    a.connect(&hub).await;
    hub.net.dial_addr(&c.addr()).await.unwrap();
    let publish = async {
        for count in 0u8.. {
            let _ = a.net.publish("run", vec![count % 2, count]).await;
            tokio::time::sleep(Duration::from_millis(30)).await;
        }
    };
    // Odd messages are wrong.
    let judge = async {
        loop {
            if let Some(NetEvent::Gossip { bytes, id, .. }) = hub.events.recv().await {
                let verdict = if bytes[0] == 1 { Verdict::Reject } else { Verdict::Accept };
                hub.net.report(id, verdict).await.unwrap();
            }
        }
    };
    let mut heard = Vec::new();
    let author = a.id();
    let listen = c.until(|event| {
        if let NetEvent::Gossip { from, bytes, .. } = event
            && from != author
        {
            heard.push(bytes[0]);
        }
        (heard.len() == 4).then_some(())
    });
    tokio::select! {
        () = publish => {}
        () = judge => {}
        () = listen => {}
    }
    assert_eq!(heard, [0; 4]);
}

#[tokio::test]
async fn providers_and_addresses_are_found_through_a_third_node() {
    let mut hub = Node::start(1).await;
    let key = [42; 32];
    let config = |id| {
        let mut config = Node::config(id);
        config.bootstrap = vec![hub.addr()];
        config
    };
    let a = Node::with(config(2)).await;
    // Listed before anybody is known: the listing is repeated when the table has grown.
    a.net.provide(key).await.unwrap();
    let mut b = Node::with(config(3)).await;
    let hub_id = hub.id();
    b.until(|event| match event {
        NetEvent::BootstrapReached { node, .. } if node == hub_id => Some(()),
        _ => None,
    })
    .await;
    let found = within(async {
        loop {
            let found = b.net.find_providers(key, Duration::from_secs(2)).await.unwrap();
            if !found.is_empty() {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    assert_eq!(found, [a.id()]);
    within(async {
        while b.net.find_peer(a.id()).await.unwrap().is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await;
    b.net.send(a.id(), b"found you".to_vec()).await.unwrap();

    b.net.put_record(key, b"small".to_vec()).await.unwrap();
    let read = within(async {
        loop {
            if let Some(value) = a.net.get_record(key).await.unwrap() {
                return value;
            }
        }
    });
    assert_eq!(read.await, b"small");
    assert_eq!(a.net.get_record([1; 32]).await.unwrap(), None);

    for node in [&a, &b] {
        node.net.shutdown().await;
    }
    hub.gone(a.id()).await;
}

#[tokio::test]
async fn an_unreachable_bootstrap_peer_is_reported_and_found_when_it_comes() {
    let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    let late: Multiaddr = format!("/ip4/127.0.0.1/tcp/{port}").parse().unwrap();
    let mut config = Node::config(1);
    let late_id = Identity::from_bytes(&[2; 32]).node_id();
    config.bootstrap = vec![multiaddr_with_peer(&late, late_id).unwrap()];
    let mut a = Node::with(config).await;
    let (text, attempt) = a
        .until(|event| match event {
            NetEvent::BootstrapUnreachable { addr, error, attempt, .. } => {
                Some((format!("{addr} {error}"), attempt))
            }
            _ => None,
        })
        .await;
    assert!(text.contains("/p2p/12D3Koo") && text.contains("refused"), "{text}");
    assert_eq!(attempt, 1);
    let mut config = Node::config(2);
    config.listen = vec![late];
    let _late = Node::with(config).await;
    a.until(|event| matches!(event, NetEvent::BootstrapReached { .. }).then_some(())).await;
    assert!(a.net.is_connected(late_id));
}

#[tokio::test]
async fn a_bootstrap_address_without_a_peer_is_refused() {
    let mut config = Node::config(1);
    config.bootstrap = vec!["/ip4/127.0.0.1/tcp/4001".parse().unwrap()];
    let error = start(config).await.unwrap_err();
    assert!(error.to_string().contains("append /p2p/"), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bulk_transfer_arrives_intact_and_waits_for_a_slow_reader() {
    const FRAMES: usize = 128;
    let (a, mut b) = (Node::start(1).await, Node::start(2).await);
    a.connect(&b).await;
    let (ours, theirs) = bulk(&a, &mut b).await;
    assert_eq!((ours.peer(), theirs.peer()), (b.id(), a.id()));
    let (mut sender, _) = ours.split();
    let (_back, mut receiver) = theirs.split();
    let (progress, mut sent) = mpsc::channel(FRAMES);
    let send = tokio::spawn(async move {
        let mut frame = vec![0; MAX_FRAME_BYTES];
        for index in 0..FRAMES {
            frame[..8].copy_from_slice(&(index as u64).to_le_bytes());
            sender.send(&frame).await.unwrap();
            progress.send(index).await.unwrap();
        }
        sender.close().await.unwrap();
    });
    // Nobody reads: the sender stops long before the end.
    let mut ahead = 0;
    while timeout(Duration::from_millis(300), sent.recv()).await.is_ok_and(|sent| sent.is_some()) {
        ahead += 1;
    }
    assert!(ahead < FRAMES, "the sender was {ahead} frames ahead of a reader that does not read");
    within(async {
        for index in 0..FRAMES {
            let frame = receiver.recv(MAX_FRAME_BYTES).await.unwrap().unwrap();
            assert_eq!(frame.len(), MAX_FRAME_BYTES);
            assert_eq!(frame[..8], (index as u64).to_le_bytes());
        }
        assert_eq!(receiver.recv(MAX_FRAME_BYTES).await, Ok(None));
        assert_eq!(receiver.recv(MAX_FRAME_BYTES).await, Ok(None));
        send.await.unwrap();
    })
    .await;
    let bytes = (FRAMES * (MAX_FRAME_BYTES + 4) + 4) as u64;
    assert_eq!(a.net.traffic().bulk_sent, bytes);
    assert_eq!(b.net.traffic().bulk_received, bytes);
}

#[tokio::test]
async fn a_stream_can_be_refused_with_a_reason() {
    let (a, mut b) = (Node::start(1).await, Node::start(2).await);
    a.connect(&b).await;
    let open = a.net.open_bulk(b.id(), b"round 7", LIMIT);
    let refuse = async {
        let stream = b.incoming().await;
        assert_eq!((stream.from(), stream.hello()), (a.id(), b"round 7".as_slice()));
        stream.refuse("not in the plan").await.unwrap();
    };
    let (opened, ()) = tokio::join!(open, refuse);
    assert_eq!(opened.unwrap_err(), BulkError::Refused("not in the plan".to_owned()));
    let silent = a.net.open_bulk(b.id(), b"", Duration::from_millis(100)).await;
    assert!(silent.is_err(), "nobody accepts");
    let long = a.net.open_bulk(b.id(), &[0; MAX_HELLO_BYTES + 1], LIMIT).await;
    assert!(matches!(long, Err(BulkError::TooLarge { .. })));
}

#[tokio::test]
async fn an_oversize_frame_is_refused_on_both_sides() {
    let (a, mut b) = (Node::start(1).await, Node::start(2).await);
    a.connect(&b).await;
    let (ours, theirs) = bulk(&a, &mut b).await;
    let (mut sender, _ours) = ours.split();
    let (_theirs, mut receiver) = theirs.split();
    let huge = sender.send(&vec![0; MAX_FRAME_WIRE_BYTES + 1]).await;
    assert!(matches!(huge, Err(BulkError::TooLarge { .. })));
    sender.send(&[1; 100]).await.unwrap();
    let too_large = Err(BulkError::TooLarge { len: 100, max: 99 });
    assert_eq!(within(receiver.recv(99)).await, too_large);
    assert_eq!(within(receiver.recv(99)).await, too_large, "the stream has ended");
}

#[tokio::test]
async fn cancelled_calls_leave_the_stream_intact() {
    let (a, mut b) = (Node::start(1).await, Node::start(2).await);
    a.connect(&b).await;
    let (ours, theirs) = bulk(&a, &mut b).await;
    let (mut sender, _ours) = ours.split();
    let (_theirs, mut receiver) = theirs.split();
    let send = tokio::spawn(async move {
        for index in 0..64u8 {
            let frame = vec![index; 50_000];
            // Cancelled in the middle every now and then; the call after it goes on from there.
            let _ = timeout(Duration::from_micros(200), sender.send(&frame)).await;
        }
        sender.close().await.unwrap();
    });
    within(async {
        let mut last = None;
        loop {
            match timeout(Duration::from_micros(100), receiver.recv(50_000)).await {
                Err(_) => {}
                Ok(Ok(Some(frame))) => {
                    assert_eq!(frame.len(), 50_000);
                    assert!(frame.iter().all(|byte| *byte == frame[0]), "frames are whole");
                    assert!(last < Some(frame[0]), "frames are in order");
                    last = Some(frame[0]);
                }
                Ok(end) => {
                    assert_eq!(end, Ok(None));
                    break;
                }
            }
        }
        send.await.unwrap();
    })
    .await;
}

#[tokio::test]
async fn a_dropped_sender_is_a_loss_not_an_end() {
    let (a, mut b) = (Node::start(1).await, Node::start(2).await);
    a.connect(&b).await;
    let (ours, theirs) = bulk(&a, &mut b).await;
    let (mut sender, _receiver) = ours.split();
    let (_theirs, mut receiver) = theirs.split();
    sender.send(b"last").await.unwrap();
    drop(sender);
    assert_eq!(within(receiver.recv(10)).await, Ok(Some(b"last".to_vec())));
    assert!(matches!(within(receiver.recv(10)).await, Err(BulkError::Lost(_))));
}

/// Passes bytes between a node and `target` until it is frozen or cut.
struct Wire {
    port: u16,
    frozen: CancellationToken,
    cut: CancellationToken,
}

impl Wire {
    async fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (frozen, cut) = (CancellationToken::new(), CancellationToken::new());
        let wire = Self { port, frozen: frozen.clone(), cut: cut.clone() };
        tokio::spawn(async move {
            let (near, _) = listener.accept().await.unwrap();
            let far = TcpStream::connect(("127.0.0.1", target)).await.unwrap();
            let (near, far) = (near.into_split(), far.into_split());
            let there = pump(near.0, far.1, frozen.clone());
            let back = pump(far.0, near.1, frozen);
            cut.run_until_cancelled(async { tokio::join!(there, back) }).await;
        });
        wire
    }
}

async fn pump(
    mut from: tokio::net::tcp::OwnedReadHalf,
    mut to: tokio::net::tcp::OwnedWriteHalf,
    frozen: CancellationToken,
) {
    let mut buffer = vec![0; 65_536];
    let copy = async {
        while let Ok(count @ 1..) = from.read(&mut buffer).await {
            if to.write_all(&buffer[..count]).await.is_err() {
                break;
            }
        }
    };
    if frozen.run_until_cancelled(copy).await.is_none() {
        std::future::pending::<()>().await;
    }
}

/// Two nodes with a wire between them that can break.
async fn wired() -> (Node, Node, Wire) {
    let quick = |id| {
        let mut config = Node::config(id);
        config.limits.ping_interval = Duration::from_millis(200);
        config.limits.ping_timeout = Duration::from_millis(500);
        config
    };
    let (a, b) = (Node::with(quick(1)).await, Node::with(quick(2)).await);
    let wire = Wire::to(address::tcp_port_of(&b.addr()).unwrap()).await;
    let addr = format!("/ip4/127.0.0.1/tcp/{}", wire.port).parse().unwrap();
    a.net.dial(b.id(), vec![addr]).await.unwrap();
    (a, b, wire)
}

#[tokio::test]
async fn a_killed_peer_is_noticed_at_once() {
    let (mut a, mut b, wire) = wired().await;
    let (ours, _theirs) = bulk(&a, &mut b).await;
    let (_sender, mut receiver) = ours.split();
    let ask = a.net.request(b.id(), vec![1], LIMIT);
    let kill = async {
        b.until(|event| matches!(event, NetEvent::Request { .. }).then_some(())).await;
        // What the kernel does for a killed process: sockets are closed.
        wire.cut.cancel();
    };
    assert!(tokio::join!(ask, kill).0.is_err());
    a.gone(b.id()).await;
    assert!(matches!(within(receiver.recv(10)).await, Err(BulkError::Lost(_))));
    assert!(!a.net.is_connected(b.id()));
}

#[tokio::test]
async fn a_peer_that_falls_silent_is_given_up() {
    let (mut a, mut b, wire) = wired().await;
    let (ours, theirs) = bulk(&a, &mut b).await;
    let (mut sender, mut receiver) = ours.split();
    let (_back, mut theirs) = theirs.split();
    sender.send(b"alive").await.unwrap();
    assert_eq!(theirs.recv(10).await, Ok(Some(b"alive".to_vec())));
    wire.frozen.cancel();
    // Even with every buffer on the way full.
    let flood = async { while sender.send(&vec![0; MAX_FRAME_BYTES]).await.is_ok() {} };
    tokio::join!(within(flood), a.gone(b.id()));
    assert!(matches!(within(receiver.recv(10)).await, Err(BulkError::Lost(_))));
    assert!(!a.net.is_connected(b.id()));
}

#[tokio::test]
async fn a_taken_port_is_an_error_or_gives_way() {
    let a = Node::start(1).await;
    let mut config = Node::config(2);
    config.listen = vec![address::without_peer(a.addr())];
    let error = start(config.clone()).await.unwrap_err();
    assert!(matches!(error, NetError::PortTaken { .. }), "{error}");
    assert!(error.to_string().contains("choose another one with --listen"), "{error}");
    config.default_port_fallback = true;
    let b = Node::with(config).await;
    assert!(address::tcp_port_of(&b.addr()) > address::tcp_port_of(&a.addr()));
    b.connect(&a).await;
}

#[tokio::test]
async fn a_consumer_that_does_not_read_blocks_nobody() {
    let mut config = Node::config(2);
    config.limits.events = 8;
    let (a, mut b, c) = (Node::start(1).await, Node::with(config).await, Node::start(3).await);
    b.net.subscribe("run").await.unwrap();
    a.connect(&b).await;
    // Messages fill the channel; then they are refused.
    within(async { while a.net.send(b.id(), vec![1]).await != Err(RequestError::Busy) {} }).await;
    assert_eq!(a.net.request(b.id(), vec![1], LIMIT).await, Err(RequestError::Busy));
    let refused = a.net.open_bulk(b.id(), b"", LIMIT).await.unwrap_err();
    assert_eq!(refused, BulkError::Refused("the node is busy".to_owned()));
    within(async {
        for count in 0u16.. {
            let _ = a.net.publish("run", count.to_le_bytes().to_vec()).await;
            if b.net.traffic().gossip_dropped > 3 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    // The network still works for its handle, and changes of connections are not lost.
    b.connect(&c).await;
    c.net.shutdown().await;
    within(async {
        while b.net.is_connected(c.id()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    })
    .await;
    b.net.send(a.id(), vec![2]).await.unwrap();
    a.net.shutdown().await;
    b.gone(a.id()).await;
    assert!(b.net.traffic().refused_busy >= 3);
}

#[tokio::test]
async fn too_large_a_request_is_refused_by_its_receiver() {
    use libp2p::request_response::Codec;
    let (a, mut b) = (Node::start(1).await, Node::start(2).await);
    a.connect(&b).await;
    // The handle refuses to send it at all.
    let len = MAX_CONTROL_BYTES + 1;
    let refused = a.net.request(b.id(), vec![0; len], LIMIT).await;
    assert_eq!(refused, Err(RequestError::TooLarge { len, max: MAX_CONTROL_BYTES }));
    // A hostile sender does not ask its handle.
    let shared = std::sync::Arc::new(shared::Shared::new(&Node::config(3)));
    let mut codec = codec::BytesCodec { max_request: MAX_CONTROL_BYTES, max_reply: 0, shared };
    let mut wire = futures::io::Cursor::new((len as u32).to_le_bytes().to_vec());
    let protocol = libp2p::StreamProtocol::new("/test");
    let error = codec.read_request(&protocol, &mut wire).await.unwrap_err();
    assert!(error.to_string().contains("more than the"), "{error}");
    // The largest one passes.
    let ask = a.net.request(b.id(), vec![0; MAX_CONTROL_BYTES], LIMIT);
    let answer = async {
        let channel = b
            .until(|event| match event {
                NetEvent::Request { channel, .. } => Some(channel),
                _ => None,
            })
            .await;
        assert!(b.net.respond(channel, vec![0; MAX_REPLY_BYTES + 1]).await.is_err());
    };
    assert!(tokio::join!(ask, answer).0.is_err());
}

#[tokio::test]
async fn limits_and_latency_hold_on_bulk_streams() {
    let mut config = Node::config(1);
    config.upload_limit = Some(1_000_000);
    config.test_latency = Some(Duration::from_millis(100));
    let (a, mut b) = (Node::with(config).await, Node::start(2).await);
    a.connect(&b).await;
    let (ours, theirs) = bulk(&a, &mut b).await;
    let (mut sender, _ours) = ours.split();
    let (_theirs, mut receiver) = theirs.split();
    let start = std::time::Instant::now();
    sender.send(&[0; 10]).await.unwrap();
    receiver.recv(10).await.unwrap();
    assert!(start.elapsed() >= Duration::from_millis(100));
    let send = async {
        for _ in 0..6 {
            sender.send(&[0; 100_000]).await.unwrap();
        }
        sender.close().await
    };
    let receive = async { while receiver.recv(100_000).await.unwrap().is_some() {} };
    let (closed, ()) = within(async { tokio::join!(send, receive) }).await;
    closed.unwrap();
    // 0.6 MB at 1 MB/s after a burst of 0.1 MB.
    let seconds = start.elapsed().as_secs_f64();
    assert!((0.5..3.0).contains(&seconds), "{seconds}");
}

#[tokio::test]
async fn a_stopped_network_says_so_and_leaves_no_task() {
    let (a, mut b) = (Node::start(1).await, Node::start(2).await);
    a.connect(&b).await;
    let (_ours, theirs) = bulk(&a, &mut b).await;
    within(a.net.shutdown()).await;
    b.gone(a.id()).await;
    assert!(matches!(within(theirs.split().1.recv(1)).await, Err(BulkError::Lost(_))));
    assert_eq!(a.net.send(b.id(), vec![1]).await, Err(RequestError::Stopped));
    assert!(matches!(a.net.subscribe("x").await, Err(NetError::Stopped)));
    assert!(a.net.connected().is_empty());
    // The last handle is gone: the network stops by itself.
    let Node { net, mut events } = b;
    drop(net);
    within(async { while events.recv().await.is_some() {} }).await;
}

/// A measurement, not a test: `cargo test --release --lib bulk_throughput -- --ignored --nocapture`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement"]
async fn bulk_throughput() {
    const FRAMES: usize = 4096;
    let (a, mut b) = (Node::start(1).await, Node::start(2).await);
    a.connect(&b).await;
    let (ours, theirs) = bulk(&a, &mut b).await;
    let (mut sender, _ours) = ours.split();
    let (_theirs, mut receiver) = theirs.split();
    let (wall, cpu) = (std::time::Instant::now(), cpu_seconds());
    let send = tokio::spawn(async move {
        let frame = vec![7; MAX_FRAME_BYTES];
        for _ in 0..FRAMES {
            sender.send(&frame).await.unwrap();
        }
        sender.close().await.unwrap();
    });
    while receiver.recv(MAX_FRAME_BYTES).await.unwrap().is_some() {}
    send.await.unwrap();
    let (wall, cpu) = (wall.elapsed().as_secs_f64(), cpu_seconds() - cpu);
    println!("1 GiB: {:.0} MiB/s, {cpu:.2} CPU s for both ends", 1024.0 / wall);
}

/// CPU seconds of this process, user and system.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks =
        |index| after_name.split_whitespace().nth(index).and_then(|n| n.parse::<f64>().ok());
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
}
